#!/usr/bin/env python3
"""Judges Plimsoll's step times by measured speeds, through its command line.

    speed.py --plimsoll build/client/plimsoll                     the committed rows
    speed.py --plimsoll build/client/plimsoll --data FOLDER       any other rows
    speed.py --plimsoll build/client/plimsoll --speed SPEED.yaml  with other constants

Every row is estimated or refused with a reason; none is left out. Nothing is searched: the job
is asked for as it was run.
"""

import argparse
import csv
import json
import pathlib
import subprocess
import sys
import tempfile

import accuracy
import figures
import measured
import nanotron
import speed_figures
import speed_jobs
import speed_rows
import speed_sets
import speed_tables
import verdicts
from measured import Refused


def parse_flags(argv):
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("--plimsoll", required=True, help="the program to judge")
    flags.add_argument("--data", default=accuracy.HERE / "data", help="folder of CSV files")
    flags.add_argument("--speed", help="a table of constants for the program's own")
    flags.add_argument("--rows", help="write each row's figures and terms to this CSV file")
    flags.add_argument("--tables", help="write the published tables, row by row, to this file")
    flags.add_argument("--write", help="write the figures to this JSON file")
    flags.add_argument("--write-page", help="put the tables between the markers of this file")
    flags.add_argument("--write-detail", help="put residuals and refusals between those of this file")
    flags.add_argument("--check", help="fail where a set is worse than in this JSON file")
    flags.add_argument("--brief", action="store_true", help="print no breakdown by feature")
    return flags.parse_args(argv)


def collect(folder):
    """(row, request, measured seconds) of each run, and the refusals."""
    todo, refusals = [], []
    for rows in speed_rows.read_folder(folder).values():
        kept, others = speed_rows.one_figure_each(rows)
        for row in rows:
            refusals += _refusals(row, speed_figures.OTHER_FIGURE) if row.id in others else []
        for row in kept:
            try:
                request = speed_jobs.request_of(row)
                todo.append((row, request, speed_rows.step_seconds(row, request["job"])))
            except Refused as refusal:
                refusals += _refusals(row, str(refusal))
    return todo, refusals


def _refusals(row, reason):
    return [{"set": name, "row": row, "reason": reason} for name in speed_sets.sets_of(row)]


def collect_out_of_memory(folder):
    """(row, request) of nanotron's configurations that ran out of memory."""
    todo = []
    for rows in measured.read_folder(pathlib.Path(folder) / "oom").values():
        for row in rows:
            if row.family != "uspoom":
                continue
            try:
                todo.append((row, nanotron.request_of(row)))
            except Refused:
                pass  # the memory sets count them
    return todo


