#!/usr/bin/env python3
"""Writes the table of speeds from measured step times.

    fit_speed.py --plimsoll build/client/plimsoll                                  prints the fit
    fit_speed.py --plimsoll ... --write server/catalog/speed.yaml
    fit_speed.py --plimsoll ... --data FOLDER --write site.yaml                    a site's own runs
    fit_speed.py --plimsoll ... --folds                                            on models not seen

One set of constants for each GPU and one for each framework, fitted at once (speed_fit.py). What
no row tells of stays at its start. A GPU without rows has none of its own: the table says by which
rule it is taken.
"""

import argparse
import collections
import datetime
import math
import pathlib
import sys
import tempfile

import accuracy
import calibrate
import figures
import speed
import speed_figures
import speed_fit
import speed_sets
import speed_tables

# What rows of a set weigh together, where not 1: why.
WEIGHTS = {
    speed_sets.NANOTRON_ALL: 0,  # degraded networks and slow pipelines, as the rows say
    "bigscience": 0.3,  # what differs is mostly heads of sizes that tensor cores lack
    "bigscience V100": 0.2,  # runs vary by up to 40 %, its authors say
    "papers, micro-batch not stated": 0.5,
    "card": 0,  # a kind of its own each, on one GPU, none of a size that people train
}
FULL_SET = 20  # rows, from which on a set has its whole weight
# GPUs without rows. Of the same chip: that one's. Else 0.85 of the best product that anyone
# measured, as a share of the peak. Source of these: ml-engineering's MAMF table.
SAME_CHIP = {
    "a100-80gb-pcie": "a100-80gb-sxm",
    "a100-40gb-pcie": "a100-40gb-sxm",
    "h800-80gb-sxm": "h100-80gb-sxm",
    "h200-141gb-sxm": "h100-80gb-sxm",
    "gh200-96gb": "h100-80gb-sxm",
}
BEST_PRODUCT = {"mi300x-192gb": 0.51, "mi325x-256gb": 0.60}
OF_BEST, OF_PEAK = 0.85, 0.6
UNMEASURED_SPREAD = 0.5
HEADER = """\
# What GPUs and frameworks reach of what the hardware could do: the constants
# behind predicted times. estimator/catalog/speed_table.h says what each is. Written by
# tests/accuracy/fit_speed.py: a set is fitted as a whole, so never mix two.
#
# gpus: by id. Efficiencies are shares of the catalog's figure (gpus.yaml).
# frameworks: by name of the API. measured: true where jobs were measured; spread:
# nine of ten measured times are within 1 + this. other_: what is not listed.
"""


def parse_flags(argv):
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("--plimsoll", required=True, help="the program whose times are fitted")
    flags.add_argument("--data", default=accuracy.HERE / "data", help="folder of CSV files")
    flags.add_argument("--id", default=f"measured-{datetime.date.today()}", help="the table's name")
    flags.add_argument("--rounds", type=int, default=20, help="the most steps of the fit")
    flags.add_argument("--write", help="write the table to this YAML file")
    flags.add_argument("--folds", action="store_true", help="errors on models not seen, instead")
    flags.add_argument("--write-folds", help="put those between the markers of this file")
    return flags.parse_args(argv)


def set_of(row):
    """The set that a row is fitted in: the narrowest."""
    return speed_sets.sets_of(row)[-1]


def runs_of(todo):
    counts = collections.Counter(set_of(row) for row, _, _ in todo)
    runs = []
    for row, request, seconds in todo:
        name = set_of(row)
        weight = WEIGHTS.get(name, 1) * min(1, counts[name] / FULL_SET) / counts[name]
        owners = {
            "gpus": request["job"]["cluster"]["gpu"],
            "frameworks": speed_sets.framework_of(request["job"]),
        }
        runs.append(speed_fit.Run(owners, seconds, weight))
    return runs


def predictor(program, todo):
    """Seconds of each run by a trial table; a job that is refused ends the fit."""
    requests = [request for _, request, _ in todo]

    def predict(table):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
            file.write(yaml_of(table, {}, "trial"))
            file.flush()
            answers = speed.ask(program, requests, file.name, "summary")
        return [speed.seconds_of(answer) for answer in answers]

    return predict


def estimable(program, todo):
    """The rows that the program answers."""
    answers = speed.ask(program, [request for _, request, _ in todo], None, "summary")
    return [one for one, answer in zip(todo, answers) if "error" not in answer]


def residuals(runs, seconds):
    """By kind and owner, of rows that weigh: (rows, median error, what nine of ten are within)."""
    errors = collections.defaultdict(list)
    for run, predicted in zip(runs, seconds):
        for kind, owner in run.owners.items():
            if run.weight:
                errors[kind, owner].append(math.exp(abs(math.log(predicted / run.measured))) - 1)
    return {
        key: (len(found), figures.percentile(found, 0.5), nine_of_ten(found))
        for key, found in errors.items()
    }


