#!/usr/bin/env python3
"""A training job of torchtune's own recipes, as a row describes it: train_tune.py CONFIG.json ROW.json.

What is not torchtune's: weights and tokens that nobody wrote, and checkpoints, which are neither read
nor written. Nothing here knows of Plimsoll.
"""

import importlib
import importlib.util
import json
import pathlib
import sys
import tempfile

import torchtune
import torch
from omegaconf import OmegaConf
from torchtune import training
from torchtune.training.checkpointing import _checkpoint_client

STEPS = 3
# Family and builder of a model's class; of Llama's by what its config says besides.
FAMILIES = {
    "mistral": ("mistral", "mistral"), "gemma": ("gemma", "gemma"), "gemma2": ("gemma2", "gemma2"),
    "phi3": ("phi3", "phi3"), "qwen2": ("qwen2", "qwen2"), "qwen3": ("qwen3", "qwen3"),
}
COMPONENTS = "_component_builders"
LOSSES = {"chunked": "torchtune.modules.loss.LinearCrossEntropyLoss",
          "chunked-cross-entropy": "torchtune.modules.loss.CEWithChunkedOutputLoss",
          "": "torch.nn.CrossEntropyLoss"}
MODULES = {"q_proj": "q_proj", "k_proj": "k_proj", "v_proj": "v_proj", "o_proj": "output_proj"}


def words_of(text):
    """`lora r=8 dtype=bf16`: the first word, and those with values."""
    first, *rest = text.split() or [""]
    return first, dict(word.split("=") for word in rest)


def builder_of(config, prefix=""):
    if config["model_type"] == "llama":
        scaled, tied = config.get("rope_scaling"), config["tie_word_embeddings"]
        family = ("llama3_2" if tied else "llama3_1") if scaled else "llama3"
        family = (family, family)
    else:
        family = FAMILIES[config["model_type"]]
    return f"torchtune.models.{family[0]}.{COMPONENTS}.{prefix}{family[1]}"


def shape_of(config, row):
    heads = config["num_attention_heads"]
    shape = {
        "vocab_size": config["vocab_size"],
        "num_layers": int(row["layers"] or 0) or config["num_hidden_layers"], "num_heads": heads,
        "num_kv_heads": config.get("num_key_value_heads", heads),
        "embed_dim": config["hidden_size"], "intermediate_dim": config["intermediate_size"],
        "max_seq_len": config["max_position_embeddings"],
    }
    kind = config["model_type"]
    if kind in ("gemma", "gemma2", "qwen3"):
        shape["head_dim"] = config["head_dim"]
    if kind in ("qwen2", "qwen3"):
        shape["tie_word_embeddings"] = config["tie_word_embeddings"]
    if kind == "qwen3":
        shape |= {"q_norm": True, "k_norm": True, "q_proj_bias": False, "k_proj_bias": False,
                  "v_proj_bias": False}
    if kind == "gemma2":
        shape |= {"query_pre_attn_scalar": config["query_pre_attn_scalar"],
                  "sliding_window_size": config["sliding_window"]}
    return shape


def model_of(config, row):
    shape = shape_of(config, row)
    method, values = words_of(row["adapter"])
    if not method:
        return {"_component_": builder_of(config), **shape}
    targets = values["targets"].split("+")
    return {
        "_component_": builder_of(config, "lora_"), **shape,
        "lora_attn_modules": [MODULES[name] for name in targets if name in MODULES],
        "apply_lora_to_mlp": "mlp" in targets, "lora_rank": int(values["r"]), "lora_alpha": 16,
        "lora_dropout": float(values["dropout"]), "use_dora": method == "dora",
        "quantize_base": bool(row["quantization"]),
    }


def weights_of(config, row):
    """What a checkpoint has: the model without adapters."""
    path, _, name = builder_of(config).rpartition(".")
    with training.set_default_dtype(torch.bfloat16), torch.device("meta"):
        model = getattr(importlib.import_module(path), name)(**shape_of(config, row))
    return {name: torch.empty(at.shape, dtype=at.dtype) for name, at in model.state_dict().items()}


