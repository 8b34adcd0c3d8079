#!/usr/bin/env python3
"""Deals the rows of ../data/phantom_half.csv, before anything is known of them: the same each time.

    deal_half.py       prints the rows as CSV, without what they held
    fill.py OUT.csv    runs them

Hugging Face's Trainer and TRL's, told `fp16`: autocast to fp16 with losses that are scaled. Every
third row of a group is kept back: the model is not mended by it (`kept_back`).
"""

import deal

SEED = 20261127
COLUMNS = deal.COLUMNS
MODELS = (
    ("llama-3.2-1b", 0), ("qwen2.5-0.5b", 0), ("qwen2.5-1.5b", 8), ("qwen3-1.7b", 8),
    ("llama-3.1-8b", 4), ("mistral-7b-v0.3", 6), ("gemma-2b", 6), ("gpt2-medium", 0),
    ("pythia-1.4b", 8), ("opt-1.3b", 8), ("smollm2-360m", 0),
)
# Wrapper, trainer, rows, and the precisions that are dealt.
GROUPS = (
    ("n", "none", "hf-trainer", 6, ("fp16-autocast",)),
    ("d", "ddp", "hf-trainer", 6, ("fp16-autocast",)),
    ("t", "none", "trl", 9, ("fp16-autocast",)),
)
TARGETS = ("q_proj+v_proj", "all-linear")


def _row(dealer, name, group):
    _, wrapper, trainer, _, precisions = group
    config, layers = dealer.choice(MODELS[:7] if trainer == "trl" else MODELS)
    sequence = dealer.choice((512, 1024, 2048))
    adapter = deal.lora(dealer, TARGETS)
    return {
        "id": f"phantom-half-{name}", "config": config, "layers": layers,
        "precision": dealer.choice(precisions), "reduce": "",
        **deal.placed(dealer, group, (2, 4, 8), min(sequence, deal.LONGEST.get(config, 4096))),
        "kernel": "auto", "checkpointing": dealer.choice((True, False)), "optimizer": "adamw",
        "clip": dealer.choice((True, True, False)), "preference": "",
        "adapter": adapter if trainer == "trl" and dealer.choice((True, True, False)) else "",
    }


def rows():
    return deal.deal(SEED, GROUPS, _row)


if __name__ == "__main__":
    deal.write(rows())
