#!/usr/bin/env python3
"""Deals the rows of ../data/phantom_automodel.csv, before anything is known of them: the same each
time.

    deal_automodel.py  prints the rows as CSV, without what they held
    fill.py OUT.csv    runs them

NeMo Automodel's recipe of fine-tuning, on one GPU and under FSDP2, of all weights and of adapters.
Every third row of a group is kept back: the model is not mended by it (`kept_back`).
"""

import deal

SEED = 20261128
COLUMNS = [*deal.COLUMNS, "kernels"]
MODELS = (
    ("llama-3.2-1b", 6), ("llama-3.1-8b", 4), ("qwen2.5-0.5b", 0), ("qwen2.5-1.5b", 8),
    ("qwen2.5-7b", 4), ("qwen3-1.7b", 8), ("qwen3-8b", 4), ("tinyllama-1.1b", 8),
    ("smollm2-360m", 12),
)
TARGETS = ("all-linear", "all-linear", "q_proj+v_proj", "q_proj+k_proj+v_proj+o_proj")
# Wrapper, trainer, rows, and the precisions that are dealt; groups `a` have adapters.
GROUPS = (
    ("n", "none", "nemo-automodel 0.7", 6, ("bf16-pure",)),
    ("f", "fsdp2", "nemo-automodel 0.7", 9, ("bf16-pure", "bf16-mixed")),
    ("an", "none", "nemo-automodel 0.7", 6, ("bf16-pure",)),
    ("af", "fsdp2", "nemo-automodel 0.7", 9, ("bf16-pure",)),
)


def _adapter(dealer, group):
    adapter = (f"lora r={dealer.choice((8, 16, 64))} targets={dealer.choice(TARGETS)} "
               "dropout=0.0 dtype=bf16")
    kernels = dealer.choice(("torch", "triton"))
    return {"adapter": adapter, "kernels": kernels} if group[0].startswith("a") else {}


def _row(dealer, name, group):
    _, wrapper, trainer, _, precisions = group
    config, layers = dealer.choice(MODELS)
    sequence = dealer.choice((512, 1024, 2048))
    return {
        "id": f"phantom-na-{name}", "unit": "B", "torch": "2.15", "transformers": "5.18.0",
        "config": config, "layers": layers, "wrapper": wrapper, "units": "",
        "world": 1 if wrapper == "none" else dealer.choice((2, 4, 8, 16, 64)), "tp": 1,
        "precision": dealer.choice(precisions), "reduce": "fp32" if wrapper == "fsdp2" else "",
        "reshard": "", "bucket_view": False,
        "micro_batch": dealer.choice([count for count in (1, 2, 4, 8) if count * sequence <= 4096]),
        "sequence": sequence, "accumulate": dealer.choice((1, 1, 1, 2)), "kernel": "auto",
        "checkpointing": dealer.choice((True, False, False)),
        "optimizer": dealer.choice(("adam", "adamw")),
        "implementation": dealer.choice(("foreach", "foreach", "fused")), "clip": True,
        "trainer": trainer, **_adapter(dealer, group),
    }


def rows():
    return deal.deal(SEED, GROUPS, _row)


if __name__ == "__main__":
    deal.write(rows(), COLUMNS)
