"""torchtitan's own figures: `titan` rows, from its documents and commit messages.

The loop logs reserved_bytes.all.peak of the rank that prints, which is the last pipeline stage's
first; `active` figures are allocated ones where no stream is recorded.
"""

import re

import measured
from measured import Prediction, Refused

FAMILIES = ("titan", "titanoom")
# By what the row says of the GPU, the first that is found.
GPUS = {
    "H200": "h200-141gb-sxm",
    "MI300X": "mi300x-192gb",
    "96GB": "h100-96gb-sxm",
    "95": "h100-96gb-sxm",  # GiB, as torchtitan's log prints it
    "94.99": "h100-96gb-sxm",
    "H100": "h100-80gb-sxm",
    "A100 80GB": "a100-80gb-sxm",
    "GB200": "gb200-186gb",
    "B200": "b200-180gb",
}
# The launch script sets expandable segments since then; rows of the months before say it too,
# inferred from the later script (data notes B 2.1).
EXPANDABLE_SINCE = (2024, 8)
# Month of the code that a row's commit is of, which names the era: by the number of the
# pull request, up to which the month holds. The ends are those of torchtitan's log that fewest
# pull requests are on the wrong side of.
MONTHS = (
    (171, "2024.3"),
    (390, "2024.5"),
    (493, "2024.7"),
    (760, "2024.12"),
    (880, "2025.2"),
    (1032, "2025.3"),
    (1480, "2025.7"),
    (1775, "2025.9"),
    (2258, "2025.12"),
    (3713, "2026.6"),
    (99999, "2026.8"),
)
# Of commits that rows name without their pull request.
PULLS = {"d66b72a6a": 1690, "4d88a8a44": 712}
# A date in the name of a benchmark's file: _202412_, _2025-06_.
DATED = re.compile(r"(?<![0-9A-Za-z])(20\d\d)-?(0[1-9]|1[0-2])(?![0-9A-Za-z])")
SPECIAL = {
    "NVFP4": "NVFP4",
    r"DSV3|DeepSeek|Deepseek": "experts",
    "after init": "memory after the model is made, no peak",
    "WITH storing abs": "a saved operation that later code does not save",
    r"Float8 eager": "float8 without compilation",
}
# What no compiler of blocks is: graphs of the whole step.
GRAPHS = ("graph_trainer", "SimpleFSDP", "compiler_toolkit")


def verdict_set(_):
    return "torchtitan"


def sets_of(row):
    return ["torchtitan, FSDP2 main line"] * _main_line(row) + ["torchtitan, all"]


def _main_line(row):
    """FSDP2's own loop: no experts, no graph of the whole step, no figure that is no peak."""
    return row.text("framework").endswith(("FSDP2", "FSDP2 eager")) and not _special(row)


def features_of(row):
    return {
        **measured.common_features(row, 3),
        "recompute": _recompute(row)["mode"],
        "compile": "yes" if _compiled(row) else "no",
        "month": _month(row),
        "framework": row.text("framework"),
        "gauge": row.text("what_is_measured"),
    }


def predict(row, answer):
    rank = measured.stage_of(answer, -1)
    extra = measured.debug_extra(rank)
    what = row.text("what_is_measured")
    return Prediction(*measured.gauge(rank, what), extra, what)


def request_of(row):
    _refuse(row)
    training = {
        "sequence_length": row.number("seq_len"),
        "micro_batch_size": _micro_batch(row),
        # Rows of what ran out of memory state none: torchtitan's default is one.
        "global_batch_size": measured.global_batch(row, 1 if row.ran_out_of_memory() else None),
        "precision": {"preset": "bf16-mixed"},
        "optimizer": {"name": "adamw"},
        "recompute": _recompute(row),
        "loss": _loss(row),
    }
    first = "FSDP1" in row.text("framework")
    job = {
        "model": {"transformer": measured.decoder(row)},
        "training": training,
        "parallelism": measured.parallelism(row, 3, **_schedule(row), **_contexts(row)),
        "runtime": _runtime(row, first),
        "cluster": {"gpu": _gpu(row)},
    }
    return {"job": job}


