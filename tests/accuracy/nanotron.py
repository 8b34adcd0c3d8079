"""Nanotron's sweep of the Ultra-Scale Playbook: `uspres` and `uspalloc` rows of what worked,
`uspoom` rows of what ran out of memory.

Both are of global rank 0, that is, of the first pipeline stage. `uspres` is
max_memory_reserved, `uspalloc` max_memory_allocated, but peaks are reset after
the backward pass of each step, so they are those of what follows: gradient
reduction, clipping, optimizer, gathering of weights. Reserved memory seldom
shrinks: only where a full GPU made the allocator give back its cache.
"""

import re

import measured
from measured import Prediction, Refused

FAMILIES = ("uspres", "uspalloc", "uspoom")
AFTER_BACKWARD = {"PHASE_GRADIENT_REDUCTION", "PHASE_OPTIMIZER"}
GPUS = {"H100 80GB": "h100-80gb-sxm"}


def verdict_set(row):
    """Both figures of a run are one run."""
    return None if row.family == "uspalloc" else "nanotron"


def sets_of(row):
    if row.family == "uspalloc":
        return ["nanotron uspalloc"]
    single = row.number("tp", 1) == 1
    return ["nanotron uspres, TP=1"] * single + ["nanotron uspres, all"]


def features_of(row):
    return {
        **measured.common_features(row, row.number("zero_stage", 0)),
        "model": f"{row.text('params_b')}B",
        "tensor parallel size": str(row.number("tp", 1)),
        "pipeline parallel size": str(row.number("pp", 1)),
        "after_pp_fix": row.note(r"after_pp_fix=(\w+)", "not stated"),
        "attention heads": "grouped" if _grouped(row) else "all",
    }


def predict(row, answer):
    rank = measured.stage_of(answer, 0)
    extra = measured.debug_extra(rank)
    if row.family == "uspres":
        expected = measured.moments_peak(rank, AFTER_BACKWARD, False, "peak_reserved_bytes")
        bound = measured.scaled_bound(rank, "reserved", expected)
        return Prediction(expected, bound, extra, "reserved")
    expected = measured.moments_peak(rank, AFTER_BACKWARD, False)
    bound = measured.scaled_bound(rank, "allocated", expected)
    return Prediction(expected, bound, extra, "allocated")


def request_of(row):
    if row.text("gpu") not in GPUS:
        raise Refused(f"no GPU id for {row.text('gpu')!r}")
    if row.number("cp", 1) > 1:
        raise Refused("context parallelism")
    if row.text("recompute") not in ("", "none"):
        raise Refused("recomputation in nanotron")
    split = {"sequence_parallel": True} if row.number("tp", 1) > 1 else {}
    job = {
        "model": {"transformer": _transformer(row)},
        "training": {
            "sequence_length": row.number("seq_len"),
            "micro_batch_size": row.number("micro_batch"),
            "global_batch_size": measured.global_batch(row),
            "precision": {"preset": "bf16-optimizer"},
            "optimizer": {"name": "adamw", "implementation": "fused"},
            "attention": "flash",
        },
        "parallelism": measured.parallelism(row, row.number("zero_stage", 0), **split),
        "runtime": {"framework": "nanotron", **_version(row)},
        "cluster": {"gpu": GPUS[row.text("gpu")]},
    }
    return {"job": job}


def _grouped(row):
    """The number of key and value heads that the run's name gives, or None."""
    found = re.search(r"_gqa(\d+)", row.note(r"\brun (\S+)", ""))
    return int(found.group(1)) if found else None


def _transformer(row):
    heads = row.number("heads")
    return {
        "hidden_size": row.number("hidden"),
        "layer_count": row.number("layers"),
        "head_count": heads,
        "kv_head_count": _grouped(row) or row.number("kv_heads", heads),
        "ffn_size": row.number("ffn"),
        "vocab_size": row.number("vocab"),
        "activation": "silu",
        "gated_mlp": True,
        "norm": "rms-norm",
        "position_embedding": "rotary",
        "tied_embeddings": row.note(r"tie_word_embeddings=(\w+)", "False") == "True",
    }


def _version(row):
    """The era of the code, which decides how layers are dealt to pipeline stages."""
    era = {"False": "0.4", "True": "0.5"}.get(row.note(r"after_pp_fix=(\w+)"))
    return {"versions": {"nanotron": era}} if era else {}
