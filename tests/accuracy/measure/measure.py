#!/usr/bin/env python3
"""Runs real training steps of Plimsoll jobs on this machine's GPU and writes what they held.

    measure.py JOB.yaml ... --write rows/mine.csv      then: accuracy.py --data rows
    measure.py JOB.yaml ... --smoke                    the same steps on the CPU, nothing written

Every job runs in a process of its own. Exit status: 0 all ran, 2 some were refused or failed.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import plan as plans
import rows

RUN = pathlib.Path(__file__).resolve().parent / "run.py"


def parse_flags(argv):
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("jobs", nargs="+", help="job files, YAML or JSON")
    what = flags.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", help="the CSV file of rows to write")
    what.add_argument("--smoke", action="store_true", help="run on the CPU, write nothing")
    what.add_argument("--plan", action="store_true", help="print what would run, as JSON")
    flags.add_argument("--python", default=sys.executable, help="a Python that has torch")
    return flags.parse_args(argv)


def run(plan, python, smoke):
    """The measurement of a plan, made by a process of its own; raises RuntimeError."""
    command = [python, "-B", str(RUN)] + (["--smoke"] if smoke else [])
    done = subprocess.run(
        command,
        input=json.dumps(dataclasses.asdict(plan)),
        env={**os.environ, **plan.environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise RuntimeError(lines[-1])
    return json.loads(done.stdout.splitlines()[-1])


def check_gpu(job, measured):
    """Refuses a measurement from another GPU than the job's: `cluster.gpu` against the
    memory that the catalog has for it, or `gpu_memory_bytes` against the real one."""
    cluster = job.get("cluster", {})
    stated = cluster.get("gpu_memory_bytes")
    if stated is not None and stated != measured["gpu_memory_bytes"]:
        raise plans.Refused(
            "cluster.gpu_memory_bytes", stated, f"this GPU has {measured['gpu_memory_bytes']}"
        )
    if "gpu" in cluster:
        gpus = plans.read_gpus()
        found = plans.gpu_of(measured["gpu"], gpus)
        if found is None or plans.gpu_of(cluster["gpu"], gpus) != found:
            raise plans.Refused("cluster.gpu", cluster["gpu"], f"this GPU is {measured['gpu']}")


def measure(path, flags):
    """The rows of one job file; raises Refused or RuntimeError."""
    job = plans.read_job(path)
    plan = plans.plan_of(job)
    if flags.plan:
        print(json.dumps(dataclasses.asdict(plan)))
        return []
    measured = run(plan, flags.python, flags.smoke)
    if flags.smoke:
        print(f"{path}: ran, {measured['parameter_count']} parameters")
        return []
    check_gpu(job, measured)
    peak = max(measured[step]["peak_allocated"] for step in ("first", "steady"))
    print(f"{path}: {peak / 2**30:.3f} GiB allocated on {measured['gpu']}")
    why = rows.why_no_device(plan, measured)
    if why:
        print(f"{path}: no row of the device's memory: {why}")
    return rows.rows_of(pathlib.Path(path).stem, job, plan, measured)


def main(argv):
    flags = parse_flags(argv)
    stems = [pathlib.Path(path).stem for path in flags.jobs]
    if len(set(stems)) < len(stems):
        raise SystemExit("two job files have one name; rows are told apart by it")
    found, failed = [], 0
    for path in flags.jobs:
        try:
            found += measure(path, flags)
        except (plans.Refused, RuntimeError, OSError, ValueError) as error:
            failed += 1
            print(f"{path}: {error}", file=sys.stderr)
        if flags.write and found:  # what was measured outlives the jobs after it
            rows.write(flags.write, found)
    return 2 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