def _special(row):
    """Why a row is none of the main line's, or None."""
    text = f"{row.text('source_url_or_repo_path')} {row.text('model')} {row.notes}"
    for pattern, reason in SPECIAL.items():
        if re.search(pattern, text):
            return reason
    if any(name in row.text("framework") for name in GRAPHS):
        return "one graph of the whole step"
    return "experts" if row.number("ep", 1) > 1 else None


def _refuse(row):
    reason = _special(row)
    if reason:
        raise Refused(reason)
    if "AsyncTP" in row.notes:
        raise Refused("asynchronous tensor parallelism")
    if row.text("what_is_measured") == "allocated" and row.number("tp", 1) > 1:
        # active_bytes.all.peak; in 2024 tensor parallelism's collectives recorded their stream.
        raise Refused("active bytes, in which freed memory counts while a recorded stream holds it")


def _gpu(row):
    for words, gpu in GPUS.items():
        if words in row.text("gpu"):
            return gpu
    raise Refused(f"no GPU id for {row.text('gpu')!r}")


def _month(row):
    source = row.text("source_url_or_repo_path")
    numbers = [int(number) for number in re.findall(r"#(\d+)", source)]
    numbers += [number for commit, number in PULLS.items() if commit in source]
    if numbers:
        return next(month for number, month in MONTHS if numbers[0] <= number)
    dated = DATED.search(source)
    return f"{dated.group(1)}.{int(dated.group(2))}" if dated else MONTHS[-1][1]


def _micro_batch(row):
    """A pipeline splits the local batch: one micro-batch for each stage until April 2025 (#1073),
    single sequences later."""
    local = row.number("micro_batch")
    stages = row.number("pp", 1)
    if stages == 1:
        return local
    year, month = map(int, _month(row).split("."))
    return max(1, local // stages) if (year, month) < (2025, 4) else 1


def _schedule(row):
    """Interleaved schedules have two virtual stages on each rank (pipeline_parallel.py)."""
    name = row.text("pp_schedule").lower()
    if row.number("pp", 1) == 1 or name in ("", "1f1b"):
        return {}
    if "interleaved" in name and "1f1b" in name:
        return {"pipeline_schedule": "interleaved-1f1b", "virtual_pipeline_size": 2}
    if name == "gpipe":
        return {"pipeline_schedule": "gpipe"}
    raise Refused(f"pipeline schedule {row.text('pp_schedule')}")


def _contexts(row):
    """Ranks that split sequences; torch's context_parallel gathers keys where nothing is said."""
    ranks = row.number("cp", 1)
    return {"context_parallel_size": ranks} if ranks > 1 else {}


def _compiled(row):
    return row.text("compile").startswith("yes")


def _recompute(row):
    """Selective recomputation is by operation in all rows: those of 2024 that say
    otherwise are corrected by their own allocated figure (49.5 GiB, not 66). It is
    what torchtitan's configurations have where a row says nothing."""
    text = row.text("recompute")
    if text.startswith("selective") or not text:
        return {"mode": "per-op"}
    return {"mode": "full" if text.startswith("full") else "none"}


def _loss(row):
    chunked = row.note(r"(with chunked|ChunkedLossWrapper)")
    if chunked is None:
        return {"implementation": "plain"}
    # In 2025 slices of the logits; later the head runs slice by slice too.
    return {"implementation": "chunked" if "Wrapper" in chunked else "chunked-cross-entropy"}


def _runtime(row, first):
    reshard = row.note(r"reshard_after_forward=(always|never)")
    runtime = {
        "framework": "fsdp1" if first else "fsdp2",
        "trainer": "torchtitan",
        "versions": {"torchtitan": _month(row)},
        "compile": _compiled(row),
    }
    year, month = map(int, _month(row).split("."))
    if (year, month) >= EXPANDABLE_SINCE and "expandable_segments:True" in row.notes:
        runtime["allocator"] = {"expandable_segments": True}
    if reshard:
        runtime["reshard_after_forward"] = reshard == "always"
    return runtime