class Tokens:
    """As many as a sequence has, to as many samples as the steps take."""

    def __init__(self, _tokenizer=None, *, tokenizer=None, count, length, paired):
        del tokenizer
        ids = [0] * length
        names = ("chosen", "rejected")
        self.count = count
        self.sample = {"tokens": ids, "labels": ids}
        if paired:
            self.sample = {f"{name}_{what}": ids for name in names for what in ("input_ids", "labels")}

    def __len__(self):
        return self.count

    def __getitem__(self, _):
        return {name: list(values) for name, values in self.sample.items()}


class Words:
    pad_id = 0
    vocab_size = 1


class NoLog:
    def __init__(self, **_):
        pass

    def log_config(self, *_):
        pass

    def log_dict(self, *_, **__):
        pass

    def close(self):
        pass


def config_of(config, row, folder):
    micro, accumulate = int(row["micro_batch"]), int(row["accumulate"])
    paired = row["preference"] != ""
    again = row["checkpointing"] == "True"
    loss = {"_component_": LOSSES[row["loss"]]}
    if paired:
        loss = {"_component_": "torchtune.rlhf.loss.DPOLoss"}
    *forms, _ = row["optimizer"].split()
    return OmegaConf.create({
        "output_dir": folder, "device": "cuda", "dtype": "bf16", "seed": 1, "epochs": 1,
        "model": model_of(config, row), "tokenizer": {"_component_": "__main__.Words"},
        "checkpointer": {"model_type": "LLAMA3"}, "ref_checkpointer": {},
        "resume_from_checkpoint": False, "save_adapter_weights_only": False,
        "dataset": {"_component_": "__main__.Tokens", "length": int(row["sequence"]),
                    "count": STEPS * accumulate * micro * int(row["world"]), "paired": paired},
        "shuffle": False, "batch_size": micro, "max_steps_per_epoch": STEPS,
        "gradient_accumulation_steps": accumulate, "loss": loss, "compile": False,
        "optimizer": {"_component_": "torch.optim.AdamW", "fused": True, "lr": 1e-4},
        "optimizer_in_bwd": "in-backward" in forms,
        "lr_scheduler": {"_component_": "torchtune.training.get_cosine_schedule_with_warmup",
                         "num_warmup_steps": 1},
        "clip_grad_norm": 1.0 if row["clip"] == "True" else None,
        "metric_logger": {"_component_": "__main__.NoLog"}, "log_level": "ERROR",
        "enable_activation_checkpointing": again,
        "enable_activation_offloading": row.get("offload") == "activations",
    })


def recipe_of(row):
    place = "single_device" if row["wrapper"] == "none" else "distributed"
    tuned = "lora" if row["adapter"] else "full"
    name = f"{tuned}_{'dpo' if row['preference'] else 'finetune'}_{place}"
    path = pathlib.Path(torchtune.__file__).parents[1] / "recipes" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = [value for key, value in vars(module).items()
             if "Recipe" in key and getattr(value, "__module__", "") == name]
    return module, found[0]


def without_checkpoints(module, recipe, config, row):
    keys = {training.MODEL_KEY: weights_of(config, row)}
    _checkpoint_client.CheckpointClient.load_base_checkpoint = lambda self: dict(keys)
    for name in ("load_checkpoint", "_load_ref_checkpoint"):
        if hasattr(recipe, name):
            setattr(recipe, name, lambda self, *_, **__: dict(keys))
    recipe.save_checkpoint = lambda self, **_: None
    if row["adapter"] and row["wrapper"] == "none":  # its weights are there without being read
        keys[training.MODEL_KEY] = {}
        module.validate_missing_and_unexpected_for_lora = lambda **_: None
    module.training.get_distributed_backend = lambda *_, **__: "nccl"


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        config = json.load(file)
    with open(sys.argv[2], encoding="utf-8") as file:
        row = json.load(file)
    module, recipe = recipe_of(row)
    without_checkpoints(module, recipe, config, row)
    with tempfile.TemporaryDirectory() as folder:
        made = config_of(config, row, folder)
        running = recipe(cfg=made)
        running.setup(cfg=made)
        running.train()


if __name__ == "__main__":
    main()
