#!/usr/bin/env python3
"""A training job of NeMo Automodel 0.7's own recipe of fine-tuning, as a row describes it:
train_automodel.py CONFIG.json ROW.json.

What is not Automodel's: tokens that nobody wrote, how many positions they have, which a GPU that
computes nothing cannot say, and no signals of other ranks. Nothing here knows of Plimsoll.
"""

import json
import os
import pathlib
import sys
import tempfile

os.environ["NEMO_ENABLE_USER_MODULES"] = "1"  # the data set is this file's

from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam
from torch.utils.data import Dataset
from triton.runtime import autotuner

_MAKE = autotuner.Autotuner.__init__


def _make(self, function, names, configs, key, *arguments, **named):
    """Triton 3.9 refuses keys that are no arguments, as one of Automodel's is; older ones do not."""
    _MAKE(self, function, names, configs, [k for k in key if k in names], *arguments, **named)


autotuner.Autotuner.__init__ = _make
if not hasattr(FSDPParam, "to_accumulated_grad_if_needed"):  # which Automodel guards; not torch 2.15's
    FSDPParam.to_accumulated_grad_if_needed = None

from nemo_automodel.components.config.loader import ConfigNode
from nemo_automodel.components.models.llama.rope_utils import LlamaRotaryEmbedding
from nemo_automodel.components.training.signal_handler import DistributedSignalHandler
from nemo_automodel.recipes.llm.train_ft import TrainFinetuneRecipeForNextTokenPrediction

STEPS = 3
STRATEGIES = {"fsdp2": "fsdp2", "none": "fsdp2", "ddp": "ddp"}
OPTIMIZERS = {"adam": "torch.optim.Adam", "adamw": "torch.optim.AdamW"}
LOADER = "torchdata.stateful_dataloader.StatefulDataLoader"


class Tokens(Dataset):
    def __init__(self, length, count, tokenizer=None):
        del tokenizer
        self.length, self.count = length, count

    def __len__(self):
        return self.count

    def __getitem__(self, _):
        ids = [1] * self.length
        return {"input_ids": ids, "labels": ids, "attention_mask": ids}


def adapter_of(row):
    """`lora r=8 targets=q_proj+v_proj dropout=0.0`."""
    said = dict(word.split("=") for word in row["adapter"].split()[1:])
    every = said["targets"] == "all-linear"
    return {
        "_target_": "nemo_automodel.components._peft.lora.PeftConfig",
        "match_all_linear": every,
        "target_modules": [] if every else [f"*.{name}" for name in said["targets"].split("+")],
        "dim": int(said["r"]), "alpha": 32, "dropout": float(said["dropout"]),
        "use_triton": row["kernels"] == "triton",
    }


def model_of(config, row, folder):
    shape = json.loads(pathlib.Path(config).read_text(encoding="utf-8"))
    if int(row["layers"] or 0):
        shape["num_hidden_layers"] = int(row["layers"])
        if "layer_types" in shape:
            shape["layer_types"] = shape["layer_types"][:int(row["layers"])]
    place = pathlib.Path(folder) / "model"
    place.mkdir()
    (place / "config.json").write_text(json.dumps(shape), encoding="utf-8")
    return {
        "_target_": "nemo_automodel.NeMoAutoModelForCausalLM.from_config",
        "config": {
            "_target_": "nemo_automodel._transformers.auto_config.NeMoAutoConfig.from_pretrained",
            "pretrained_model_name_or_path": str(place),
        },
        "torch_dtype": "bfloat16" if row["precision"] == "bf16-pure" else "float32",
        "use_liger_kernel": False,
    }


def config_of(config, row, folder):
    micro_batch = int(row["micro_batch"])
    batch = micro_batch * int(row["accumulate"]) * int(row["world"])
    return ConfigNode({
        "step_scheduler": {
            "global_batch_size": batch, "local_batch_size": micro_batch, "max_steps": STEPS,
            "num_epochs": 1, "ckpt_every_steps": 1000, "val_every_steps": 1000,
        },
        "seed": 1,
        "model": model_of(config, row, folder),
        "distributed": {
            "strategy": STRATEGIES[row["wrapper"]], "dp_size": None, "tp_size": int(row["tp"]),
            "cp_size": 1, "activation_checkpointing": row["checkpointing"] == "True",
        },
        "loss_fn": {"_target_": "nemo_automodel.components.loss.masked_ce.MaskedCrossEntropy"},
        "dataset": {
            "_target_": f"{__file__}:Tokens", "tokenizer": None, "length": int(row["sequence"]),
            "count": (STEPS + 1) * batch,
        },
        "packed_sequence": {"packed_sequence_size": 0},
        "dataloader": {
            "_target_": LOADER, "shuffle": False,
            "collate_fn": "nemo_automodel.components.datasets.utils.default_collater",
        },
        "optimizer": {
            "_target_": OPTIMIZERS[row["optimizer"]], "lr": 1e-5,
            **({"fused": True} if row["implementation"] == "fused" else {}),
        },
        "checkpoint": {"enabled": False, "checkpoint_dir": folder},
        **({"peft": adapter_of(row)} if row.get("adapter") else {}),
    })


def turn_a_sequence(length):
    """How many positions there are comes from the GPU: those of a sequence take its place."""
    ensure = LlamaRotaryEmbedding._ensure_cache

    def ensuring(self, _, device):
        ensure(self, length, device)

    LlamaRotaryEmbedding._ensure_cache = ensuring


def main():
    with open(sys.argv[2], encoding="utf-8") as file:
        row = json.load(file)
    turn_a_sequence(int(row["sequence"]))
    DistributedSignalHandler.signals_received = lambda _: []
    with tempfile.TemporaryDirectory() as folder:
        recipe = TrainFinetuneRecipeForNextTokenPrediction(config_of(sys.argv[1], row, folder))
        recipe.setup()
        recipe.run_train_validation_loop()


if __name__ == "__main__":
    main()
