#!/usr/bin/env python3
"""Deals the rows of ../data/phantom_mamba.csv, before anything is known of them: the same each time.

    deal_mamba.py           prints the rows as CSV, without what they held
    fill.py OUT.csv         runs them, with the packages that state_space.sh lays out

Networks of state-space layers alone: Mamba 1, with norms on its steps and without, Mamba 2, and
Mamba 1 whose layers pass on what weights are in. Every third row of a group is kept back: the model
is not mended by it (`kept_back`).
"""

import deal
import deal_state_space

SEED = 20261129
COLUMNS = deal.COLUMNS
MODELS = (
    ("mamba-2.8b", 4), ("mamba-2.8b", 24), ("falcon-mamba-7b", 3), ("falcon-mamba-7b", 10),
    ("codestral-mamba-7b", 6), ("mamba-1.4b-narrow", 6), ("mamba-1.4b-narrow", 0),
)
# Wrapper, trainer, rows, and the precisions that are dealt.
GROUPS = (
    ("n", "none", "", 9, ("bf16-pure", "bf16-pure", "bf16-autocast", "fp32")),
    ("d", "ddp", "", 3, ("bf16-pure", "bf16-autocast")),
    ("f", "fsdp2", "", 9, ("bf16-mixed", "bf16-mixed", "bf16-pure")),
    ("g", "fsdp1", "", 3, ("bf16-mixed",)),
    ("z", "zero2", "", 3, ("bf16-mixed",)),
    ("h", "ddp", "hf-trainer", 3, ("bf16-autocast",)),
)


def _row(dealer, name, group):
    return deal_state_space.row_of(dealer, f"phantom-mb-{name}", group, MODELS)


def rows():
    return deal.deal(SEED, GROUPS, _row)


if __name__ == "__main__":
    deal.write(rows(), COLUMNS)
