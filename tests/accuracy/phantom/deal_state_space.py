#!/usr/bin/env python3
"""Deals the rows of ../data/phantom_state_space.csv, before anything is known of them: the same each
time.

    deal_state_space.py     prints the rows as CSV, without what they held
    fill.py OUT.csv         runs them, with the packages that state_space.sh lays out

Models with state-space layers: all of their layers in bamba's first eight, all but one in Granite's
six and more, one sublayer a layer in Nemotron's. Every third row of a group is kept back: the model
is not mended by it (`kept_back`).
"""

import deal

SEED = 20261128
COLUMNS = deal.COLUMNS
MODELS = (
    ("bamba-9b", 4), ("bamba-9b", 10), ("granite-4-h-micro", 8), ("granite-4-h-micro", 0),
    ("granite-4-h-tiny", 8), ("nemotron-h-8b", 8), ("nemotron-h-8b", 15),
    ("nemotron-3-nano-30b-a3b", 7),
)
EXPERTS = ("granite-4-h-tiny", "nemotron-3-nano-30b-a3b")
# Wrapper, trainer, rows, and the precisions that are dealt.
GROUPS = (
    ("n", "none", "", 12, ("bf16-pure", "bf16-pure", "bf16-autocast", "fp32")),
    ("d", "ddp", "", 6, ("bf16-pure", "bf16-autocast")),
    ("f", "fsdp2", "", 12, ("bf16-mixed", "bf16-mixed", "bf16-pure")),
    ("g", "fsdp1", "", 6, ("bf16-mixed",)),
    ("z", "zero2", "", 3, ("bf16-mixed",)),
    ("y", "zero3", "", 3, ("bf16-mixed",)),
    ("h", "fsdp2", "hf-trainer", 9, ("bf16-mixed",)),
)


def row_of(dealer, identity, group, models):
    """A row of one of the models; its id is said."""
    _, wrapper, trainer, _, precisions = group
    config, layers = dealer.choice(models)
    sequence = dealer.choice((512, 1000, 2048, 4096))
    precision = dealer.choice(precisions)
    reduce = "bf16" if trainer or wrapper.startswith("zero") else dealer.choice(("fp32", "bf16"))
    return {
        "id": identity, "config": config, "layers": layers,
        "precision": precision, "reduce": reduce if precision == "bf16-mixed" else "",
        **deal.placed(dealer, group, (2, 8, 16, 64), sequence), "kernel": "auto",
        "checkpointing": dealer.choice((True, False)), "optimizer": "adamw",
        "clip": dealer.choice((True, True, False)), "adapter": "", "preference": "",
    }


def _row(dealer, name, group):
    dense = [row for row in MODELS if row[0] not in EXPERTS]
    models = dense if group[1] == "zero3" else MODELS
    return row_of(dealer, f"phantom-ss-{name}", group, models)


def rows():
    return deal.deal(SEED, GROUPS, _row)


if __name__ == "__main__":
    deal.write(rows(), COLUMNS)
