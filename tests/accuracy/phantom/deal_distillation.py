#!/usr/bin/env python3
"""Deals the rows of ../data/phantom_distillation.csv, before anything is known of them: the same each
time.

    deal_distillation.py   prints the rows as CSV, without what they held
    fill.py OUT.csv        runs them

TRL's GKDTrainer, with adapters and without. Every third row of a group is kept back: the model is
not mended by it (`kept_back`).
"""

import deal

SEED = 20261129
COLUMNS = deal.COLUMNS
# A student, how many of its layers, and its teacher, whole.
PAIRS = (
    ("qwen2.5-0.5b", 0, "qwen2.5-1.5b"), ("qwen2.5-0.5b", 12, "qwen2.5-1.5b"),
    ("qwen3-0.6b", 0, "qwen3-1.7b"), ("qwen3-0.6b", 0, "qwen3-4b"), ("qwen3-1.7b", 8, "qwen3-4b"),
    ("llama-3.2-1b", 0, "llama-3.1-8b"), ("llama-3.2-1b", 8, "llama-3.2-1b"),
)
# Wrapper, trainer, rows, and the precisions that are dealt.
WHOLE = ("bf16-autocast", "bf16-autocast", "bf16-pure", "fp32")
GROUPS = (("n", "none", "trl", 18, WHOLE), ("d", "ddp", "trl", 9, WHOLE),
          ("z", "zero2", "trl", 6, ("bf16-mixed",)))


def _row(dealer, name, group):
    _, _, _, _, precisions = group
    config, layers, teacher = dealer.choice(PAIRS)
    beta = dealer.choice(("0.5", "0.5", "0.0", "1.0"))
    adapter = deal.lora(dealer, deal.TARGETS)
    return {
        "id": f"phantom-gkd-{name}", "config": config, "layers": layers,
        "precision": dealer.choice(precisions),
        "reduce": "bf16" if group[1] == "zero2" else "",
        **deal.placed(dealer, group, (2, 4, 8), dealer.choice((512, 1024, 2048))),
        "kernel": "auto", "checkpointing": dealer.choice((True, False)), "optimizer": "adamw",
        "clip": dealer.choice((True, True, False)), "preference": f"gkd teacher={teacher} beta={beta}",
        "adapter": adapter if dealer.choice((True, False)) else "",
    }


def rows():
    return deal.deal(SEED, GROUPS, _row)


if __name__ == "__main__":
    deal.write(rows())
