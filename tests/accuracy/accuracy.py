#!/usr/bin/env python3
"""Judges Plimsoll by measured jobs, through its command line.

    accuracy.py --plimsoll build/client/plimsoll                     the committed rows
    accuracy.py --plimsoll build/client/plimsoll --data FOLDER       any other rows

Every row is estimated or refused with a reason; none is left out.
"""

import argparse
import collections
import csv
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import bigscience
import bigscience_tables
import cards
import figures
import finetuning
import measured
import megatron_ci
import megatron_runs
import nanotron
import own_runs
import phantom
import reported_runs
import torchtitan
import verdicts

HERE = pathlib.Path(__file__).resolve().parent
TIMEOUT = "600s"  # of all jobs of one call: a busy machine needs more than the program's default
MODULES = (
    nanotron,
    bigscience,
    bigscience_tables,
    megatron_ci,
    megatron_runs,
    torchtitan,
    finetuning,
    own_runs,
    phantom,
    cards,
    reported_runs,
)
SOURCES = {family: module for module in MODULES for family in module.FAMILIES}


def parse_flags(argv):
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("--plimsoll", required=True, help="the program to judge")
    flags.add_argument("--data", default=HERE / "data", help="folder of CSV files")
    flags.add_argument("--only", help="only rows whose id matches this regular expression")
    flags.add_argument("--rows", help="write each row's figures to this CSV file")
    flags.add_argument("--jobs", help="write the jobs to this JSON-lines file, ids beside it")
    flags.add_argument("--write", help="write the figures of each set to this JSON file")
    flags.add_argument("--write-page", help="put the table between the markers of this file")
    flags.add_argument("--check", help="fail where a set is worse than in this JSON file")
    flags.add_argument("--brief", action="store_true", help="print no breakdown by feature")
    return flags.parse_args(argv)


def collect(folder, only):
    """Rows to estimate (row, source, request), refusals, and rows of no set by file."""
    todo, refusals, setless = [], [], collections.Counter()
    for name, rows in measured.read_folder(folder).items():
        for row in rows:
            if only and not re.search(only, row.id):
                continue
            source = SOURCES.get(row.family)
            if source is None:
                setless[name] += 1
                continue
            try:
                if not row.ran_out_of_memory():
                    row.measured_bytes()
                todo.append((row, source, source.request_of(row)))
            except measured.Refused as refusal:
                refusals += _refusals(row, source, str(refusal))
    return todo, refusals, setless


def _refusals(row, source, reason):
    """One refusal for each set of a row, and one for the verdict's."""
    common = {"id": row.id, "reason": reason, "outcome": verdicts.outcome(row)}
    sets = [] if row.ran_out_of_memory() else source.sets_of(row)
    refused = [{"set": name, "of": "figures", **common} for name in sets]
    name = _verdict_set(row, source)
    return refused + ([{"set": name, "of": "verdicts", **common}] if name else [])


def _verdict_set(row, source):
    return source.verdict_set(row) if hasattr(source, "verdict_set") else None


def estimate(program, requests, *flags):
    """The answers of `plimsoll estimate --jobs`, in order, field names as in the proto."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as jobs:
        jobs.writelines(json.dumps({"detail": "replay", **request}) + "\n" for request in requests)
        jobs.flush()
        command = [program, "estimate", "--jobs", jobs.name, "-o", "jsonl", "--timeout", TIMEOUT]
        command += flags
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    answers = [snake(json.loads(line)) for line in done.stdout.splitlines() if line.strip()]
    if done.returncode not in (0, 2) or len(answers) != len(requests):
        raise SystemExit(
            f"{' '.join(command)}: exit {done.returncode}, {len(answers)} answers to"
            f" {len(requests)} jobs\n{done.stderr}"
        )
    return answers


def snake(value):
    """ProtoJSON's lowerCamelCase names as the proto has them."""
    if isinstance(value, list):
        return [snake(item) for item in value]
    if isinstance(value, dict):
        return {_snake_name(name): snake(item) for name, item in value.items()}
    return value


def _snake_name(name):
    return re.sub(r"[A-Z]", lambda letter: "_" + letter.group().lower(), name)


def error_reason(answer):
    """Why the program refused a job, without the numbers, so that alike ones group."""
    error = answer["error"]
    text = error if isinstance(error, str) else error.get("message", "no message")
    return "plimsoll: " + re.sub(r"\d+", "N", text).replace("\n", " / ")


