#!/usr/bin/env python3
"""Deals the rows of ../data/phantom_liger.csv, before anything is known of them: the same each time.

    deal_liger.py      prints the rows as CSV, without what they held
    fill.py OUT.csv    runs them

Models of transformers with Liger's kernels: norms, rotation, gated activations, and the head in one
kernel with the loss, or apart from it (`liger` fused, own). Every third row of a group is kept
back: the model is not mended by it (`kept_back`).
"""

import deal
import deal_tuning

SEED = 20261126
COLUMNS = (*deal.COLUMNS[:-1], "liger", "kept_back")
# Wrapper, trainer, rows, and the precisions that are dealt.
WHOLE = deal_tuning.WHOLE
GROUPS = (
    ("n", "none", "", 12, WHOLE),
    ("d", "ddp", "", 6, WHOLE),
    ("f", "fsdp1", "", 9, ("bf16-mixed", "bf16-mixed", "bf16-pure")),
    ("h", "fsdp2", "hf-trainer", 6, ("bf16-mixed",)),
    ("z", "zero2", "", 6, ("bf16-mixed",)),
    ("y", "zero3", "hf-trainer", 6, ("bf16-mixed",)),
    ("t", "none", "trl", 15, WHOLE),
)


def _row(dealer, name, group):
    _, wrapper, trainer, _, precisions = group
    config, layers = dealer.choice(deal_tuning.MODELS)
    sequence = dealer.choice((512, 1000, 2048, 4096))
    precision = dealer.choice(precisions)
    adapter = deal.lora(dealer, deal.TARGETS)
    adapts = trainer == "trl" and dealer.choice((True, True, False))
    reduce = "bf16" if trainer or wrapper.startswith("zero") else dealer.choice(("fp32", "bf16"))
    liger = dealer.choice(("fused", "fused", "own"))
    return {
        "id": f"phantom-lg-{name}", "config": config, "layers": layers,
        "precision": precision, "reduce": reduce if precision == "bf16-mixed" else "",
        **deal.placed(dealer, group, (2, 4, 8, 64), min(sequence, deal.LONGEST.get(config, 4096))),
        "kernel": "auto", "checkpointing": dealer.choice((True, False)), "optimizer": "adamw",
        "clip": dealer.choice((True, True, False)), "adapter": adapter if adapts else "",
        "preference": "", "liger": liger,
    }


def rows():
    return deal.deal(SEED, GROUPS, _row)


if __name__ == "__main__":
    deal.write(rows(), COLUMNS)
