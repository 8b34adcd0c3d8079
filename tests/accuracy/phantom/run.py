#!/usr/bin/env python3
"""Rows of ../data/phantom.csv by `plimsoll measure`: bytes of both, and how far they are apart.

    run.py [ROW...]        d01, d08, ... ; some of each kind where none is named

The rows were made by a prototype, of the same PyTorch. Run again, it gives what this gives, to the
byte, where a job has one GPU; of the rows both are some 0.01 % (reserved: 0.15 %) apart, with the
same bytes requested, for a reason that is not known. Rows of several ranks ran in torch's fake
process group; here NCCL's own code runs.
PLIMSOLL: the command line; build/client/plimsoll where it is not set.
"""

import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PLIMSOLL = os.environ.get("PLIMSOLL", str(ROOT / "build" / "client" / "plimsoll"))
DATA = HERE.parent / "data"
TORCH = "2.15"
ROWS = ("d01", "d04", "d08", "d16", "d21", "d26", "d28", "d29", "d35")
# How far apart may be, of the row.
LIMITS = {"allocated": 0.0005, "reserved": 0.0075}


def rows_of(name):
    """The row of each gauge."""
    with (DATA / "phantom.csv").open(encoding="utf-8") as file:
        found = {row["what_is_measured"]: row for row in csv.DictReader(file)
                 if row["id"].startswith(f"phantom-{name}-{TORCH}-")}
    if set(found) != set(LIMITS):
        raise SystemExit(f"{name}: no row of torch {TORCH}")
    return found


def measure(row):
    """What the last step took."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(row, file)
        file.flush()
        command = [PLIMSOLL, "measure", "--gpu", "h100-80gb-sxm", "--gpus", row["world"], "-o",
                   "json", "--", sys.executable, "-B", str(HERE / "train.py"),
                   str(DATA / "phantom" / f"{row['config']}.json"), file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)["lastStep"]


def main():
    far = 0
    print(f"{'row':6} {'wrapper':8} {'gauge':10} {'prototype':>15} {'measure':>15} {'apart':>9}")
    for name in sys.argv[1:] or ROWS:
        rows = rows_of(name)
        answer = measure(rows["allocated"])
        for gauge, limit in LIMITS.items():
            row = rows[gauge]
            wanted, got = int(row["measured_value"]), int(answer[f"{gauge}Bytes"])
            apart = got / wanted - 1
            far += abs(apart) > limit
            print(f"{name:6} {row['wrapper']:8} {gauge:10} {wanted:15,} {got:15,} {apart:9.4%}",
                  flush=True)
    return 1 if far else 0


if __name__ == "__main__":
    sys.exit(main())
