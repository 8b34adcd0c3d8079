#!/usr/bin/env python3
"""Deals the rows of ../data/phantom_megatron_fsdp.csv, before anything is known of them: the same
each time.

    deal_megatron_fsdp.py   prints the rows as CSV, without what they held
    fill.py OUT.csv         runs them, with Megatron-Core of a row's `release` in the folder
                            MEGATRON_PACKAGES/release

Megatron-FSDP under Megatron-Core's own layers: gradients are sharded, or weights too. Every third
row of a group is kept back: the model is not mended by it (`kept_back`).
"""

import deal
import deal_megatron

SEED = 20261129
COLUMNS = [*deal_megatron.COLUMNS, "strategy", "overlap", "release"]
UNTIED = (("qwen3-8b", True), ("mistral-7b-v0.3", False))
# Wrapper, trainer, rows, and models.
GROUPS = (
    ("d", "megatron", "megatron", 18, (*deal_megatron.DENSE, *UNTIED)),
    ("x", "megatron", "megatron", 3, deal_megatron.ROUTED),
)


def _row(dealer, name, group):
    config, norms = dealer.choice(group[4])
    routed = group[0] == "x"
    modules = ("core_attn", "layernorm", "moe") if routed else ("core_attn", "mlp", "layernorm")
    tensor, data = dealer.choice((1, 1, 2, 4)), dealer.choice((2, 4, 8, 16))
    sizes = [size for size in (1, 2, 4, 8) if size <= data * tensor]
    sequence = dealer.choice((512, 1024, 2048, 4096))
    return {
        "id": f"phantom-mf-{name}", "unit": "B", "torch": "2.15", "config": config,
        "layers": 4 if routed else dealer.choice((4, 4, 8, 12)), "wrapper": "megatron",
        "precision": "bf16-mixed", "reduce": dealer.choice(("fp32", "fp32", "bf16")),
        "trainer": "megatron", "tp": tensor, "pp": 1, "world": data, "rank": 0,
        "ep": dealer.choice(sizes) if routed else 1, "etp": 1, "sequence": sequence,
        "micro_batch": dealer.choice([count for count in (1, 2, 4) if count * sequence <= 4096]),
        "accumulate": dealer.choice((1, 2, 4)), "kernel": "eager",
        "recompute": dealer.choice(("none", "none", "full", "full", *modules)),
        "optimizer": "adamw", "implementation": "fused", "clip": True, "qk_norm": norms,
        "distributed_optimizer": True,
        "strategy": dealer.choice(("optim_grads_params",) * 4 + ("optim_grads",)),
        "overlap": dealer.choice((True, False)), "release": dealer.choice(("0.16", "0.19")),
    }


def rows():
    return deal.deal(SEED, GROUPS, _row)


if __name__ == "__main__":
    deal.write(rows(), COLUMNS)
