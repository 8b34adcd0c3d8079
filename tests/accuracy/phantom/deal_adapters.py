#!/usr/bin/env python3
"""Deals the rows of ../data/phantom_adapters.csv, before anything is known of them: the same each
time.

    deal_adapters.py   prints the rows as CSV, without what they held
    fill.py OUT.csv    runs them

TRL's SFT with adapters where nothing was held before: on models with experts and with latent
attention, on weights that bitsandbytes keeps in fewer bits, and DoRA; and preferences on
models with experts or latent attention. Every third row of a group is kept back: the model is not
mended by it (`kept_back`).
"""

import deal
import deal_tuning

SEED = 20261126
COLUMNS = deal.COLUMNS
# Configuration, and how many of its layers.
EXPERTS = (
    ("qwen3-30b-a3b", 2), ("qwen3-30b-a3b", 4), ("gpt-oss-20b", 2), ("gpt-oss-20b", 4),
    ("mixtral-8x7b", 1), ("mixtral-8x7b", 2), ("olmoe-1b-7b", 4), ("qwen1.5-moe-a2.7b", 3),
)
LATENT = (
    ("deepseek-v2-lite", 2), ("deepseek-v2-lite", 3), ("moonlight-16b-a3b", 3), ("youtu-llm-2b", 6),
    ("youtu-llm-2b", 0),
)
DENSE = deal_tuning.MODELS
LATENT_TARGETS = ("kv_a_proj_with_mqa+kv_b_proj", "kv_a_proj_with_mqa+kv_b_proj+o_proj", "all-linear")
SINKS = ("gpt-oss-20b",)
# Wrapper, trainer, rows, and the precisions that are dealt.
HALF = ("bf16-autocast", "bf16-autocast", "bf16-pure")
GROUPS = (
    ("e", "none", "trl", 15, HALF),
    ("ed", "ddp", "trl", 6, HALF),
    ("l", "none", "trl", 12, HALF),
    ("ld", "ddp", "trl", 6, HALF),
    ("q", "none", "trl", 12, HALF),
    ("qd", "ddp", "trl", 6, HALF),
    ("o", "none", "trl", 15, HALF),
    ("od", "ddp", "trl", 6, HALF),
    ("qf", "fsdp2", "trl", 9, ("bf16-pure",)),
    ("qz", "zero2", "trl", 6, ("bf16-mixed",)),
    ("qy", "zero1", "trl", 3, ("bf16-mixed",)),
    ("p", "none", "trl", 12, HALF),
    ("b", "none", "trl", 12, HALF),
    ("bd", "ddp", "trl", 3, HALF),
)
MODELS = {"e": EXPERTS, "l": LATENT, "q": DENSE, "o": DENSE, "p": EXPERTS + LATENT,
          "b": DENSE}
FORMATS = ("nf4", "nf4", "nf4", "fp4", "int8")


def _quantization(dealer, kind):
    """Of some rows, of all of group q, and of b in 8 bits."""
    if kind == "b":
        return "int8 double=False compute=bf16 rest=bf16"
    form, double = dealer.choice(FORMATS), dealer.choice((True, True, False))
    if not dealer.choice((True, False)) and kind != "q":
        return ""
    return f"{form} double={double and form != 'int8'} compute=bf16 rest=bf16"


def _paired(dealer, name, group):
    """Preferences on these models, with adapters of attention or without."""
    config, layers = dealer.choice([model for model in MODELS["p"] if model[1]])
    method = dealer.choice(("dpo", "dpo", "kto"))
    reference = dealer.choice(("model", "precomputed"))
    targets = "kv_b_proj+o_proj" if (config, layers) in LATENT else "q_proj+v_proj"
    adapter = deal.lora(dealer, (targets,)) if dealer.choice((True, False)) else ""
    place = deal.placed(dealer, group, (1,), dealer.choice((512, 1000)))
    return {
        "id": f"phantom-ad-{name}", "config": config, "layers": layers,
        "precision": dealer.choice(group[4]), "reduce": "", "transformers": "5.23.0", **place,
        "micro_batch": max(place["micro_batch"], 2), "kernel": "eager" if config in SINKS else "auto",
        "checkpointing": dealer.choice((True, False)), "optimizer": "adamw", "clip": True,
        "adapter": adapter, "quantization": "",
        "preference": f"{method} reference={'adapters-off' if adapter else reference}",
    }


def _row(dealer, name, group):
    kind = group[0][0]
    if kind == "p":
        return _paired(dealer, name, group)
    config, layers = dealer.choice(MODELS[kind])
    sequence = dealer.choice((512, 1000, 2048, 4096))
    adapter = deal.lora(dealer, LATENT_TARGETS if kind == "l" else deal.TARGETS)
    quantization = _quantization(dealer, kind)
    engine = group[1].startswith("zero")
    if quantization and not engine:  # TRL narrows them, DeepSpeed has masters
        adapter = adapter.replace("dtype=fp32", "dtype=bf16")
    if kind == "o":
        adapter = adapter.replace("lora", "dora")
    return {
        "id": f"phantom-ad-{name}", "config": config, "layers": layers,
        "precision": dealer.choice(group[4]), "reduce": "bf16" if engine else "",
        "transformers": "5.23.0",
        **deal.placed(dealer, group, (2, 4, 8, 64), min(sequence, deal.LONGEST.get(config, 4096))),
        "kernel": "eager" if config in SINKS else "auto",
        "checkpointing": dealer.choice((True, False)), "optimizer": "adamw",
        "clip": dealer.choice((True, True, False)), "adapter": adapter,
        "quantization": quantization, "preference": "",
    }


def rows():
    return deal.deal(SEED, GROUPS, _row)


if __name__ == "__main__":
    deal.write(rows())