def nine_of_ten(errors):
    """What the next error is below in nine of ten cases (split conformal prediction): of fewer
    than nine rows, that of a GPU without any."""
    place = math.ceil(0.9 * (len(errors) + 1))
    return sorted(errors)[place - 1] if place <= len(errors) else UNMEASURED_SPREAD


def yaml_of(table, told, name):
    """The table as YAML; `told` are the residuals that stand beside each set."""
    lines = [HEADER + f"id: {name}", f"date: {datetime.date.today()}"]
    lines.append('source: "fitted to measured step times by tests/accuracy/fit_speed.py"')
    lines.append("gpus:")
    gpus = dict(table["gpus"])
    lines += [_line(f"  {gpu}", v, *_told(told, "gpus", gpu)) for gpu, v in gpus.items()]
    lines += [_line(f"  {gpu}", *rest) for gpu, rest in _unmeasured(gpus).items()]
    lines.append(_line("other_gpu", by_rule(OF_PEAK), False, UNMEASURED_SPREAD, "by rule"))
    lines.append("frameworks:")
    frameworks = table["frameworks"]
    lines += [_line(f"  {f}", v, *_told(told, "frameworks", f)) for f, v in frameworks.items()]
    start = {c.name: c.start for c in speed_fit.FRAMEWORK_CONSTANTS}
    lines.append(_line("other_framework", start, False, UNMEASURED_SPREAD, "by rule"))
    return "\n".join(lines) + "\n"


def by_rule(matrix_efficiency):
    start = {constant.name: constant.start for constant in speed_fit.GPU_CONSTANTS}
    return {**start, "matrix_efficiency": matrix_efficiency}


def _unmeasured(gpus):
    """GPUs without rows: {id: (constants, measured, spread, source)}."""
    made = {}
    for gpu, like in SAME_CHIP.items():
        if gpu not in gpus and like in gpus:
            made[gpu] = (gpus[like], False, UNMEASURED_SPREAD, f"spec-only: as {like}, the same chip")
    for gpu, share in BEST_PRODUCT.items():
        if gpu not in gpus:
            words = f"spec-only: {OF_BEST} of the best product measured, {share} of the peak"
            made[gpu] = (by_rule(OF_BEST * share), False, UNMEASURED_SPREAD, words)
    return made


def _told(told, kind, owner):
    if (kind, owner) not in told:
        return False, UNMEASURED_SPREAD, "not fitted"
    rows, median, tail = told[kind, owner]
    return True, tail, f"{rows} rows: median {100 * median:.1f} %, nine of ten {100 * tail:.0f} %"


def _line(name, values, measured, spread, source):
    words = [f"{key}: {float(f'{value:.4g}')!r}" for key, value in values.items()]
    words += [f"measured: {str(measured).lower()}", f"spread: {max(0.02, spread):.2f}"]
    return f'{name}: {{{", ".join(words)}, source: "{source}"}}'


def folds(todo, runs, predict, rounds):
    """Errors of each row under a table that was fitted without its model: results by set."""
    models = [calibrate.model_of(request) for _, request, _ in todo]
    dealt = calibrate.assign_folds([{"model": model} for model in models])
    held_out = [None] * len(runs)
    for fold in range(calibrate.FOLDS):
        say(f"fold {fold + 1} of {calibrate.FOLDS}")
        seen = [
            run if dealt[model] != fold else speed_fit.Run(run.owners, run.measured, 0)
            for run, model in zip(runs, models)
        ]
        table = speed_fit.fit(speed_fit.starting_table(runs), seen, predict, rounds, say)
        for i, seconds in enumerate(predict(table)):
            if dealt[models[i]] == fold:
                held_out[i] = seconds
    return [
        {"set": name, "id": row.id, "measured": run.measured, "predicted": seconds}
        for (row, _, _), run, seconds in zip(todo, runs, held_out)
        for name in speed_sets.sets_of(row)
    ]


def say(words):
    print(words, file=sys.stderr, flush=True)


def main(argv):
    flags = parse_flags(argv)
    todo = estimable(flags.plimsoll, speed.collect(flags.data)[0])
    runs, predict = runs_of(todo), predictor(flags.plimsoll, todo)
    if flags.folds:
        sets = speed_figures.summarize_sets(folds(todo, runs, predict, flags.rounds), [])
        print(speed_tables.plain_sets(sets))
        if flags.write_folds:
            speed.rewrite(flags.write_folds, speed_tables.folds(sets), speed_tables.FOLDS_MARKERS)
        return 0
    table = speed_fit.fit(speed_fit.starting_table(runs), runs, predict, flags.rounds, say)
    text = yaml_of(table, residuals(runs, predict(table)), flags.id)
    if flags.write:
        pathlib.Path(flags.write).write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
