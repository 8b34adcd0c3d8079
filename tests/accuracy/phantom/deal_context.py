#!/usr/bin/env python3
"""Deals the rows of ../data/phantom_context.csv, before anything is known of them: the same each
time.

    deal_context.py    prints the rows as CSV, without what they held
    fill.py OUT.csv    runs them

Ranks that split sequences by torch's context_parallel, in a loop of one's own and under Hugging
Face's Trainer; what is measured is one of those ranks. Every third row of a group is kept back: the
model is not mended by it (`kept_back`).
"""

import deal

SEED = 20261126
COLUMNS = [*deal.COLUMNS, "cp", "method", "rank"]
MODELS = (
    ("llama-3.2-1b", 0), ("qwen2.5-0.5b", 0), ("qwen2.5-1.5b", 8), ("qwen3-1.7b", 8),
    ("qwen3-8b", 4), ("llama-3.1-8b-8k", 4), ("qwen2.5-7b", 4), ("olmo-2-1b", 8),
    ("smollm2-360m", 0), ("tinyllama-1.1b", 0), ("mistral-7b-v0.3", 6), ("smollm3-3b", 6),
)
# Wrapper, trainer, rows, and the precisions that are dealt.
GROUPS = (
    ("f", "fsdp2", "", 21, ("bf16-mixed", "bf16-mixed", "bf16-pure", "fp32")),
    ("h", "fsdp2", "hf-trainer", 21, ("bf16-mixed",)),
)


def _row(dealer, name, group):
    _, wrapper, trainer, _, precisions = group
    config, layers = dealer.choice(MODELS)
    contexts = dealer.choice((2, 4, 8))
    # Choices of one value are draws of the seed's first dealing, so that what follows is as it was.
    precision = dealer.choice(precisions)
    reduce = "bf16" if trainer else dealer.choice(("fp32", "bf16"))
    return {
        "id": f"phantom-cp-{name}", "unit": "B", "torch": "2.15", "transformers": "5.23.0",
        "config": config, "layers": layers, "wrapper": wrapper,
        "units": "ends" if trainer else dealer.choice(("root", "root")),
        "world": dealer.choice((8, 16, 64)), "tp": 1, "precision": precision,
        "reduce": reduce if precision == "bf16-mixed" else "", "reshard": True,
        "bucket_view": False, "micro_batch": dealer.choice((1, 1, 1, 2)),
        "sequence": contexts * dealer.choice((512, 1024, 2048, 4096)),
        "accumulate": dealer.choice((1, 1, 1, 2) if trainer else (1, 1, 1, 1)), "kernel": "auto",
        "checkpointing": dealer.choice((True, False)), "optimizer": "adamw",
        "implementation": "fused", "clip": dealer.choice((True, True, False)), "trainer": trainer,
        "cp": contexts, "method": dealer.choice(("allgather", "allgather", "alltoall")),
        "rank": dealer.randrange(contexts),
    }


def rows():
    return deal.deal(SEED, GROUPS, _row)


if __name__ == "__main__":
    deal.write(rows(), COLUMNS)
