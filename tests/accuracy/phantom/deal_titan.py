#!/usr/bin/env python3
"""Deals the rows of ../data/phantom_titan.csv, before anything is known of them: the same each time.

    deal_titan.py      prints the rows as CSV, without what they held
    fill.py OUT.csv    runs them

torchtitan's own trainer, whose attention over several documents wants another package on a Hopper
GPU: these run on an A100. Every third row of a group is kept back: the model is not mended by it
(`kept_back`).
"""

import deal

SEED = 20261127
COLUMNS = [*deal.COLUMNS, "recompute"]
MODELS = (("llama-3.1-8b", 4), ("llama-3.1-8b", 6), ("qwen3-8b", 4), ("qwen3-0.6b", 0),
          ("qwen3-1.7b", 8), ("qwen3-4b", 6))
# Wrapper, trainer, rows, and degrees of tensor parallelism that are dealt.
GROUPS = (
    ("f", "fsdp2", "torchtitan 0.3", 24, (1,)),
    ("t", "fsdp2", "torchtitan 0.3", 9, (2, 4)),
)


def _row(dealer, name, group):
    _, wrapper, trainer, _, degrees = group
    config, layers = dealer.choice(MODELS)
    return {
        "id": f"phantom-titan-{name}", "unit": "B", "torch": "2.15", "config": config,
        "layers": layers, "wrapper": wrapper, "world": dealer.choice((4, 8, 16, 64)),
        "tp": dealer.choice(degrees), "precision": "bf16-mixed", "reduce": "fp32",
        "reshard": True, "bucket_view": False, "micro_batch": dealer.choice((1, 1, 2)),
        "sequence": dealer.choice((1024, 2048, 4096, 8192)),
        "accumulate": dealer.choice((1, 1, 1, 2)), "kernel": "auto",
        "recompute": dealer.choice(("none", "per-op", "full")), "optimizer": "adamw",
        "implementation": "fused", "clip": True, "trainer": trainer,
        "loss": dealer.choice(("chunked", "chunked", "plain")),
    }


def rows():
    return deal.deal(SEED, GROUPS, _row)


if __name__ == "__main__":
    deal.write(rows(), COLUMNS)
