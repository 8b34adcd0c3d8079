#!/usr/bin/env python3
"""Deals the rows of ../data/phantom_dealt.csv, before anything is known of them: the same each time.

    deal.py            prints the rows as CSV, without what they held
    fill.py OUT.csv    runs them

Axes are dealt by a seed over groups of a wrapper and a trainer. Every third row of a group is kept
back: the model is not mended by it (`kept_back`).
"""

import csv
import random
import sys

SEED = 20261124
COLUMNS = (
    "id,what_is_measured,measured_value,unit,torch,transformers,config,layers,wrapper,units,world,tp,"
    "precision,reduce,reshard,bucket_view,micro_batch,sequence,accumulate,kernel,checkpointing,"
    "optimizer,implementation,clip,adapter,quantization,preference,trainer,loss,kept_back"
).split(",")
# Configuration, and how many of its layers: a row is to run in seconds, and fit an H100.
MODELS = (
    ("llama-3.2-1b", 0), ("qwen2.5-0.5b", 0), ("qwen2.5-1.5b", 0), ("qwen3-1.7b", 0),
    ("qwen3-4b", 12), ("qwen3-8b", 8), ("llama-3.1-8b", 8), ("mistral-7b-v0.3", 10),
    ("qwen2.5-7b", 8), ("gemma-2b", 8), ("tinyllama-1.1b", 0), ("smollm2-360m", 0),
    ("olmo-2-1b", 0), ("pythia-1.4b", 0), ("opt-1.3b", 0), ("gpt2-medium", 0), ("phi-3-mini", 8),
)
LONGEST = {"gpt2-medium": 1024, "opt-1.3b": 2048, "pythia-1.4b": 2048, "tinyllama-1.1b": 2048}
# What adapters are on.
TARGETS = ("q_proj+v_proj", "q_proj+k_proj+v_proj+o_proj", "all-linear")
# Wrapper, trainer, rows, and the precisions that are dealt.
GROUPS = (
    ("f", "fsdp1", "", 26, ("bf16-mixed", "bf16-mixed", "fp32")),
    ("z1", "zero1", "", 9, ("bf16-mixed",)),
    ("z2", "zero2", "", 9, ("bf16-mixed",)),
    ("z3", "zero3", "", 10, ("bf16-mixed",)),
    ("d", "ddp", "", 12, ("bf16-autocast", "bf16-pure", "fp32")),
    ("t", "none", "hf-trainer", 8, ("bf16-autocast", "bf16-autocast", "fp32")),
    ("td", "ddp", "hf-trainer", 8, ("bf16-autocast", "bf16-autocast", "fp32")),
    ("t2", "fsdp2", "hf-trainer", 10, ("bf16-mixed",)),
    ("tz", "zero2", "hf-trainer", 6, ("bf16-mixed",)),
    ("ty", "zero3", "hf-trainer", 6, ("bf16-mixed",)),
)


def _row(dealer, name, group):
    _, wrapper, trainer, _, precisions = group
    config, layers = dealer.choice(MODELS)
    longest = LONGEST.get(config, 4096)
    sequence = dealer.choice([length for length in (512, 1024, 2048, 4096) if length <= longest])
    micro_batch = dealer.choice([count for count in (1, 2, 4) if count * sequence <= 4096])
    precision = dealer.choice(precisions)
    reduce = ""
    if precision == "bf16-mixed" and wrapper.startswith("fsdp"):
        reduce = "bf16" if trainer else dealer.choice(("fp32", "bf16"))
    if wrapper.startswith("zero"):
        reduce = "bf16"
    return {
        "id": f"phantom-deal-{name}", "unit": "B", "torch": "2.15", "transformers": "5.23.0",
        "config": config, "layers": layers, "wrapper": wrapper,
        "units": "root" if wrapper == "fsdp2" else "",
        "world": 1 if wrapper == "none" else dealer.choice((2, 4, 8, 16, 64)), "tp": 1,
        "precision": precision, "reduce": reduce, "reshard": True, "bucket_view": False,
        "micro_batch": micro_batch, "sequence": sequence, "accumulate": dealer.choice((1, 1, 1, 2)),
        "kernel": "auto", "checkpointing": dealer.choice((True, False)), "optimizer": "adamw",
        "implementation": "fused" if trainer else dealer.choice(("fused", "fused", "foreach")),
        "clip": dealer.choice((True, True, False)), "trainer": trainer,
    }


def lora(dealer, targets):
    """An adapter on some of them; the draws come in this order."""
    return (f"lora r={dealer.choice((8, 16, 64))} targets={dealer.choice(targets)} "
            f"dropout={dealer.choice(('0.0', '0.05'))} dtype=fp32")


def placed(dealer, group, worlds, sequence):
    """Where a row's ranks are and what each reads; the draws come in this order."""
    _, wrapper, trainer, _, _ = group
    # Micro-batches that FSDP reduces each by itself have no profile.
    most = 1 if wrapper.startswith("fsdp") and not trainer else 2
    return {
        "unit": "B", "torch": "2.15", "transformers": "5.23.0", "wrapper": wrapper,
        "units": "" if wrapper != "fsdp2" else "ends" if trainer else "root",
        "world": 1 if wrapper == "none" else dealer.choice(worlds), "tp": 1,
        "reshard": True, "bucket_view": False, "implementation": "fused",
        "micro_batch": dealer.choice([count for count in (1, 2, 4) if count * sequence <= 4096]),
        "sequence": sequence, "accumulate": min(dealer.choice((1, 1, 1, 2)), most),
        "trainer": trainer,
    }


def deal(seed, groups, row_of):
    """The rows of each group in turn."""
    dealer = random.Random(seed)
    dealt = []
    for group in groups:
        for number in range(group[3]):
            row = row_of(dealer, f"{group[0]}{number + 1:02}", group)
            dealt.append({**row, "kept_back": number % 3 == 2})
    return dealt


def rows():
    return deal(SEED, GROUPS, _row)


def write(dealt, columns=COLUMNS):
    out = csv.DictWriter(sys.stdout, columns, restval="", lineterminator="\n")
    out.writeheader()
    out.writerows(dealt)


if __name__ == "__main__":
    write(rows())
