"""Measurements as rows that accuracy.py reads: the columns of tests/accuracy/data, and the
job itself in one more."""

import csv
import json
import re

COLUMNS = (
    "id source_url_or_repo_path model params_b hidden layers heads kv_heads ffn vocab gpu num_gpus"
    " framework dp fsdp_shard tp pp pp_schedule cp ep sequence_parallel zero_stage precision"
    " optimizer seq_len micro_batch grad_accum recompute attention peft compile offload"
    " measured_value unit what_is_measured notes job"
).split()
# A row each: its moment, the step and the figure of the measurement, its gauge.
FIGURES = (
    ("first step", "first", "peak_allocated", "allocated"),
    ("first step", "first", "peak_reserved", "reserved"),
    ("steady step", "steady", "peak_allocated", "allocated"),
    ("steady step", "steady", "peak_reserved", "reserved"),
    ("end of step", "steady", "end_allocated", "allocated"),
    ("end of step", "steady", "end_reserved", "reserved"),
)


def rows_of(name, job, plan, measured):
    """The rows of one measured job. What the whole process holds is one of them only where
    no rank was faked and no other process was seen on the GPU."""
    common = _common(name, _as_run(job, measured), plan, measured)
    notes = (
        f"torch={measured['torch']}; transformers={measured['transformers']};"
        f" retries={measured['retries']}"
    )
    rows = [
        _row(common, name, moment, gauge, measured[step][figure], notes)
        for moment, step, figure, gauge in FIGURES
    ]
    alone = measured["processes"] in (0, 1)
    if plan.world_size == 1 and alone:
        rows.append(_row(common, name, "whole run", "device", measured["device_bytes"], notes))
    return rows


def why_no_device(plan, measured):
    """Why a measurement has no row of the device's memory; empty where it has."""
    if plan.world_size > 1:
        return "ranks are faked, so NCCL's memory is missing"
    if measured["processes"] is None:
        return "nvidia-smi does not answer"
    return "other processes are on the GPU" if measured["processes"] > 1 else ""


def write(path, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        out = csv.DictWriter(file, COLUMNS, restval="")
        out.writeheader()
        out.writerows(rows)


def _as_run(job, measured):
    """The job with the torch that ran it, so that its era is the right one."""
    release = ".".join(re.findall(r"\d+", measured["torch"])[:2])
    runtime = job.get("runtime", {})
    versions = {"torch": release, **runtime.get("versions", {})}
    return {**job, "runtime": {**runtime, "versions": versions}}


def _common(name, job, plan, measured):
    training = job["training"]
    return {
        "source_url_or_repo_path": "tests/accuracy/measure",
        "model": job["model"].get("name", name),
        "params_b": f"{measured['parameter_count'] / 1e9:.4f}",
        "gpu": measured["gpu"],
        "num_gpus": plan.world_size,
        "framework": "fsdp2" if plan.framework == "fsdp2" else "ddp",
        "dp": plan.world_size,
        "fsdp_shard": plan.shard_group_size if plan.framework == "fsdp2" else "",
        "zero_stage": job.get("parallelism", {}).get("zero_stage", ""),
        "precision": training.get("precision", {}).get("preset", "bf16-mixed"),
        "optimizer": plan.optimizer,
        "seq_len": plan.sequence_length,
        "micro_batch": plan.micro_batch_size,
        "grad_accum": plan.micro_batch_count,
        "recompute": training.get("recompute", {}).get("mode", "none"),
        "attention": plan.attention,
        "unit": "B",
        "job": json.dumps(job, separators=(",", ":")),
    }


def _row(common, name, moment, gauge, value, notes):
    return {
        **common,
        "id": f"measured-{name}:{moment.replace(' ', '_')}_{gauge}",
        "measured_value": value,
        "what_is_measured": gauge,
        "notes": f"grade=A; moment={moment}; {notes}",
    }
