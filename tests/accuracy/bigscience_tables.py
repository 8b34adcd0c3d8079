"""BigScience's tables of nvidia-smi: `bs176`, `bs104` and `bsgpt2` rows, whole GB.

The figure is the most of the nodes that hold the embedding, on the first and the
last pipeline stage.
"""

import measured
from measured import Prediction, Refused

FAMILIES = ("bs176", "bs104", "bsgpt2")
GPUS = {"A100 80GB": "a100-80gb-sxm", "V100 32GB": "v100-32gb-sxm"}
# Heads of rows that do not state them: those of the other rows of their width.
HEADS = {14400: 96, 13824: 96, 14336: 64, 12288: 96, 13312: 64}
PADDED_VOCAB = 250880


def sets_of(row):
    """Head counts decide how large scores are, and so what the allocator can use again."""
    stated = row.text("heads")
    return ["bigscience_tables" if stated else "bigscience_tables, heads not stated"]


def features_of(row):
    return {
        **measured.common_features(row, _zero_stage(row)),
        "precision": _precision(row)["preset"],
        "micro-batch": row.text("micro_batch"),
        "gpu": row.text("gpu"),
    }


def predict(row, answer):
    ends = [answer["ranks"][0], answer["ranks"][-1]]
    worst = max(ends, key=lambda rank: int(rank["device"]["expected_bytes"]))
    return Prediction(*measured.gauge(worst, "device"), measured.debug_extra(worst), "device")


def request_of(row):
    if row.text("gpu") not in GPUS:
        raise Refused(f"no GPU id for {row.text('gpu')!r}")
    if row.text("framework") != "Megatron-DeepSpeed" and _zero_stage(row):
        raise Refused(f"framework {row.text('framework')!r}")
    data = row.number("dp", 0)
    if not data:
        raise Refused("the row does not state dp")
    stages = row.number("pp", 1)
    # More micro-batches than stages are never in flight at once.
    micro_batches = row.number("grad_accum", 4 * stages)
    job = {
        "model": {"transformer": _transformer(row)},
        "training": {
            "sequence_length": row.number("seq_len"),
            "micro_batch_size": row.number("micro_batch"),
            "global_batch_size": data * row.number("micro_batch") * micro_batches,
            "precision": _precision(row),
            "optimizer": {"name": "adamw-8bit"} if "8bit" in row.text("optimizer") else _ADAM,
            "recompute": {"mode": "full", "unit_layer_count": 1},
            "attention": "eager",
        },
        "parallelism": measured.parallelism(
            row, _zero_stage(row), sequence_parallel=False, pipeline_layout=layout(row)
        ),
        "runtime": {**_framework(row), "vocab_size_divisor": 128},
        "cluster": {"gpu": GPUS[row.text("gpu")]},
    }
    return {"job": job}


_ADAM = {"name": "adam", "implementation": "fused"}


def _framework(row):
    if row.text("framework") == "Megatron-DeepSpeed":
        return {"framework": "megatron-deepspeed"}
    return {"framework": "megatron-lm", "versions": {"megatron-lm": "2.4"}}


def _zero_stage(row):
    return 1 if row.text("zero_stage").startswith("1") else 0


def _precision(row):
    if "BF16_Optimizer" in row.text("precision"):
        return {"preset": "bf16-optimizer"}
    if row.text("precision") == "bf16":  # before DeepSpeed had that optimizer
        return {"preset": "bf16-mixed", "gradient_accumulation_dtype": "bf16"}
    return {"preset": "fp16-mixed"}


def layout(row):
    """DeepSpeed deals layers evenly, the first stages one more; later runs count the
    embedding and the head as a layer each, where that comes out even."""
    layers, stages = row.number("layers"), row.number("pp", 1)
    if layers % stages and (layers + 2) % stages == 0:
        each = (layers + 2) // stages
        return [each - 1] + [each] * (stages - 2) + [each - 1]
    each, more = divmod(layers, stages)
    return [each + (stage < more) for stage in range(stages)]


def _transformer(row):
    hidden = row.number("hidden")
    large = row.text("vocab").startswith("250k")
    return {
        "hidden_size": hidden,
        "layer_count": row.number("layers"),
        "head_count": row.number("heads", HEADS.get(hidden)),
        "ffn_size": row.number("ffn"),
        "vocab_size": PADDED_VOCAB if large else row.number("vocab"),
        "position_count": row.number("seq_len"),
        **measured.GPT2_BLOCK,
    }
