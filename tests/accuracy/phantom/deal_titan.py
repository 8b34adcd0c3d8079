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
COLUMNS = [*deal.COLUMNS, "recompute", "ep"]
MODELS = (("llama-3.1-8b", 4), ("llama-3.1-8b", 6), ("qwen3-8b", 4), ("qwen3-0.6b", 0),
          ("qwen3-1.7b", 8), ("qwen3-4b", 6))
EXPERTS = (("qwen3-30b-a3b", 2), ("qwen3-30b-a3b", 4), ("qwen3-30b-a3b", 6),
           ("qwen3-235b-a22b", 2), ("qwen3-235b-a22b", 3))
# Latent attention, by a compiled kernel: a first layer without experts.
LATENT = (("deepseek-v2-lite", 2), ("deepseek-v2-lite", 4), ("deepseek-v2-lite", 6))
# Wrapper, trainer, rows, and degrees of tensor parallelism that are dealt; of models with experts
# ranks that have other ones.
GROUPS = (
    ("f", "fsdp2", "torchtitan 0.3", 24, (1,)),
    ("t", "fsdp2", "torchtitan 0.3", 9, (2, 4)),
    ("e", "fsdp2", "torchtitan 0.3", 9, (1,)),
    ("s", "fsdp2", "torchtitan 0.3", 18, (2, 4, 8)),
    ("l", "fsdp2", "torchtitan 0.3", 12, (1, 2, 8)),
)


def _experts(dealer, name, group):
    config, layers = dealer.choice(LATENT if group[0] == "l" else EXPERTS)
    latent = group[0] == "l"
    return _of(name, group, {
        "config": config, "layers": layers, "world": dealer.choice((8, 16, 64, 256)), "tp": 1,
        "micro_batch": dealer.choice((1, 1, 2)),
        "sequence": dealer.choice((1024, 2048, 4096) if latent else (1024, 2048, 4096, 8192)),
        "accumulate": dealer.choice((1, 1, 1, 2)),
        "recompute": dealer.choice(("none", "per-op", "full")),
        "loss": dealer.choice(("chunked", "chunked", "plain")), "ep": dealer.choice(group[4]),
    })


def _of(name, group, dealt):
    return {
        "id": f"phantom-titan-{name}", "unit": "B", "torch": "2.15", "wrapper": group[1],
        "precision": "bf16-mixed", "reduce": "fp32", "reshard": True, "bucket_view": False,
        "kernel": "auto", "optimizer": "adamw", "implementation": "fused", "clip": True,
        "trainer": group[2], **dealt,
    }


def _row(dealer, name, group):
    if group[0] in ("e", "s", "l"):
        return _experts(dealer, name, group)
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
