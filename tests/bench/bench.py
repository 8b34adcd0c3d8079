#!/usr/bin/env python3
"""Measures Plimsoll against the budgets of its design and prints one table.

    tests/bench/bench.py BUILD_DIR             some minutes; exits 1 where a budget is missed
    tests/bench/bench.py BUILD_DIR --only PART one of estimate, allocator, grpc, server,
                                              stream
    tests/bench/bench.py BUILD_DIR --smoke     runs everything briefly and judges no time

Build in Release, on a machine that does nothing else. Medians of repetitions.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent


class Bench:
    """The programs of one build, and how long to run them."""

    def __init__(self, build, smoke):
        self.build = pathlib.Path(build).resolve()
        self.smoke = smoke
        self.repetitions = 1 if smoke else 7
        self.core = max(os.sched_getaffinity(0))

    def program(self, *path):
        return str(self.build.joinpath(*path))

    def on_one_core(self):
        os.sched_setaffinity(0, {self.core})

    def google(self, name, one_core):
        """Runs a Google Benchmark program; the median of each benchmark by name."""
        with tempfile.NamedTemporaryFile(suffix=".json") as out:
            subprocess.run(
                [self.program("tests", "bench", name), f"--benchmark_out={out.name}",
                 "--benchmark_out_format=json", f"--benchmark_repetitions={self.repetitions}",
                 f"--benchmark_min_time={0.001 if self.smoke else 0.5}",
                 "--benchmark_enable_random_interleaving=true"],
                check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                preexec_fn=self.on_one_core if one_core else None)
            runs = json.load(open(out.name))["benchmarks"]
        for run in runs:
            if run.get("error_occurred"):
                raise RuntimeError(f"{run['name']}: {run['error_message']}")
        medians = {}
        for name in {run["run_name"] for run in runs}:
            values = [run for run in runs
                      if run["run_name"] == name and run["run_type"] == "iteration"]
            medians[name] = {key: median(run[key] for run in values)
                             for key in ("real_time", "cpu_time", "items_per_second", "legal")
                             if key in values[0]}
        return medians


def median(values):
    values = sorted(values)
    return values[len(values) // 2]


class Server:
    """plimsoll-server as a child on a free port, and the time until it serves."""

    def __init__(self, bench):
        begin = time.perf_counter()
        self.process = subprocess.Popen(
            [bench.program("server", "plimsoll-server"), "--listen", "127.0.0.1:0",
             "--http-listen", "127.0.0.1:0", "--drain-delay-ms", "0"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        line = self.process.stdout.readline()
        self.seconds_to_serve = time.perf_counter() - begin
        self.address = re.search(r"grpc (\S+)", line).group(1)

    def resident_mib(self, field):
        """Now (VmRSS), or the most that it ever was (VmHWM)."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(field + r":\s+(\d+)", status).group(1)) / 1024

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def estimate_rows(bench):
    """Figures in microseconds of one core."""
    medians = bench.google("estimate_bench", one_core=True)
    us = {name: run["cpu_time"] for name, run in medians.items()}
    yield row("summary, dense 3D (175B, 8 stages)", us["Dense3D"], "<=", 5, "us")
    yield row("summary, 8B FSDP2", us["Fsdp2"], "<=", 5, "us")
    yield row("replay, 8B FSDP2", us["Replay8B"] / 1000, "<=", 5, "ms")
    yield row("replay, dense 3D, 16 stages", us["Replay16Stages"] / 1000, "<=", 40, "ms")
    yield row("replay, 2^20 GPUs against 8", us["ReplayGpus/1048576"] / us["ReplayGpus/8"], "<=",
              1.2, "x")
    for stages in (1, 8, 64):
        yield row(f"summary, {stages} stages", us[f"Stages/{stages}"], None, None, "us")
    yield row("summary, 126 layers / 8 layers", us["Layers/126"] / us["Layers/8"], "<=", 1.1, "x")
    yield row("summary, 2^20 GPUs / 8 GPUs", us[f"Gpus/{1 << 20}"] / us["Gpus/8"], "<=", 1.1, "x")


def recommend_rows(bench):
    """Searches of one core; what is returned is by summary, but where it says so."""
    medians = bench.google("recommend_bench", one_core=True)
    large, larger = medians["Search175B"], medians["Search405B"]
    yield row("recommend, 175B on 512 GPUs", large["cpu_time"], "<=", 100, "ms")
    yield row("recommend, 175B, five replayed", medians["Search175BReplay"]["cpu_time"], None, None,
              "ms")
    yield row("recommend, 405B on 16,384 GPUs", larger["cpu_time"], "<=", 500, "ms")
    yield row("recommend, 175B, legal", large["legal"], None, None, "jobs")
    yield row("recommend, 175B, legal a second", 1000 * large["legal"] / large["cpu_time"], None,
              None, "jobs/s")
    yield row("recommend, 16,384 GPUs / 1,024 GPUs", medians["SearchGpus/16384"]["cpu_time"]
              / medians["SearchGpus/1024"]["cpu_time"], "<=", 1.5, "x")


def allocator_rows(bench):
    """A pair is one allocation and one free; a replay two steps of 32 layers."""
    medians = bench.google("allocator_bench", one_core=True)
    for mode in ("native", "expandable"):
        yield row(f"allocator, pair, 300 free, {mode}",
                  medians[f"Pairs/{mode}/300"]["cpu_time"], "<=", 60, "ns")
        yield row(f"allocator, replay, {mode}", medians[f"Replay/{mode}"]["cpu_time"], "<=", 2000,
                  "us")


