#!/usr/bin/env python3
"""Deals the rows of ../data/phantom_linear.csv, before anything is known of them: the same each
time.

    deal_linear.py     prints the rows as CSV, without what they held
    fill.py OUT.csv    runs them

Models with gated delta networks in three of four layers: kernels of flash-linear-attention, and
Python's own way (`linear` torch: the package is hidden from the script). Every third row of a group
is kept back: the model is not mended by it (`kept_back`).
"""

import deal

SEED = 20261127
COLUMNS = [*deal.COLUMNS, "linear"]
MODELS = (
    ("qwen3.5-0.8b", 0), ("qwen3.5-0.8b", 8), ("qwen3.5-2b", 8), ("qwen3.5-4b", 8),
    ("qwen3.5-9b", 4), ("qwen3.5-35b-a3b", 4), ("qwen3-next-80b-a3b", 4),
)
# Wrapper, trainer, rows, and the precisions that are dealt.
WHOLE = ("bf16-pure", "bf16-pure", "bf16-autocast", "fp32")
GROUPS = (
    ("n", "none", "", 15, WHOLE),
    ("d", "ddp", "", 6, WHOLE),
    ("f", "fsdp2", "", 12, ("bf16-mixed", "bf16-mixed", "bf16-pure")),
    ("g", "fsdp1", "", 6, ("bf16-mixed",)),
    ("z", "zero2", "", 6, ("bf16-mixed",)),
    ("y", "zero3", "", 6, ("bf16-mixed",)),
    ("h", "fsdp2", "hf-trainer", 9, ("bf16-mixed",)),
    ("t", "none", "trl", 12, ("bf16-pure", "bf16-pure", "bf16-autocast")),
    ("on", "none", "", 9, WHOLE),
    ("of", "fsdp2", "", 6, ("bf16-mixed", "bf16-mixed", "bf16-pure")),
    ("og", "fsdp1", "", 3, ("bf16-mixed",)),
    ("oz", "zero2", "", 3, ("bf16-mixed",)),
    ("oy", "zero3", "", 3, ("bf16-mixed",)),
    ("oh", "fsdp2", "hf-trainer", 6, ("bf16-mixed",)),
)
# Of the groups whose names begin with o.
OLMO = (("olmo-hybrid-7b", 4), ("olmo-hybrid-7b", 8), ("olmo-hybrid-7b", 5))
TARGETS = ("q_proj+v_proj", "all-linear", "all-linear")


def _row(dealer, name, group):
    _, wrapper, trainer, _, precisions = group
    models = OLMO if group[0][0] == "o" else MODELS
    dense = [row for row in models if "-a3b" not in row[0]]
    adapts = trainer == "trl" and dealer.choice((True, True, False))
    config, layers = dealer.choice(dense if adapts or wrapper == "zero3" else models)
    sequence = dealer.choice((512, 1000, 2048, 4096))
    precision = dealer.choice(precisions)
    adapter = deal.lora(dealer, TARGETS)
    reduce = "bf16" if trainer or wrapper.startswith("zero") else dealer.choice(("fp32", "bf16"))
    return {
        "id": f"phantom-ln-{name}", "config": config, "layers": layers,
        "precision": precision, "reduce": reduce if precision == "bf16-mixed" else "",
        **deal.placed(dealer, group, (2, 8, 16, 64), sequence), "kernel": "auto",
        "checkpointing": dealer.choice((True, False)), "optimizer": "adamw",
        "clip": dealer.choice((True, True, False)), "adapter": adapter if adapts else "",
        "preference": "", "linear": dealer.choice(("fla", "fla", "torch")),
    }


def rows():
    return deal.deal(SEED, GROUPS, _row)


if __name__ == "__main__":
    deal.write(rows(), COLUMNS)