def ask(program, requests, table=None, detail="replay"):
    """The answers of `plimsoll recommend --jobs` to jobs as they are, in order, names as in the
    proto. `detail` is that of the memory, hence of the verdict alone."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as jobs:
        pinned = {"frozen": ["*"], "max_results": 0, "detail": detail}
        jobs.writelines(json.dumps({**request, **pinned}) + "\n" for request in requests)
        jobs.flush()
        command = [program, "recommend", "--jobs", jobs.name, "-o", "jsonl"]
        command += ["--speed", str(table)] if table else []
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    answers = [accuracy.snake(json.loads(line)) for line in lines]
    if done.returncode not in (0, 2) or len(answers) != len(requests):
        raise SystemExit(
            f"{' '.join(command)}: exit {done.returncode}, {len(answers)} answers to"
            f" {len(requests)} jobs\n{done.stderr}"
        )
    return answers


def seconds_of(answer):
    return float(answer["requested"]["step_time"]["seconds"])


def terms_of(answer):
    """Seconds by part, named as the enum without its prefix: `matrix products`."""
    return {
        t["term"].removeprefix("STEP_TERM_").replace("_", " ").lower(): float(t["seconds"])
        for t in answer["requested"]["step_time"]["terms"]
    }


def judge(todo, answers):
    """A result for each set of each row, and the refusals."""
    results, refusals = [], []
    for (row, request, seconds), answer in zip(todo, answers):
        if "error" in answer:
            refusals += _refusals(row, accuracy.error_reason(answer))
            continue
        results += [
            {
                "set": name,
                "id": row.id,
                "row": row,
                "measured": seconds,
                "predicted": seconds_of(answer),
                "terms": terms_of(answer),
                "verdict": verdicts.verdict_of(answer["requested"]),
                "choice": speed_sets.choice_of(request["job"]),
                "features": speed_sets.features_of(row, request["job"]),
            }
            for name in speed_sets.sets_of(row)
        ]
    return results, refusals


def judge_out_of_memory(todo, answers):
    return [
        {
            "id": row.id,
            "measured": None,
            "predicted": seconds_of(answer),
            "verdict": verdicts.verdict_of(answer["requested"]),
            "choice": speed_sets.choice_of(request["job"]),
        }
        for (row, request), answer in zip(todo, answers)
        if "error" not in answer
    ]


def summarize(results, refusals, out_of_memory):
    chosen = {}
    for name in speed_sets.CHOICES:
        made = speed_figures.choices([r for r in results if r["set"] == name])
        chosen.update({name: made} if made else {})
    nano = [r for r in results if r["set"] == "nanotron, all"]
    return {
        "sets": speed_figures.summarize_sets(results, refusals),
        "choices": chosen,
        "failed": speed_figures.choices_that_fail(nano + out_of_memory),
    }


def write_rows(path, results):
    """Every row's figures, the largest errors of a set first."""
    features = list(dict.fromkeys(name for r in results for name in r["features"]))
    terms = list(dict.fromkeys(name for r in results for name in r["terms"]))
    with open(path, "w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        head = ["set", "id", "error_percent", "measured", "predicted", "verdict"]
        out.writerow(head + features + terms)
        for r in sorted(results, key=lambda r: (r["set"], -abs(speed_figures.error(r)))):
            out.writerow(
                [r["set"], r["id"], f"{speed_figures.error(r):.2f}", r["measured"], r["predicted"]]
                + [r["verdict"]]
                + [r["features"].get(name, "") for name in features]
                + [r["terms"].get(name, "") for name in terms]
            )


def write(flags, now, results, refusals):
    """Writes what the flags ask for."""
    if flags.rows:
        write_rows(flags.rows, results)
    if flags.tables:
        text = speed_tables.published(results, refusals)
        pathlib.Path(flags.tables).write_text(text, encoding="utf-8")
    if flags.write:
        pathlib.Path(flags.write).write_text(json.dumps(now, indent=2) + "\n", encoding="utf-8")
    if flags.write_page:
        rewrite(flags.write_page, speed_tables.markdown(now), speed_tables.MARKERS)
    if flags.write_detail:
        rewrite(flags.write_detail, speed_tables.detail(now, results), speed_tables.DETAIL_MARKERS)


def rewrite(path, text, markers):
    """Puts `text` between the markers of a file."""
    file = pathlib.Path(path)
    old = file.read_text(encoding="utf-8")
    file.write_text(figures.write_between_markers(old, text, markers), encoding="utf-8")


def check(flags, now):
    """The exit status: 1 where a set is worse than the committed figures."""
    if not flags.check:
        return 0
    if not pathlib.Path(flags.check).exists():
        raise SystemExit(f"{flags.check}: no committed figures; make them with --write")
    committed = json.loads(pathlib.Path(flags.check).read_text(encoding="utf-8"))
    worse = speed_figures.regressions(now, committed)
    for line in worse:
        print(f"worse: {line}", file=sys.stderr)
    return 1 if worse else 0


def main(argv):
    flags = parse_flags(argv)
    todo, refusals = collect(flags.data)
    if not todo:
        raise SystemExit(f"{flags.data}: no rows of measured speed")
    failed = collect_out_of_memory(flags.data)
    requests = [request for _, request, _ in todo] + [request for _, request in failed]
    answers = ask(flags.plimsoll, requests, flags.speed)
    results, more = judge(todo, answers[: len(todo)])
    now = summarize(results, refusals + more, judge_out_of_memory(failed, answers[len(todo) :]))
    print(speed_tables.plain(now, [] if flags.brief else speed_figures.by_feature(results)))
    write(flags, now, results, refusals + more)
    return check(flags, now)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
