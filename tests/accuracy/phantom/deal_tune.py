#!/usr/bin/env python3
"""Deals the rows of ../data/phantom_tune.csv, before anything is known of them: the same each time.

    deal_tune.py       prints the rows as CSV, without what they held
    fill.py OUT.csv    runs them

torchtune's own recipes: LoRA and full training on one GPU and with FSDP2, DoRA, 4 bits, and
preferences by 0.6, as 0.7's loss of pairs cannot be imported. Every third row of a group is kept back: the model is not mended by it (`kept_back`).
"""

import deal

SEED = 20261128
COLUMNS = [*deal.COLUMNS, "offload"]
MODELS = (
    ("qwen3-0.6b", 8), ("qwen3-0.6b", 0), ("qwen3-1.7b", 8), ("qwen3-4b", 6), ("qwen3-8b", 4),
    ("phi-3-mini", 8), ("phi-3-mini", 4), ("phi-4", 4), ("phi-4", 6), ("llama-3.2-1b", 8),
    ("llama-3.1-8b", 4), ("qwen2.5-1.5b", 8), ("gemma-2b", 6),
)
TARGETS = ("q_proj+v_proj", "q_proj+v_proj+o_proj+mlp", "q_proj+k_proj+v_proj+o_proj+mlp")
# Wrapper, trainer, rows, and the methods that are dealt.
GROUPS = (
    ("l", "none", "torchtune 0.7", 6, ("lora",)),
    ("f", "none", "torchtune 0.7", 6, ("",)),
    ("s", "fsdp2", "torchtune 0.7", 6, ("lora", "lora", "")),
    ("o", "none", "torchtune 0.7", 6, ("dora",)),
    ("os", "fsdp2", "torchtune 0.7", 3, ("dora",)),
    ("q", "none", "torchtune 0.7", 6, ("lora", "dora")),
    ("qs", "fsdp2", "torchtune 0.7", 6, ("lora",)),
    ("p", "none", "torchtune 0.6", 6, ("lora",)),
)


def _adapter(dealer, method):
    if not method:
        return ""
    return (f"{method} r={dealer.choice((8, 16, 64))} targets={dealer.choice(TARGETS)} "
            f"dropout={dealer.choice(('0.0', '0.05'))} dtype=bf16")


def _row(dealer, name, group):
    kind, wrapper, trainer, _, methods = group
    config, layers = dealer.choice(MODELS)
    sequence = dealer.choice((512, 1024, 2048, 4096))
    micro_batch = dealer.choice([count for count in (1, 2, 4) if count * sequence <= 4096])
    paired = kind == "p"
    return {
        "id": f"phantom-tn-{name}", "unit": "B", "torch": "2.15", "config": config,
        "layers": layers, "wrapper": wrapper, "units": "root",
        "world": 1 if wrapper == "none" else dealer.choice((2, 4, 8)), "tp": 1,
        "precision": "bf16-pure", "reduce": "" if wrapper == "none" else "bf16", "reshard": True,
        "bucket_view": False, "micro_batch": micro_batch,
        "sequence": sequence // 2 if paired else sequence,
        "accumulate": dealer.choice((1, 1, 2)), "kernel": "auto",
        "checkpointing": dealer.choice((True, True, False)), "optimizer": "adamw",
        "implementation": "fused", "clip": dealer.choice((True, False)),
        "adapter": _adapter(dealer, dealer.choice(methods)),
        "quantization": "nf4 double=True compute=bf16 rest=bf16" if kind[0] == "q" else "",
        "preference": "dpo reference=adapters-off" if paired else "", "trainer": trainer,
        "loss": "" if paired else "chunked",
    }


def rows():
    return deal.deal(SEED, GROUPS, _row)


if __name__ == "__main__":
    deal.write(rows(), COLUMNS)