def judge(todo, answers):
    """One result per set of each row that was estimated, its verdict, and the refusals."""
    results, judged, refusals = [], [], []
    for (row, source, _), answer in zip(todo, answers):
        if "error" in answer:
            refusals += _refusals(row, source, error_reason(answer))
            continue
        name = _verdict_set(row, source)
        if name:
            judged.append(
                {
                    "set": name,
                    "id": row.id,
                    "outcome": verdicts.outcome(row),
                    "verdict": verdicts.verdict_of(answer),
                    "features": source.features_of(row),
                }
            )
        if row.ran_out_of_memory():
            continue
        prediction = source.predict(row, answer)
        for name in source.sets_of(row):
            results.append(
                {
                    "set": name,
                    "id": row.id,
                    "measured": row.measured_bytes(),
                    "predicted": prediction.expected,
                    "bound": prediction.bound,
                    "gauge": prediction.gauge,
                    "features": source.features_of(row),
                    "extra": prediction.extra,
                }
            )
    return results, judged, refusals


def write_rows(path, results):
    """A CSV line per row and set, the worst first."""
    keys = list(dict.fromkeys(key for r in results for key in (*r["features"], *r["extra"])))
    error = lambda r: 100 * (r["predicted"] / r["measured"] - 1)
    with open(path, "w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        head = ["set", "id", "error_percent", "measured", "predicted", "difference_mib", "bound"]
        out.writerow(head + keys)
        for r in sorted(results, key=lambda r: (r["set"], -abs(error(r)))):
            more = {**r["features"], **r["extra"]}
            difference = (r["predicted"] - r["measured"]) / 2**20
            out.writerow(
                [r["set"], r["id"], f"{error(r):.3f}", round(r["measured"]), r["predicted"]]
                + [f"{difference:.1f}", round(r["bound"])]
                + [more.get(key, "") for key in keys]
            )


def write_jobs(path, todo):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(request) + "\n" for _, _, request in todo)
    with open(f"{path}.ids", "w", encoding="utf-8") as file:
        file.writelines(row.id + "\n" for row, _, _ in todo)


def constants():
    """The table of what is fitted or inferred, as estimator/README.md has it."""
    page = (HERE.parents[1] / "estimator" / "README.md").read_text(encoding="utf-8")
    heading = "## Constants that are not read off a source\n"
    section = page.split(heading)[1].split("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return figures.align([[cell.strip() for cell in row] for row in rows if "---" not in row[0]])


def report(flags, now, matrices):
    """Writes what the flags ask for; returns the exit status."""
    if flags.write:
        text = json.dumps({**now, "verdicts": matrices}, indent=2) + "\n"
        pathlib.Path(flags.write).write_text(text, encoding="utf-8")
    if flags.write_page:
        page = pathlib.Path(flags.write_page)
        old = page.read_text(encoding="utf-8")
        new = figures.write_between_markers(old, figures.markdown(now) + "\n" + verdicts.markdown(matrices))
        page.write_text(new, encoding="utf-8")
    if not flags.check:
        return 0
    if not pathlib.Path(flags.check).exists():
        raise SystemExit(f"{flags.check}: no committed figures; make them with --write")
    committed = json.loads(pathlib.Path(flags.check).read_text(encoding="utf-8"))
    worse = verdicts.regressions(matrices, committed.pop("verdicts", {}))
    worse += figures.regressions(now, committed)
    for line in worse:
        print(f"worse: {line}", file=sys.stderr)
    return 1 if worse else 0


def main(argv):
    flags = parse_flags(argv)
    todo, refusals, setless = collect(flags.data, flags.only)
    if flags.jobs:
        write_jobs(flags.jobs, todo)
    if not todo and not refusals:
        raise SystemExit(f"{flags.data}: no rows of a known set")
    answers = estimate(flags.plimsoll, [request for _, _, request in todo]) if todo else []
    results, judged, more = judge(todo, answers)
    refusals += more
    now = figures.summarize_sets(results, [r for r in refusals if r["of"] == "figures"])
    matrices = verdicts.summarize(judged, [r for r in refusals if r["of"] == "verdicts"])
    print(figures.plain(now, [] if flags.brief else figures.by_feature(results)))
    print(verdicts.plain(matrices, [] if flags.brief else verdicts.by_feature(judged)))
    if not flags.brief:
        print(constants())
    for name, count in sorted(setless.items()):
        print(f"{name}: {count} rows belong to no set yet")
    if flags.rows:
        write_rows(flags.rows, results)
    return report(flags, now, matrices)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
