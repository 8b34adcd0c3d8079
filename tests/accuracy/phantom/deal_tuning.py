#!/usr/bin/env python3
"""Deals the rows of ../data/phantom_tuning.csv, before anything is known of them: the same each time.

    deal_tuning.py     prints the rows as CSV, without what they held
    fill.py OUT.csv    runs them

TRL's trainers, with and without adapters, and Hugging Face's under FSDP2; groups `g` sample
answers, groups `o` have the inputs of layers in the host's memory. Every third row of a
group is kept back: the model is not mended by it (`kept_back`).
"""

import deal

SEED = 20261125
COLUMNS = [*deal.COLUMNS, "offload"]
MODELS = (
    ("llama-3.2-1b", 0), ("qwen2.5-0.5b", 0), ("qwen2.5-1.5b", 8), ("qwen3-1.7b", 8),
    ("qwen3-8b", 4), ("llama-3.1-8b", 4), ("mistral-7b-v0.3", 6), ("qwen2.5-7b", 4),
    ("gemma-2b", 6), ("tinyllama-1.1b", 0), ("smollm2-360m", 0), ("phi-3-mini", 6),
)
# Wrapper, trainer, rows, and the precisions that are dealt.
WHOLE = ("bf16-autocast", "bf16-autocast", "bf16-pure", "fp32")
GROUPS = (
    ("n", "none", "trl", 18, WHOLE),
    ("d", "ddp", "trl", 9, WHOLE),
    ("f", "fsdp2", "trl", 15, ("bf16-mixed",)),
    ("z2", "zero2", "trl", 9, ("bf16-mixed",)),
    ("z3", "zero3", "trl", 9, ("bf16-mixed",)),
    ("h", "fsdp2", "hf-trainer", 12, ("bf16-mixed",)),
    ("gn", "none", "trl", 9, WHOLE),
    ("gd", "ddp", "trl", 3, WHOLE),
    ("gf", "fsdp2", "trl", 6, ("bf16-mixed",)),
    ("gz", "zero2", "trl", 6, ("bf16-mixed",)),
    ("on", "none", "trl", 9, WHOLE),
    ("od", "ddp", "trl", 3, WHOLE),
    ("of", "fsdp2", "trl", 3, ("bf16-mixed",)),
    ("oz", "zero2", "trl", 3, ("bf16-mixed",)),
    ("oh", "none", "hf-trainer", 3, ("bf16-autocast", "bf16-autocast", "fp32")),
    ("oi", "fsdp2", "hf-trainer", 3, ("bf16-mixed",)),
)
METHODS = ("", "", "dpo", "dpo", "kto", "reward")


def _tuning(dealer, group):
    """Adapter and preference."""
    name, wrapper, trainer, *_ = group
    if trainer != "trl":
        return {}
    samples = name.startswith("g")
    method = "grpo" if samples else dealer.choice(METHODS)
    adapts = wrapper in ("none", "ddp") and dealer.choice((True, False))
    reference = dealer.choice(("model", "model", "precomputed"))
    if adapts:
        reference = "adapters-off"
    adapter = deal.lora(dealer, deal.TARGETS)
    compares = method in ("dpo", "kto") or samples and dealer.choice((True, False))
    if samples and reference == "precomputed":  # answers are not there before
        reference = "model"
    return {"preference": f"{method} reference={reference}" if compares else method,
            "adapter": adapter if adapts else ""}


def _offload(dealer, group):
    """Longer sequences, of layers that run again."""
    if not group[0].startswith("o"):
        return {}
    return {"offload": "activations", "checkpointing": True, "micro_batch": dealer.choice((2, 4, 8))}


def _batches(group):
    """Sequences of a micro-batch: GRPO's two answers to a prompt are on one rank."""
    return (2, 4) if group[0].startswith("g") else (1, 2, 4)


def _row(dealer, name, group):
    _, wrapper, trainer, _, precisions = group
    config, layers = dealer.choice(MODELS)
    longest = min(deal.LONGEST.get(config, 2048), 2048)
    lengths = (512, 1024) if group[0].startswith("g") else (512, 1024, 2048)
    sequence = dealer.choice([length for length in lengths if length <= longest])
    tuning = _tuning(dealer, group)
    precision = dealer.choice(precisions)
    return {
        "id": f"phantom-ft-{name}", "unit": "B", "torch": "2.15", "transformers": "5.23.0",
        "config": config, "layers": layers, "wrapper": wrapper,
        "units": "ends" if wrapper == "fsdp2" else "",
        "world": 1 if wrapper == "none" else dealer.choice((2, 4, 8, 16, 64)), "tp": 1,
        "precision": precision, "reduce": "bf16" if precision == "bf16-mixed" else "",
        "reshard": True, "bucket_view": False,
        "micro_batch": dealer.choice([count for count in _batches(group) if count * sequence <= 2048]),
        "sequence": sequence, "accumulate": dealer.choice((1, 1, 1, 2)), "kernel": "auto",
        "checkpointing": dealer.choice((True, False)), "optimizer": "adamw",
        "implementation": "fused", "clip": dealer.choice((True, True, False)), "trainer": trainer,
        **tuning, **_offload(dealer, group),
    }


def rows():
    return deal.deal(SEED, GROUPS, _row)


if __name__ == "__main__":
    deal.write(rows(), COLUMNS)
