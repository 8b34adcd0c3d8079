#!/usr/bin/env python3
"""Deals the rows of ../data/phantom_liger.csv, before anything is known of them: the same each time.

    deal_liger.py      prints the rows as CSV, without what they held
    fill.py OUT.csv    runs them

Models of transformers with Liger's kernels: norms, rotation, gated activations, and the head in one
kernel with the loss, or apart from it (`liger` fused, own). Every third row of a group is kept
back: the model is not mended by it (`kept_back`).
"""

import deal

SEED = 20261126
COLUMNS = (*deal.COLUMNS[:-1], "liger", "kept_back")
MODELS = (
    ("llama-3.2-1b", 0), ("qwen2.5-0.5b", 0), ("qwen2.5-1.5b", 8), ("qwen3-1.7b", 8),
    ("qwen3-8b", 4), ("llama-3.1-8b", 4), ("mistral-7b-v0.3", 6), ("qwen2.5-7b", 4),
    ("gemma-2b", 6), ("tinyllama-1.1b", 0), ("smollm2-360m", 0), ("phi-3-mini", 6),
)
# Wrapper, trainer, rows, and the precisions that are dealt.
WHOLE = ("bf16-autocast", "bf16-autocast", "bf16-pure", "fp32")
GROUPS = (
    ("n", "none", "", 12, WHOLE),
    ("d", "ddp", "", 6, WHOLE),
    ("f", "fsdp1", "", 9, ("bf16-mixed", "bf16-mixed", "bf16-pure")),
    ("h", "fsdp2", "hf-trainer", 6, ("bf16-mixed",)),
    ("z", "zero2", "", 6, ("bf16-mixed",)),
    ("y", "zero3", "hf-trainer", 6, ("bf16-mixed",)),
    ("t", "none", "trl", 15, WHOLE),
)
TARGETS = ("q_proj+v_proj", "q_proj+k_proj+v_proj+o_proj", "all-linear")


def _row(dealer, name, group):
    _, wrapper, trainer, _, precisions = group
    config, layers = dealer.choice(MODELS)
    sequence = dealer.choice((512, 1000, 2048, 4096))
    precision = dealer.choice(precisions)
    adapter = (f"lora r={dealer.choice((8, 16, 64))} targets={dealer.choice(TARGETS)} "
               f"dropout={dealer.choice(('0.0', '0.05'))} dtype=fp32")
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
