#!/usr/bin/env python3
"""Deals the rows of ../data/phantom_tuners.csv, before anything is known of them: the same each
time.

    deal_tuners.py     prints the rows as CSV, without what they held
    fill.py OUT.csv    runs them

PEFT's other methods under TRL's SFT, and under Hugging Face's Trainer: IA3, prompt tuning, P-tuning
and prefix tuning. Every third row of a group is kept back: the model is not mended by it
(`kept_back`).
"""

import deal
import deal_tuning

SEED = 20261128
COLUMNS = deal.COLUMNS
# But for one whose queries, keys and values are one projection.
MODELS = tuple(model for model in deal_tuning.MODELS if model[0] != "phi-3-mini")
TARGETS = (
    ("k_proj+v_proj+down_proj", "down_proj"), ("q_proj+v_proj+down_proj", "down_proj"),
    ("q_proj+k_proj+v_proj", "none"), ("all-linear", "down_proj"),
)
TOKENS = (8, 20, 100)
# Wrapper, trainer, rows, and the precisions that are dealt.
HALF = ("bf16-autocast", "bf16-autocast", "bf16-pure")
GROUPS = (
    ("in", "none", "trl", 6, HALF),
    ("vn", "none", "trl", 6, HALF),
    ("pn", "none", "trl", 6, HALF),
    ("xn", "none", "trl", 6, HALF),
    ("xp", "none", "trl", 3, HALF),
    ("id", "ddp", "trl", 3, HALF),
    ("iq", "none", "trl", 3, HALF),
    ("vd", "ddp", "trl", 3, HALF),
    ("vq", "none", "trl", 3, HALF),
    ("iz", "zero2", "trl", 3, ("bf16-mixed",)),
    ("if", "fsdp2", "trl", 3, ("bf16-mixed",)),
    ("ih", "none", "hf-trainer", 3, ("bf16-autocast",)),
    ("vh", "none", "hf-trainer", 3, ("bf16-autocast",)),
)
METHODS = {"v": "prompt-tuning", "p": "p-tuning", "x": "prefix-tuning"}


def _adapter(dealer, group, quantized):
    """The draws come in this order."""
    dtype = "bf16" if quantized else "fp32"
    if group[0] == "i":
        targets, inputs = dealer.choice(TARGETS)
        return f"ia3 targets={targets} feedforward={inputs} dtype={dtype}"
    tokens = dealer.choice(TOKENS)
    encoder = dealer.choice((128, 512, 2048))
    encodes = group in ("pn", "xp")
    return (f"{METHODS[group[0]]} tokens={tokens} encoder={encoder if encodes else 'none'} "
            f"dtype={dtype}")


def _row(dealer, name, group):
    config, layers = dealer.choice(MODELS)
    sequence = dealer.choice((512, 1000, 2048, 4096))
    quantization = ""
    if group[0] in ("iq", "vq"):
        form, double = dealer.choice(("nf4", "nf4", "int8")), dealer.choice((True, False))
        quantization = f"{form} double={double and form != 'int8'} compute=bf16 rest=bf16"
    adapter = _adapter(dealer, group[0], bool(quantization))
    # PEFT refuses it with a prefix; what the Trainer gives a gradient then is another question.
    again = dealer.choice((True, False)) and group[0][0] != "x" and group[2] == "trl"
    return {
        "id": f"phantom-pt-{name}", "config": config, "layers": layers,
        "precision": dealer.choice(group[4]), "reduce": "bf16" if group[1] in ("zero2", "fsdp2") else "",
        **deal.placed(dealer, group, (2, 4, 8, 64), min(sequence, deal.LONGEST.get(config, 4096))),
        "kernel": "auto", "checkpointing": again, "optimizer": "adamw",
        "clip": dealer.choice((True, True, False)), "adapter": adapter,
        "quantization": quantization, "preference": "",
    }


def rows():
    return deal.deal(SEED, GROUPS, _row)


if __name__ == "__main__":
    deal.write(rows())
