#!/usr/bin/env python3
"""Deals the rows of ../data/phantom_frozen.csv, before anything is known of them: the same each time.

    deal_frozen.py     prints the rows as CSV, without what they held
    fill.py OUT.csv    runs them

Models of which a part is trained: of some modules, of the last layers, or both (`trained`). Every
third row of a group is kept back: the model is not mended by it (`kept_back`).
"""

import deal
import deal_tuning

SEED = 20261127
COLUMNS = (*deal.COLUMNS[:-1], "trained", "kept_back")
# Wrapper, trainer, rows, and the precisions that are dealt.
GROUPS = (
    ("n", "none", "", 12, deal_tuning.WHOLE),
    ("d", "ddp", "", 6, deal_tuning.WHOLE),
    ("f", "fsdp2", "", 9, ("bf16-mixed", "bf16-mixed", "fp32")),
    ("h", "fsdp2", "hf-trainer", 6, ("bf16-mixed",)),
    ("z", "zero2", "", 6, ("bf16-mixed",)),
    ("y", "zero3", "", 6, ("bf16-mixed",)),
    ("t", "none", "hf-trainer", 6, ("bf16-autocast", "bf16-autocast", "fp32")),
    ("r", "none", "trl", 6, deal_tuning.WHOLE),
    ("rh", "fsdp2", "trl", 3, ("bf16-mixed",)),
    ("rz", "zero2", "trl", 3, ("bf16-mixed",)),
    ("g", "fsdp1", "", 9, ("bf16-mixed", "bf16-mixed", "fp32")),
)
ALL = "attention+mlp+norm+bias"
TRAINED = ("attention", "mlp", "norm", f"{ALL}+head", f"{ALL} last=2", f"{ALL}+head last=4", "mlp last=2",
           "embedding+head", f"{ALL}+embedding+head last=2")
WITH_BIASES = ("qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-7b")


def _row(dealer, name, group):
    _, wrapper, trainer, _, precisions = group
    config, layers = dealer.choice(deal_tuning.MODELS)
    sequence = dealer.choice((512, 1000, 2048))
    precision = dealer.choice(precisions)
    biases = ("bias",) * 3 if config in WITH_BIASES else ()
    reduce = "bf16" if trainer or wrapper.startswith("zero") else dealer.choice(("fp32", "bf16"))
    return {
        "id": f"phantom-fz-{name}", "config": config, "layers": layers,
        "precision": precision, "reduce": reduce if precision == "bf16-mixed" else "",
        **deal.placed(dealer, group, (2, 4, 8, 64), sequence),
        "kernel": "auto", "checkpointing": dealer.choice((True, False)), "optimizer": "adamw",
        "clip": dealer.choice((True, True, False)), "adapter": "", "preference": "",
        "trained": dealer.choice((*TRAINED, *biases)),
    }


def rows():
    return deal.deal(SEED, GROUPS, _row)


if __name__ == "__main__":
    deal.write(rows(), COLUMNS)
