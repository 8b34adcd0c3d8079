#!/usr/bin/env python3
"""Deals the rows of ../data/phantom_megatron.csv, before anything is known of them: the same each
time.

    deal_megatron.py   prints the rows as CSV, without what they held
    fill.py OUT.csv    runs them, with Megatron-Core in the folder MEGATRON_PACKAGES

Megatron-Core 0.16's own layers: stages of a pipeline, experts on other ranks, modules that run
again; in the group t a layer that predicts one token further, on the last stage. Every third row of a group is kept back: the model is not mended by it (`kept_back`).
"""

import deal

SEED = 20261128
COLUMNS = [*deal.COLUMNS, "recompute", "rank", "pp", "ep", "etp", "qk_norm",
           "distributed_optimizer", "mtp"]
DENSE = (("llama-3.2-1b", False), ("llama-3.1-8b", False), ("qwen3-1.7b", True))
ROUTED = (("mixtral-8x7b", False), ("qwen3-30b-a3b", True), ("dots.llm1", True))
MODULES = ("core_attn", "mlp", "layernorm", "layernorm+mlp", "core_attn+layernorm")
OF_EXPERTS = ("core_attn", "layernorm", "moe", "moe+layernorm", "core_attn+moe", "mlp")
SHARED = ("shared_experts", "shared_experts+layernorm")
# Wrapper, trainer, rows, and models.
GROUPS = (
    ("d", "megatron", "megatron", 21, DENSE),
    ("x", "megatron", "megatron", 36, ROUTED),
    ("t", "megatron", "megatron", 24, (DENSE[1], *ROUTED)),  # untied
)


def _split(dealer, group, routed):
    """Degrees of a row whose layers, four, and heads they divide."""
    tensor, stages = dealer.choice((1, 1, 2, 4)), dealer.choice((1, 1, 2, 4))
    data = dealer.choice((2, 4, 8))
    experts = dealer.choice([size for size in (1, 2, 4, 8) if size <= data]) if routed else 1
    wide = dealer.choice((1, tensor)) if routed else 1
    if routed and wide == 1:  # experts are on as many ranks, or more
        experts = dealer.choice([size for size in (2, 4, 8) if size <= data * tensor])
    stage = stages - 1 if group[0] == "t" else dealer.choice(range(stages))
    return {"tp": tensor, "pp": stages, "ep": experts, "etp": wide, "world": data * stages,
            "rank": stage * data * tensor}


def _row(dealer, name, group):
    config, norms = dealer.choice(group[4])
    routed = (config, norms) in ROUTED
    modules = OF_EXPERTS if routed else MODULES
    if config == "dots.llm1":
        modules += SHARED
    sequence = dealer.choice((512, 1024, 2048, 4096))
    return {
        "id": f"phantom-mg-{name}", "unit": "B", "torch": "2.15", "config": config, "layers": 4,
        "wrapper": "megatron", "precision": "bf16-mixed", "reduce": "fp32", "trainer": "megatron",
        **_split(dealer, group, routed), "sequence": sequence,
        "micro_batch": dealer.choice([count for count in (1, 2, 4) if count * sequence <= 4096]),
        "accumulate": dealer.choice((1, 2, 4, 8)), "kernel": "eager",
        "recompute": dealer.choice(("none", "full", *modules, *modules)), "optimizer": "adamw",
        "implementation": "fused", "clip": True, "qk_norm": norms,
        "distributed_optimizer": dealer.choice((True, True, False)),
        "mtp": 1 if group[0] == "t" else "",
    }


def rows():
    return deal.deal(SEED, GROUPS, _row)


if __name__ == "__main__":
    deal.write(rows(), COLUMNS)
