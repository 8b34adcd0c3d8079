"""BigScience's Megatron logs: `bsmeg` rows, one per pipeline stage and gauge.

Memory as Megatron's report_memory prints it, after the first iteration (which
has no optimizer states during forward and backward) or after some twenty.
"""

import measured
from measured import Prediction, Refused

FAMILIES = ("bsmeg",)
GPUS = {"V100 32GB": "v100-32gb-sxm"}
FRAMEWORKS = {
    "Megatron-LM": {"framework": "megatron-lm", "versions": {"megatron-lm": "2.4"}},
    "Megatron-DeepSpeed": {"framework": "megatron-deepspeed"},
}


def sets_of(row):
    return [f"bigscience_logs {row.text('what_is_measured')}"]


def features_of(row):
    stage, stages = _stage(row), row.number("pp", 1)
    return {
        **measured.common_features(row, row.number("zero_stage", 0)),
        "framework": row.text("framework"),
        "step": "first" if _first_step(row) else "later",
        "stage": "first" if stage == 0 else "last" if stage == stages - 1 else "middle",
    }


def predict(row, answer):
    what = row.text("what_is_measured")
    rank = measured.stage_of(answer, _stage(row))
    current = row.note(r"current allocated ([\d.]+) MB")
    extra = {
        **measured.debug_extra(rank),
        "measured_end_of_step": round(float(current) * 2**20) if current else "",
        "measured_parameters": row.note(r"params on this stage/TP rank (\d+)", ""),
    }
    if not _first_step(row):
        return Prediction(*measured.gauge(rank, what), extra, what)
    expected = measured.moments_peak(rank, None, True, f"peak_{what}_bytes")
    return Prediction(expected, measured.scaled_bound(rank, what, expected), extra, what)


def request_of(row):
    if row.text("what_is_measured") not in ("allocated", "reserved"):
        raise Refused(f"what is measured: {row.text('what_is_measured')!r}")
    if row.text("gpu") not in GPUS:
        raise Refused(f"no GPU id for {row.text('gpu')!r}")
    if row.text("framework") not in FRAMEWORKS:
        raise Refused(f"framework {row.text('framework')!r}")
    if not row.text("recompute").startswith("full"):
        raise Refused("a BigScience log without full recomputation")
    _stage(row)
    job = {
        "model": {"transformer": _transformer(row)},
        "training": {
            "sequence_length": row.number("seq_len"),
            "micro_batch_size": row.number("micro_batch"),
            "global_batch_size": measured.global_batch(row),
            "precision": {"preset": "fp16-mixed"},
            "optimizer": {"name": "adam", "implementation": "fused"},
            "recompute": {"mode": "full", "unit_layer_count": 1},
            "attention": "eager",
        },
        "parallelism": measured.parallelism(
            row, row.number("zero_stage", 0), sequence_parallel=False
        ),
        "runtime": {**FRAMEWORKS[row.text("framework")], "vocab_size_divisor": 128},
        "cluster": {"gpu": GPUS[row.text("gpu")]},
    }
    return {"job": job}


def _stage(row):
    stage = row.note(r"pipeline stage (\d+) of")
    if stage is None:
        raise Refused("the row does not name its pipeline stage")
    return int(stage)


def _first_step(row):
    return row.note(r"after (\d+) iterations") == "1"


def _transformer(row):
    return {
        "hidden_size": row.number("hidden"),
        "layer_count": row.number("layers"),
        "head_count": row.number("heads"),
        "ffn_size": row.number("ffn"),
        "vocab_size": row.number("vocab"),
        "position_count": row.number("seq_len"),
        **measured.GPT2_BLOCK,
        "attention_dropout": float(row.note(r"attention_dropout ([\d.]+)", "0.1")),
    }
