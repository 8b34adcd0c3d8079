#!/usr/bin/env python3
"""Deals the rows of ../data/phantom_experts.csv, before anything is known of them: the same each
time.

    deal_experts.py    prints the rows as CSV, without what they held
    fill.py OUT.csv    runs them

Classes with routers, clamps and sinks of their own: gpt-oss, GLM-4.5, dots.llm1, MiniMax-M2, Solar
Open and Hunyuan 3; dealt later, Granite's, of which `granite-moe-shared` is the 3B's with a shared
expert. Every third row of a group is kept back: the model is not mended by it (`kept_back`). Rows
that ask for more than an H100 has do not run.
"""

import deal

SEED = 20261126
COLUMNS = deal.COLUMNS
# Configuration, and how many of its layers.
MODELS = (
    ("gpt-oss-20b", 2), ("gpt-oss-20b", 4), ("gpt-oss-20b", 6), ("glm-4.5-air", 2),
    ("glm-4.5-air", 3), ("dots.llm1", 3), ("minimax-m2", 1), ("solar-open-100b", 2),
    ("hy3-preview", 2),
)
SINKS = ("gpt-oss-20b",)
# Wrapper, trainer, rows, and the precisions that are dealt.
GROUPS = (
    ("n", "none", "", 15, ("bf16-pure", "bf16-pure", "bf16-autocast", "fp32")),
    ("d", "ddp", "", 6, ("bf16-pure", "bf16-autocast")),
    ("f", "fsdp2", "", 9, ("bf16-mixed", "bf16-mixed", "bf16-pure")),
    ("g", "fsdp1", "", 6, ("bf16-mixed",)),
    ("z", "zero2", "", 6, ("bf16-mixed",)),
    ("h", "fsdp2", "hf-trainer", 6, ("bf16-mixed",)),
    ("t", "none", "trl", 9, ("bf16-pure", "bf16-pure", "bf16-autocast")),
)

LATER_SEED = 20261128
LATER = (("granite-3.1-1b-a400m", 0), ("granite-3.1-3b-a800m", 8), ("granite-moe-shared", 6))
LATER_GROUPS = (
    ("ln", "none", "", 6, ("bf16-pure", "bf16-autocast", "fp32")),
    ("lf", "fsdp2", "", 3, ("bf16-mixed",)),
    ("lh", "fsdp2", "hf-trainer", 3, ("bf16-mixed",)),
    ("lt", "none", "trl", 6, ("bf16-pure", "bf16-autocast")),
)


def _row(dealer, name, group):
    return _row_of(MODELS, dealer, name, group)


def _later_row(dealer, name, group):
    return _row_of(LATER, dealer, name, group)


def _row_of(models, dealer, name, group):
    _, wrapper, trainer, _, precisions = group
    config, layers = dealer.choice(models)
    sequence = dealer.choice((512, 1000, 2048, 4096))
    precision = dealer.choice(precisions)
    targets = dealer.choice(deal.TARGETS if config in SINKS else deal.TARGETS[:2])
    adapter = (f"lora r={dealer.choice((8, 16, 64))} targets={targets} "
               f"dropout={dealer.choice(('0.0', '0.05'))} dtype=fp32")
    adapts = trainer == "trl" and dealer.choice((True, True, False))
    reduce = "bf16" if trainer or wrapper.startswith("zero") else dealer.choice(("fp32", "bf16"))
    return {
        "id": f"phantom-ex-{name}", "config": config, "layers": layers,
        "precision": precision, "reduce": reduce if precision == "bf16-mixed" else "",
        **deal.placed(dealer, group, (4, 8, 16, 64), sequence),
        "kernel": "eager" if config in SINKS else "auto",
        "checkpointing": dealer.choice((True, False)),
        "optimizer": "adamw" if trainer else dealer.choice(("adamw", "sgd")),
        "clip": dealer.choice((True, True, False)), "adapter": adapter if adapts else "",
        "preference": "",
    }


def rows():
    return deal.deal(SEED, GROUPS, _row) + deal.deal(LATER_SEED, LATER_GROUPS, _later_row)


if __name__ == "__main__":
    deal.write(rows())
