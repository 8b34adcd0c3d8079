"""Which set a row of measured speed belongs to, its features, and the published tables."""

import math

import calibrate
from speed_jobs import MICRO_BATCH_TAKEN

NANOTRON_ALL, NANOTRON_OK = "nanotron, all", "nanotron, cal=ok"
SETS = {
    "usp": NANOTRON_ALL,
    "vts": "vtrain_single_node",
    "vtm": "vtrain_multi_node",
    "llmf": "mosaicml",
    "smx": "megatron_b200",
    "bsc": "bigscience",
    "bsv": "bigscience V100",
    "bs1": "bigscience V100",
    "titan": "torchtitan",
    "mbr": "megatron_bridge",
    "mbs": "megatron_bridge",
    "fold": "moe_folding",
    "nemo": "nemo",
    "nml": "nemo",
    "nlong": "nemo",
    "card": "card",
}
# Percent: what the project wants of a set's errors, and of the time that a choice loses.
TARGETS = {
    "mosaicml": {"median": 5},
    "vtrain_single_node": {"median": 5},
    "vtrain_multi_node": {"median": 5},
    "megatron_b200": {"median": 5},
    "megatron_bridge": {"median": 10},
    "moe_folding": {"median": 10},
    "nemo": {"median": 10},
    NANOTRON_OK: {"median": 10, "p90": 25},
}
CHOICE_TARGETS = {
    "vtrain_multi_node": {"mean": 3},
    "vtrain_single_node": {"mean": 4},
    NANOTRON_OK: {"median": 1, "mean": 10},
}
# Sets in which many configurations of the same training were measured.
CHOICES = (
    NANOTRON_ALL, NANOTRON_OK, "vtrain_multi_node", "vtrain_single_node", "bigscience",
)
# Tables that papers and documents publish, by the ids of their rows.
TABLES = {
    "sc21": "Narayanan et al. 2021, table 1",
    "sc21z": "Narayanan et al. 2021, table 2",
    "kor": "Korthikanti et al. 2022",
    "mlm20": "Megatron-LM's README of 2020 and 2021",
    "mlm24": "Megatron-LM's README of 2024",
    "mgs": "MegaScale, Megatron-LM's rows",
    "nem4": "Nemotron-4 340B",
    "lla3": "Llama 3",
    "titan": "torchtitan",
    "mbr": "Megatron Bridge",
    "mbs": "Megatron Bridge, single changes",
}


def sets_of(row):
    if row.family in MICRO_BATCH_TAKEN and row.family not in SETS:
        return ["papers, micro-batch not stated"]
    name = SETS.get(row.family, "papers")
    return [name] + ([NANOTRON_OK] if row.family == "usp" and "cal=ok" in row.notes else [])


def features_of(row, job):
    """What residuals are broken down by: the knobs that a search turns."""
    training, degrees = job["training"], job["parallelism"]
    return {
        "tensor parallel": str(degrees["tensor_parallel_size"]),
        "pipeline parallel": str(degrees["pipeline_parallel_size"]),
        "data parallel": _band(degrees["data_parallel_size"]),
        "micro-batch": _band(training["micro_batch_size"]),
        "sequence": str(training["sequence_length"]),
        "recompute": training.get("recompute", {}).get("mode", "none"),
        "zero stage": str(degrees["zero_stage"]),
        "gpus": _band(gpu_count(job)),
        "gpu": job["cluster"]["gpu"],
        "framework": framework_of(job),
        "model": row.text("model"),
        "era": row.note(r"(after_pp_fix=\w+)", ""),
        "network": _network(row),
        "suspect": suspect_for(row),
    }


def suspect_for(row):
    """Why a nanotron row is `cal=suspect`; empty for all others."""
    if "cal=suspect" not in row.notes:
        return ""
    pipeline = row.number("pp") > 1
    if pipeline and "after_pp_fix=False" in row.notes:
        return "pipeline before its fix"
    if row.number("num_gpus") >= 32 and _all_reduce_rate(row) < 130:
        return "slow network"
    if pipeline and row.number("tp") >= 4:
        return "pipeline with TP of 4 or more"
    return "other"


def _all_reduce_rate(row):
    """GB/s over all GPUs, by the run's own test of its network."""
    return float(row.note(r"world AR/AG/RS ([\d.]+)", "inf"))


def _band(size):
    """Powers of two: 5 to 8 is `8`."""
    return str(1 << (size - 1).bit_length())


def _network(row):
    """GB/s of nanotron's own all-reduce over all GPUs, where they are more than one node."""
    rate = _all_reduce_rate(row)
    return f"up to {_band(int(rate) + 1)}" if rate < math.inf else ""


def framework_of(job):
    return calibrate.framework_of({"job": job})


def gpu_count(job):
    degrees = job["parallelism"]
    return (
        degrees["data_parallel_size"]
        * degrees["tensor_parallel_size"]
        * degrees["pipeline_parallel_size"]
        * degrees.get("context_parallel_size", 1)
    )


def choice_of(job):
    """What runs must share to be a choice: the training run and its GPUs."""
    training = job["training"]
    return (
        calibrate.model_of({"job": job}),
        job["cluster"]["gpu"],
        gpu_count(job),
        training["global_batch_size"],
        training["sequence_length"],
    )
