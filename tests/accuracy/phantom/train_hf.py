#!/usr/bin/env python3
"""A training job of Hugging Face's Trainer, as a row describes it: train_hf.py CONFIG.json ROW.json.

Nothing here knows of Plimsoll: `plimsoll measure` runs it unchanged.
"""

import json
import os
import sys
import tempfile

import torch
import transformers

from train import STEPS, choose_kernels, freeze, shortened

LAYERS = {
    **dict.fromkeys(("qwen3.5-0.8b", "qwen3.5-2b", "qwen3.5-4b", "qwen3.5-9b"),
                    ["Qwen3_5DecoderLayer"]),
    "qwen3.5-35b-a3b": ["Qwen3_5MoeDecoderLayer"],
    "qwen3-next-80b-a3b": ["Qwen3NextDecoderLayer"],
}


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


MODULES = {"attention": "self_attn", "mlp": "mlp", "head": "lm_head"}


def optimizer_of(row):
    """`rank=128 of=attention+mlp galore-adamw`: as Trainer is told of optimizers that project."""
    *said, name = row["optimizer"].split()
    if not said:
        return {"optim": {"fused": "adamw_torch_fused", "foreach": "adamw_torch"}[
            row["implementation"]]}
    import stand_ins

    sys.path.insert(0, os.environ["LOW_RANK_PACKAGES"])
    torch.linalg.svd = stand_ins.svd
    values = dict(word.split("=") for word in said)
    modules = [MODULES.get(word, word) for word in values["of"].split("+")]
    return {"optim": name.replace("-", "_"),
            "optim_target_modules": "all-linear" if modules == ["all-linear"] else modules,
            "optim_args": f"rank={values['rank']},update_proj_gap=1"}


def arguments_of(row, folder):
    """What transformers' Trainer, and those made of it, are told."""
    values = {
        "output_dir": folder, "max_steps": STEPS, "report_to": [], "save_strategy": "no",
        "logging_strategy": "no", "disable_tqdm": True, "dataloader_num_workers": 0,
        # Beside weights in 4 bits FSDP2 widens nothing, whatever it is told.
        "bf16": row["precision"] in ("bf16-autocast", "bf16-mixed")
        or row["wrapper"] == "fsdp2" and bool(row.get("quantization")),
        "fp16": row["precision"] == "fp16-autocast",
        **optimizer_of(row),
        "per_device_train_batch_size": int(row["micro_batch"]),
        "gradient_accumulation_steps": int(row["accumulate"]),
        "gradient_checkpointing": row["checkpointing"] == "True",
        "max_grad_norm": 1.0 if row["clip"] == "True" else 0.0,
    }
    if row["wrapper"] == "fsdp2":
        values.update(fsdp=True, fsdp_config={"version": 2, "reshard_after_forward": True})
        if row["config"] in LAYERS:  # the class names one of its pictures', which it has not
            values["fsdp_config"]["transformer_layer_cls_to_wrap"] = LAYERS[row["config"]]
    if row.get("liger"):
        values["use_liger_kernel"] = True
        if row["liger"] == "own":
            values["liger_kernel_config"] = {"fused_linear_cross_entropy": False}
    if int(row.get("cp") or 1) > 1:
        values["parallelism_config"] = contexts_of(row)
    if row["wrapper"].startswith("zero"):
        values["deepspeed"] = {
            "bf16": {"enabled": values["bf16"]},
            "zero_optimization": {"stage": int(row["wrapper"][-1])},
            "gradient_clipping": "auto", "train_batch_size": "auto",
            "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
        }
    return values


def contexts_of(row):
    """Ranks that split sequences, of those that FSDP2 shards over."""
    from accelerate.utils import ParallelismConfig, TorchContextParallelConfig

    ranks = int(row["cp"])
    return ParallelismConfig(dp_shard_size=int(row["world"]) // ranks, cp_size=ranks,
                             cp_handler=TorchContextParallelConfig(cp_comm_strategy=row["method"]))


def config_of(values, row):
    changed = shortened(values, int(row["layers"] or 0))
    config = transformers.AutoConfig.for_model(**{**values, **changed})
    config.use_cache = False
    return config


class Data(torch.utils.data.Dataset):
    def __init__(self, length):
        self.ids = torch.zeros(length, dtype=torch.long)

    def __len__(self):
        return 1 << 16

    def __getitem__(self, _):
        return {"input_ids": self.ids, "labels": self.ids}


class Offloading(transformers.Trainer):
    """With TRL's hooks around a step, as axolotl has them (its ActivationOffloadingMixin)."""

    def __init__(self, *arguments, **named):
        from trl.models import get_act_offloading_ctx_manager

        super().__init__(*arguments, **named)
        self.hooks = get_act_offloading_ctx_manager(self.model, use_streams=True)

    def training_step(self, *arguments, **named):
        with self.hooks:
            return super().training_step(*arguments, **named)


def adapted(model, row):
    import peft
    import tuners

    return peft.get_peft_model(model, tuners.adapter_of(row))


def main():
    values, row = load(sys.argv[1]), load(sys.argv[2])
    choose_kernels(row, values)
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(**arguments_of(row, folder))
        adapts = bool(row.get("adapter"))
        narrow = adapts or row["precision"] == "bf16-pure"
        model = transformers.AutoModelForCausalLM.from_config(
            config_of(values, row), dtype=torch.bfloat16 if narrow else torch.float32)
        freeze(model, row)
        if adapts:
            model = adapted(model, row)
        trainer = Offloading if row.get("offload") == "activations" else transformers.Trainer
        trainer(model, arguments, train_dataset=Data(int(row["sequence"]))).train()


if __name__ == "__main__":
    main()
