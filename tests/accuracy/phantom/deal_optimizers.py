#!/usr/bin/env python3
"""Deals the rows of ../data/phantom_stepped.csv, before anything is known of them: the same each
time.

    deal_optimizers.py   prints the rows as CSV, without what they held
    fill.py OUT.csv      runs them

DeepSpeed 0.18.9's optimizers that send signs and its LAMB, and those of transformers' Trainer that
project gradients (galore-torch 1.0, apollo-torch 1.0.3). Every third row of a group is kept back:
the model is not mended by it (`kept_back`).
"""

import deal

SEED = 20261128
COLUMNS = deal.COLUMNS
OF_ENGINE = (
    ("bert-large-uncased", 0), ("bert-base-uncased", 0), ("gpt2-medium", 0), ("pythia-410m", 0),
    ("qwen2.5-0.5b", 0), ("llama-3.2-1b", 0), ("tinyllama-1.1b", 12), ("qwen3-1.7b", 8),
)
OF_TRAINER = (
    ("llama-3.2-1b", 0), ("qwen2.5-0.5b", 0), ("qwen2.5-1.5b", 8), ("qwen3-1.7b", 8),
    ("llama-3.1-8b", 4), ("mistral-7b-v0.3", 6), ("gemma-2b", 6), ("smollm2-360m", 0),
    ("olmo-2-1b", 0),
)
LONGEST = {"bert-large-uncased": 512, "bert-base-uncased": 512, **deal.LONGEST}
HALVES = ("bf16-mixed", "fp16-mixed")
WIDE = ("bf16-autocast", "bf16-autocast", "bf16-pure")
PROJECTING = ("galore-adamw", "apollo-adamw")
# Wrapper, trainer, rows, precisions and optimizers that are dealt.
GROUPS = (
    ("o", "zero0", "", 5, HALVES, ("onebit-adam",)),
    ("z", "zero0", "", 4, HALVES, ("zero-one-adam",)),
    ("b", "zero0", "", 4, HALVES, ("onebit-lamb",)),
    ("l", "zero0", "", 3, HALVES, ("lamb",)),
    ("g", "none", "hf-trainer", 6, WIDE, PROJECTING[:1]),
    ("a", "none", "hf-trainer", 6, WIDE, PROJECTING[1:]),
    ("d", "ddp", "hf-trainer", 3, ("bf16-autocast",), PROJECTING),
)


def _row(dealer, name, group):
    trainer = group[2]
    config, layers = dealer.choice(OF_TRAINER if trainer else OF_ENGINE)
    sequence = min(dealer.choice((128, 512, 1024)), LONGEST.get(config, 1024))
    optimizer = dealer.choice(group[5])
    rank = dealer.choice((16, 64, 128, 256))
    parts = dealer.choice(("attention+mlp", "attention+mlp", "attention", "all-linear"))
    if trainer:
        optimizer = f"rank={rank} of={parts} {optimizer}"
    return {
        "id": f"phantom-st-{name}", "config": config, "layers": layers,
        "precision": dealer.choice(group[4]), "reduce": "",
        **deal.placed(dealer, group[:5], (2, 4, 8, 12, 64), sequence),
        "kernel": "auto", "checkpointing": dealer.choice((True, False)), "optimizer": optimizer,
        "implementation": "", "clip": dealer.choice((True, True, False)),
    }


def rows():
    return deal.deal(SEED, GROUPS, _row)


if __name__ == "__main__":
    deal.write(rows())