def grpc_rows(bench):
    medians = bench.google("grpc_bench", one_core=False)
    estimate, recall, empty = (
        medians[f"{name}OverGrpc/process_time/real_time"]["items_per_second"]
        for name in ("Estimate", "Recall", "Empty"))
    yield row("gRPC, jobs that differ", estimate, None, None, "calls/s")
    yield row("gRPC, one job again and again", recall, None, None, "calls/s")
    yield row("gRPC, empty call of the same size", empty, None, None, "calls/s")
    yield row("gRPC, jobs that differ / empty", estimate / empty, ">=", 0.8, "x")
    yield row("gRPC, one job again / empty", recall / empty, ">=", 0.8, "x")


def server_rows(bench):
    starts = []
    for _ in range(bench.repetitions):
        with Server(bench) as server:
            starts.append(1000 * server.seconds_to_serve)
    yield row("server, exec to serving", median(starts), "<=", 100, "ms")
    with Server(bench) as server:
        yield row("server, resident at rest", server.resident_mib("VmRSS"), None, None, "MiB")
        seconds = 0.2 if bench.smoke else 10
        load = subprocess.run([bench.program("tests", "bench", "bench_load"), server.address,
                               str(seconds)], check=True, capture_output=True, text=True)
        yield row("server, resident under load", server.resident_mib("VmHWM"), "<=", 64, "MiB")
        yield row("server, answers under load", int(load.stdout) / seconds, None, None, "calls/s")


def write_jobs(path, name, count):
    """`count` jobs like jobs/<name>.json that differ in micro-batch and sequence length."""
    base = json.loads((HERE / "jobs" / f"{name}.json").read_text())
    training = base["job"]["training"]
    sequence_length = training["sequence_length"]
    with open(path, "w") as file:
        for i in range(count):
            training["micro_batch_size"] = 1 << i % 3
            training["sequence_length"] = sequence_length // (1 + i % 2)
            file.write(json.dumps(base) + "\n")


def count_answers(bench, jobs):
    """Runs a file of jobs; how many answers there are, and how many are errors. Keeps none of
    them: room for all would be made on the time that is measured."""
    answers = errors = 0
    with subprocess.Popen(
            [bench.program("client", "plimsoll"), "estimate", "--jobs", jobs, "-o", "jsonl"],
            stdout=subprocess.PIPE, bufsize=1 << 20, preexec_fn=bench.on_one_core) as run:
        for line in run.stdout:
            answers += 1
            errors += line.startswith(b'{"error"')
    if run.returncode != 0:
        raise RuntimeError(f"estimate --jobs: exit code {run.returncode}")
    return answers, errors


def lines_per_second(bench, name, count):
    rates = []
    with tempfile.TemporaryDirectory() as folder:
        jobs = os.path.join(folder, "jobs.jsonl")
        write_jobs(jobs, name, count)
        for _ in range(min(bench.repetitions, 3)):
            begin = time.perf_counter()
            answers, errors = count_answers(bench, jobs)
            rates.append(count / (time.perf_counter() - begin))
            if answers != count or errors:
                raise RuntimeError(f"{count} jobs, {answers} answers, {errors} errors")
    return median(rates)


def stream_rows(bench):
    count = 200 if bench.smoke else 20000
    yield row("estimate --jobs, 8B FSDP2", lines_per_second(bench, "fsdp2_8b", count), ">=", 10000,
              "lines/s")
    yield row("estimate --jobs, dense 3D", lines_per_second(bench, "dense_3d", count), ">=", 10000,
              "lines/s")


def row(name, measured, relation, budget, unit):
    met = None
    if relation is not None:
        met = measured <= budget if relation == "<=" else measured >= budget
    return {"name": name, "measured": measured, "relation": relation, "budget": budget,
            "unit": unit, "met": met}


def print_row(row, smoke):
    budget = "" if row["relation"] is None else f"{row['relation']} {row['budget']:g}"
    verdict = "" if row["met"] is None or smoke else ("ok" if row["met"] else "MISSED")
    digits = 0 if row["measured"] >= 1000 else 2
    print(f"{row['name']:<36} {budget:>9} {row['measured']:>11,.{digits}f} {row['unit']:<8} "
          f"{verdict}".rstrip(), flush=True)


def main(argv):
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("build", help="folder of a Release build")
    flags.add_argument("--only", 
                       choices=("estimate", "recommend", "allocator", "grpc", "server", "stream"))
    flags.add_argument("--smoke", action="store_true", help="run briefly, judge no time")
    flags.add_argument("--json", help="write the rows to this file")
    flags = flags.parse_args(argv)
    bench = Bench(flags.build, flags.smoke)
    parts = {"estimate": estimate_rows, "recommend": recommend_rows, "allocator": allocator_rows, "grpc": grpc_rows,
             "server": server_rows, "stream": stream_rows}
    rows = []
    print(f"{'':<36} {'budget':>9} {'measured':>11}")
    for name, part in parts.items():
        if flags.only in (None, name):
            for row in part(bench):
                print_row(row, flags.smoke)
                rows.append(row)
    if flags.json:
        pathlib.Path(flags.json).write_text(json.dumps(rows, indent=1) + "\n")
    return 1 if not flags.smoke and any(row["met"] is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
