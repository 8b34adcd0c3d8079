#!/usr/bin/env python3
"""Runs rows of ../data/phantom*.csv on the GPU of this machine, and writes rows of what it held.

    card.py OUT.csv h100-80gb-sxm [--at-once N] [--alone] ROW...
    card.py ../data/card_h100.csv h100-80gb-sxm --alone phantom-d01-2.15
    card.py ../data/throughput/card.csv H200-SXM-141GB --times phantom-d01-2.15

--at-once: so many processes share the GPU, whose allocators do not see each other. --alone: one by
one, with what the device holds. --times: one by one, of tokens that differ, the median seconds of a
step behind the third, as rows of ../data/throughput, whose GPUs have names of their own. Needs
torch and transformers, and what the rows' programs need; nothing of Plimsoll but its hook.
`phantom_value`, what a phantom of the same versions held, is filled in by who runs that.
"""

import argparse
import concurrent.futures
import csv
import importlib.metadata
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE.parent / "data"
HOOK = HERE.parents[2] / "client" / "measure" / "hook"
TRAINERS = {"": "train.py", "hf-trainer": "train_hf.py", "trl": "train_trl.py"}
COLUMNS = (
    "id", "what_is_measured", "measured_value", "unit", "gpu", "phantom_value", "torch",
    "transformers", "config", "layers", "wrapper", "units", "world", "tp", "precision", "reduce",
    "reshard", "bucket_view", "micro_batch", "sequence", "accumulate", "kernel", "checkpointing",
    "optimizer", "implementation", "clip", "adapter", "quantization", "preference", "trainer",
    "loss", "liger", "trained", "engine", "offload", "linear", "cp", "method")
OF_A_SPEED = ("id", "source", "metric", "value", "gpu", "num_gpus", "tp", "seq_len", "global_batch")
MOST_SECONDS = 200
TIMED_STEPS = 9
UNTIMED_STEPS = 3  # kernels are chosen, states made, blocks found


def known_rows():
    """By id, without the gauge's name."""
    found = {}
    for path in sorted(DATA.glob("phantom*.csv")):
        with path.open(encoding="utf-8") as file:
            for row in csv.DictReader(file):
                name = row["id"].rsplit("-", 1)[0]
                found[name] = {key: value or "" for key, value in row.items()} | {"id": name}
    return found


def run(row, times=False):
    """The row, with what the hook wrote; with the end of what was said, where it failed."""
    more = {"CARD_TOKENS": "differ", "TRAIN_STEPS": str(TIMED_STEPS)} if times else {}
    with tempfile.TemporaryDirectory() as folder:
        return row, run_in(pathlib.Path(folder), row, more)


def run_in(folder, row, more):
    (folder / "row.json").write_text(json.dumps(row), encoding="utf-8")
    (folder / "results").mkdir()
    environment = {
        **os.environ, "PLIMSOLL_MEASURE_RESULTS": str(folder / "results"),
        "CARD_RANKS": str(int(row["world"]) * int(row.get("tp") or 1)),
        "PYTHONPATH": os.pathsep.join(
            [str(HERE / "card"), str(HOOK), os.environ.get("PYTHONPATH", "")]), **more}
    command = [sys.executable, "-B", str(HERE / TRAINERS[row.get("trainer", "")]),
               str(DATA / "phantom" / f"{row['config']}.json"), str(folder / "row.json")]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False,
                              env=environment, timeout=MOST_SECONDS)
        error = done.stderr[-500:]
    except subprocess.TimeoutExpired:
        error = f"longer than {MOST_SECONDS} s"
    answers = [json.loads(path.read_text()) for path in (folder / "results").glob("*.json")]
    answers = [answer for answer in answers if answer.get("steps")]
    return answers[0] if answers else {"error": error}


def versions_of_packages():
    versions = {name: importlib.metadata.version(name) for name in ("torch", "transformers")}
    return versions | {"torch": ".".join(versions["torch"].split(".")[:2])}


def why_not_timed(row, answer):
    if int(row["world"]) * int(row.get("tp") or 1) > 1:
        return "of several ranks, whose collectives send nothing"
    if "ends" in answer and len(answer["ends"]) != TIMED_STEPS:
        return "several optimizers, each of which ends a step"
    return ""


def speed_of(row, answer, gpu):
    ends = answer["ends"][UNTIMED_STEPS - 1:]
    seconds = statistics.median(end - start for start, end in zip(ends, ends[1:]))
    return {**row, **versions_of_packages(), "id": row["id"].replace("phantom-", "card-"),
            "source": "tests/accuracy/phantom/card.py", "metric": "step_s",
            "value": f"{seconds:.6f}", "gpu": gpu, "num_gpus": row["world"],
            "seq_len": row["sequence"],
            "global_batch": int(row["micro_batch"]) * int(row["accumulate"]) * int(row["world"])}


def rows_of(row, answer, gpu, alone):
    step = answer["steps"][-1]
    held = {"allocated": step["allocated"], "reserved": step["reserved"]}
    if alone and row["world"] == "1":
        held["device"] = answer["used"][-1]
    name = row["id"].removeprefix("phantom-")
    for gauge, measured in held.items():
        yield {**{column: row.get(column, "") for column in COLUMNS}, **versions_of_packages(),
               "id": f"card-{name}-{gauge}", "what_is_measured": gauge, "unit": "B", "gpu": gpu,
               "measured_value": measured}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("gpu")
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--times", action="store_true")
    parser.add_argument("ids", nargs="+")
    flags = parser.parse_args()
    known = known_rows()
    there = pathlib.Path(flags.out).exists()
    columns = list(dict.fromkeys(OF_A_SPEED + COLUMNS[6:])) if flags.times else COLUMNS
    at_once = 1 if flags.alone or flags.times else flags.at_once
    with open(flags.out, "a", newline="", encoding="utf-8") as file, \
            concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        out = csv.DictWriter(file, columns, restval="", extrasaction="ignore",
                             lineterminator="\n")
        if not there:
            out.writeheader()
        for row, answer in pool.map(lambda name: run(known[name], flags.times), flags.ids):
            if flags.times and why_not_timed(row, answer):
                answer = {"error": why_not_timed(row, answer)}
            if "error" not in answer:
                found = rows_of(row, answer, flags.gpu, flags.alone)
                out.writerows([speed_of(row, answer, flags.gpu)] if flags.times else found)
                file.flush()
            print(row["id"], answer.get("error") or answer["steps"][:1] + answer["steps"][-1:],
                  flush=True)


if __name__ == "__main__":
    main()
