#!/usr/bin/env python3
"""Writes the table of upper bounds from measured rows: what they held over what is expected.

    calibrate.py --plimsoll build/client/plimsoll                      prints what it would write
    calibrate.py --plimsoll ... --write server/catalog/calibration.yaml
    calibrate.py --plimsoll ... --data FOLDER --write site.yaml        a site's own jobs
    calibrate.py --plimsoll ... --folds                                coverage on models not seen

A row's score is 0 where the answer's own worst case (a full launch queue) covers it, else
measured / expected - 1. A share at risk r is the ceil((n + 1)(1 - r))-th smallest of n scores
(split conformal prediction). What loading a checkpoint may leave is no share's: it comes to the
bound of a resumed run beside it. A group of fewer rows than FULL is filled up to that weight with the
rows of all frameworks that are alike, so that what a few rows say is shrunk to what most do. A
group is a framework with or without tensor parallelism, as its collectives are what keeps memory
from being used again. A site's few rows are filled up with the committed rows of their group, where
there are such. Jobs of which nothing is known get the widest group's. A framework without rows of whole devices has the shares of its reserved memory.

Rows of a phantom, where real code ran and nothing was computed, make shares of `allocated` and
`reserved` beside these, of jobs such as they are of, for each framework and trainer of which LEAST
are known: the more of what the framework's rows ask for, what the trainer's do, and what the
framework's measured rows alone do, so that none is tightened below what a GPU has shown. `device`,
and so each verdict, rests on measured rows alone.
"""

import argparse
import collections
import datetime
import math
import pathlib
import sys
import tempfile

import accuracy
import figures
import phantom

RISKS = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
GAUGES = ("allocated", "reserved", "device")
DETAILS = ("replay", "summary")
FOLDS = 5
LEAST = 30  # rows of a phantom that make a group
PHANTOM_GAUGES = ("allocated", "reserved")
FULL = 199  # rows, at which the second greatest is the share at a risk of 1 %
# Rows that tell of something missing in the model, not of its spread, or of what another row tells:
# they make no share, but count as not covered. docs/findings.md.
GAPS = {
    "titan-0065": "tensor parallelism of early 2024 held 17 GiB more",
    "mcore-0546": "several optimizer instances resumed by an image of April 2026 held 0.3 GiB more",
    "mcore-0548": "the same, 0.8 GiB; gone in August",
    "fsdpq-0003": "as much reserved at 512 tokens as at 2,048 (fsdpq-0004): what loading left",
    "fsdpq-0016": "the figure of fsdpq-0025, printed for two GPUs",
}
# Shares of capacity at which jobs that ran out of memory are judged.
CAPACITY_STEPS = (0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.1, 0.12, 0.15, 0.2, 0.3, 0.5)


def parse_flags(argv):
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("--plimsoll", required=True, help="the program to calibrate")
    flags.add_argument("--data", default=accuracy.HERE / "data", help="folder of CSV files")
    flags.add_argument("--id", default=f"measured-{datetime.date.today()}", help="the table's name")
    flags.add_argument("--write", help="write the table to this YAML file")
    flags.add_argument("--folds", action="store_true", help="coverage on models not seen, instead")
    flags.add_argument("--write-page", help="put the coverage between the markers of this file")
    return flags.parse_args(argv)


def rows_of(folder):
    """Rows of real GPUs; and those of phantoms that are not kept back, of jobs that bounds of
    phantoms hold for (estimator/answer/margins.cc, RanAsOnPhantoms): nothing is offloaded."""
    todo, _, _ = accuracy.collect(folder, None)
    measured = [entry for entry in todo if entry[1] is not phantom]
    ran = [entry for entry in todo if entry[1] is phantom]
    return measured, [
        entry
        for entry in ran
        if entry[0].text("kept_back") != "True" and not entry[0].text("offload")
    ]


def flat_table(gauges, capacity):
    """A table with one share for all gauges, and one for the capacity."""
    lines = ["id: flat", "gpus: []", "risks: [0.01]", "shares:"]
    for detail in DETAILS:
        for gauge in GAUGES:
            lines.append(
                f"- {{gauge: {gauge}, detail: {detail}, rows: 0, shares: [{gauges}]}}"
            )
    lines.append(f"- {{gauge: capacity, detail: replay, rows: 0, shares: [{capacity}]}}")
    return "\n".join(lines) + "\n"


def ask(program, requests, table):
    """The answers under a calibration."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
        file.write(table)
        file.flush()
        return accuracy.estimate(program, requests, "--calibration", file.name)


def framework_of(request):
    """The framework that a job names, or that follows from its ZeRO stage."""
    named = request["job"].get("runtime", {}).get("framework")
    stage = request["job"].get("parallelism", {}).get("zero_stage", 0)
    return named or ("fsdp2" if stage == 3 else "deepspeed" if stage else "ddp")


def score(measured_bytes, expected, structural, beside=0):
    """The share of `expected` that covers what was measured, with `beside` bytes that no share is of."""
    if measured_bytes <= structural:
        return 0.0
    return max((measured_bytes - beside) / expected - 1, 0.0)


def beside_share(request, prediction):
    """What the worst case of a resumed run has that is no lag: estimator/replay/checkpoint_leftover.h."""
    resumed = request["job"].get("training", {}).get("resumed_from_checkpoint")
    return prediction.bound - prediction.expected if resumed else 0


def model_of(request):
    """What makes two jobs the same model: its shape, without how it is trained."""
    model = request["job"]["model"]
    if "transformer" in model:
        shape = model["transformer"]
        names = ("hidden_size", "layer_count", "head_count", "kv_head_count", "ffn_size")
        return "/".join(str(shape.get(name, "")) for name in names)
    return str(model.get("name") or model.get("hf_config"))


def sends_to_experts(request):
    """Whether what a rank gets depends on the tokens."""
    experts = request["job"]["model"].get("transformer", {}).get("expert_count")
    return bool(experts) and framework_of(request).startswith("megatron")


def scored_rows(program, todo, detail):
    """A dict per row: its group, model, sets, score, and bytes to bound it anew."""
    usable = [(row, source, request) for row, source, request in todo if not row.ran_out_of_memory()]
    requests = [{**request, "detail": detail} for _, _, request in usable]
    # No row is bounded by its GPU here: a share of capacity that nothing endures.
    answers = ask(program, requests, flat_table(0, 100))
    scored = []
    for (row, source, request), answer in zip(usable, answers):
        if "error" in answer:
            continue
        prediction = source.predict(row, answer)
        measured_bytes = row.measured_bytes()
        beside = beside_share(request, prediction)
        scored.append(
            {
                "id": row.id,
                "sets": source.sets_of(row),
                "gauge": prediction.gauge,
                "framework": framework_of(request),
                "tensor_parallel": request["job"]
                .get("parallelism", {})
                .get("tensor_parallel_size", 1)
                > 1,
                "trainer": request["job"].get("runtime", {}).get("trainer", "none"),
                "experts": sends_to_experts(request),
                "gpu": request["job"]["cluster"].get("gpu"),
                "model": model_of(request),
                "measured": measured_bytes,
                "expected": prediction.expected,
                "structural": prediction.bound,
                "beside": beside,
                "score": score(measured_bytes, prediction.expected, prediction.bound, beside),
            }
        )
    return scored


def conformal(scores, risk, wider=()):
    """The share of `scores` at a risk, filled up with those of a `wider` group."""
    weights = [(score, 1.0) for score in scores]
    if wider and len(scores) < FULL:
        weights += [(score, (FULL - len(scores)) / len(wider)) for score in wider]
    needed = (sum(weight for _, weight in weights) + 1) * (1 - risk) - 1e-6
    reached = 0.0
    for share, weight in sorted(weights):
        reached += weight
        if reached >= needed:
            break
    return share


def shares_of(scores, wider=()):
    """The shares at all risks, rounded up."""
    return [math.ceil(conformal(scores, risk, wider) * 1e4 - 1e-9) / 1e4 for risk in RISKS]


def fit(scored, detail):
    """The table's rows of one detail: {(gauge, framework, tensor_parallel): (count, shares)}."""
    table = {}
    fitted = [r for r in scored if r["id"] not in GAPS]
    for gauge in GAUGES:
        mine = [r for r in fitted if r["gauge"] == gauge and not r["experts"]]
        _fit_gauge(table, mine, gauge, detail)
    for (gauge, _, *group), (_, shares) in list(table.items()):
        if gauge == "reserved" and group[0]:
            table.setdefault(("device", detail, *group), (0, shares))
    for gauge in GAUGES:
        of_gauge = [shares for key, (_, shares) in table.items() if key[0] == gauge]
        experts = [r["score"] for r in fitted if r["gauge"] == gauge and r["experts"]]
        every = [r["score"] for r in fitted if r["gauge"] == gauge]
        of_gauge += [shares_of(experts, every)] if experts else []
        widest = [max(column) for column in zip(*of_gauge)]
        count = sum(r["gauge"] == gauge and not r.get("prior") for r in fitted)
        table[gauge, detail, None, None] = (count, widest or [0.0] * len(RISKS))
    return table


def _fit_gauge(table, rows, gauge, detail):
    for framework in sorted({r["framework"] for r in rows}):
        for side in (False, True):
            alike = [r for r in rows if r["tensor_parallel"] == side] or rows
            mine = [r for r in alike if r["framework"] == framework]
            own = [r["score"] for r in mine if not r.get("prior")]
            known = [r["score"] for r in mine if r.get("prior")]
            shares = shares_of(own, known or [r["score"] for r in alike])
            count = sum(r["tensor_parallel"] == side and not r.get("prior") for r in mine)
            table[gauge, detail, framework, side] = (count, shares)


def _groups(rows, key):
    """Scores by a key, of those of which enough are known."""
    groups = collections.defaultdict(list)
    for row in rows:
        groups[row[key]].append(row["score"])
    return {name: scores for name, scores in groups.items() if len(scores) >= LEAST}


def fit_phantom(ran, measured, detail):
    """Rows of the table that phantoms make: {(gauge, detail, framework, False, trainer): ...}."""
    table = {}
    for gauge in PHANTOM_GAUGES:
        mine = [r for r in ran if r["gauge"] == gauge and not r["tensor_parallel"]]
        every = [r["score"] for r in mine]
        trainers = {**_groups(mine, "trainer"), "none": None}
        for framework, scores in sorted(_groups(mine, "framework").items()):
            known = [r["score"] for r in measured if r["gauge"] == gauge and r["id"] not in GAPS
                     and r["framework"] == framework and not r["tensor_parallel"]]
            for trainer in sorted(trainers):
                own = [r for r in mine if r["framework"] == framework and r["trainer"] == trainer]
                if not own:
                    continue
                columns = [shares_of(scores, every)]
                columns += [shares_of(trainers[trainer], every)] if trainers[trainer] else []
                columns += [shares_of(known)] if known else []
                shares = [max(column) for column in zip(*columns)]
                table[gauge, detail, framework, False, trainer] = (len(own), shares)
    return table


def look_up(table, row, detail, risk_index=-1):
    """The share that the program takes for a row; one that is not in the table is the widest."""
    keys = [(None, None)]
    if not row["experts"]:
        keys.insert(0, (row["framework"], row["tensor_parallel"]))
    if row.get("phantom"):
        keys.insert(0, (row["framework"], row["tensor_parallel"], row["trainer"]))
    for key in keys:
        found = table.get((row["gauge"], detail, *key))
        if found:
            return found[1][risk_index]
    raise KeyError(row["gauge"])


def bound(table, row, detail):
    by_share = row["expected"] * (1 + look_up(table, row, detail)) + row["beside"]
    return max(row["structural"], by_share)


def capacity_scores(program, failed):
    """Of jobs that ran out of memory: the least share of capacity at which none is called FITS."""
    scores = {}
    left = list(range(len(failed)))
    for i, share in enumerate(CAPACITY_STEPS):
        answers = ask(program, [failed[k] for k in left], flat_table(100, share)) if left else []
        fits = []
        for k, answer in zip(left, answers):
            if "error" in answer:
                continue
            if answer["verdict"] == "VERDICT_FITS":
                fits.append(k)
            scores[k] = share
        for k in fits:
            scores[k] = CAPACITY_STEPS[min(i + 1, len(CAPACITY_STEPS) - 1)]
        left = fits
    return list(scores.values())


def assign_folds(scored):
    """A fold for each model, those with most rows dealt first: {model: fold}.

    A model goes where fewest rows are of its gauges and frameworks, so that what is left
    when a fold is taken out knows each of them, where several models do.
    """
    kinds = collections.defaultdict(collections.Counter)
    for row in scored:
        kinds[row["model"]][row.get("gauge"), row.get("framework")] += 1
    loads, folds = [collections.Counter() for _ in range(FOLDS)], {}
    for model, counts in sorted(kinds.items(), key=lambda item: (-item[1].total(), item[0])):
        alike = [sum(load[kind] for kind in counts) for load in loads]
        fold = min(range(FOLDS), key=lambda k: (alike[k], loads[k].total()))
        folds[model] = fold
        loads[fold].update(counts)
    return folds


def fit_all(scored, detail):
    """The table of both kinds of rows."""
    measured = [r for r in scored if not r.get("phantom")]
    ran = [r for r in scored if r.get("phantom")]
    return {**fit(measured, detail), **fit_phantom(ran, measured, detail)}


def coverage(scored, detail):
    """Per set: rows, share under the bound in sample and on folds, bound / expected."""
    folds = assign_folds(scored)
    whole = fit_all(scored, detail)
    parts = [fit_all([r for r in scored if folds[r["model"]] != k], detail) for k in range(FOLDS)]
    lines = {}
    for name in sorted({name for row in scored for name in row["sets"]}):
        mine = [row for row in scored if name in row["sets"]]
        seen = [bound(whole, row, detail) for row in mine]
        held = [bound(parts[folds[row["model"]]], row, detail) for row in mine]
        lines[name] = {
            "rows": len(mine),
            "models": len({row["model"] for row in mine}),
            "in_sample": sum(row["measured"] <= b for row, b in zip(mine, seen)),
            "on_folds": sum(row["measured"] <= b for row, b in zip(mine, held)),
            "price": figures.percentile([b / r["expected"] for r, b in zip(mine, seen)], 0.5),
            "price_on_folds": figures.percentile(
                [b / r["expected"] for r, b in zip(mine, held)], 0.5
            ),
        }
    return lines


HEADER = [
    "set", "rows", "models", "under the bound", "on models not seen", "bound / expected",
    "on models not seen",
]


def _share(count, rows):
    low, high = figures.wilson(count, rows)
    return f"{100 * count / rows:.1f} % ({100 * low:.1f}–{100 * high:.1f})"


def coverage_cells(lines):
    return [
        [
            name,
            str(line["rows"]),
            str(line["models"]),
            _share(line["in_sample"], line["rows"]),
            _share(line["on_folds"], line["rows"]),
            f"{line['price']:.2f}",
            f"{line['price_on_folds']:.2f}",
        ]
        for name, line in lines.items()
    ]


def _yaml_row(key, count, shares):
    gauge, detail, framework, side, *trainer = key
    fields = [f"gauge: {gauge}", f"detail: {detail}"]
    if framework:
        fields.append(f"framework: {framework}")
    if side is not None:
        fields.append(f"tensor_parallel: {str(side).lower()}")
    fields += [f"trainer: {trainer[0]}", "phantom: true"] if trainer else []
    fields += [f"rows: {count}", f"shares: [{', '.join(f'{s:g}' for s in shares)}]"]
    return f"- {{{', '.join(fields)}}}"


def to_yaml(table, gpus, provenance, name):
    """The table as the program reads it."""
    lines = [
        "# Shares by which measured memory, or what a phantom held, lay above what was expected, at",
        "# each risk; the upper bound is the more of that and the answer's own worst case. Written by",
        "# tests/accuracy/calibrate.py, which says how; do not edit.",
        f"id: {name}",
        f"date: {datetime.date.today()}",
        f'source: "{provenance}"',
        f"gpus: [{', '.join(gpus)}]",
        f"risks: [{', '.join(f'{risk:g}' for risk in RISKS)}]",
        "shares:",
    ]
    order = lambda item: tuple(str(part) for part in item[0])
    lines += [_yaml_row(key, *row) for key, row in sorted(table.items(), key=order)]
    return "\n".join(lines) + "\n"


def failed_of(todo):
    return [request for row, _, request in todo if row.ran_out_of_memory()]


def main(argv):
    flags = parse_flags(argv)
    prior, ran = rows_of(accuracy.HERE / "data")
    committed = pathlib.Path(flags.data).resolve() == (accuracy.HERE / "data").resolve()
    todo = prior if committed else rows_of(flags.data)[0]
    scored = {detail: scored_rows(flags.plimsoll, todo, detail) for detail in DETAILS}
    phantoms = {
        detail: [{**row, "phantom": True} for row in scored_rows(flags.plimsoll, ran, detail)]
        for detail in DETAILS
    }
    if flags.folds or flags.write_page:
        cells = coverage_cells(coverage(scored["replay"] + phantoms["replay"], "replay"))
        print(figures.align([HEADER, *cells]))
        if flags.write_page:
            page = pathlib.Path(flags.write_page)
            table = "\n".join(figures.markdown_table(HEADER, cells)) + "\n"
            text = figures.write_between_markers(
                page.read_text(encoding="utf-8"), table, figures.COVERAGE
            )
            page.write_text(text, encoding="utf-8")
    if flags.folds:
        return 0
    rows = scored["replay"]
    scores, prior_scores = capacity_scores(flags.plimsoll, failed_of(todo)), []
    if not committed:
        for detail in DETAILS:
            known = scored_rows(flags.plimsoll, prior, detail)
            scored[detail] = scored[detail] + [{**row, "prior": True} for row in known]
        prior_scores = capacity_scores(flags.plimsoll, failed_of(prior))
    table = {}
    for detail in DETAILS:
        table.update(fit_all(scored[detail] + phantoms[detail], detail))
    table["capacity", "replay", None, None] = (len(scores), shares_of(scores, prior_scores))
    provenance = (
        f"{len(rows)} measured rows of {len({r['model'] for r in rows})} models,"
        f" {len(phantoms['replay'])} of phantoms and"
        f" {len(scores)} jobs that ran out of memory, in {pathlib.Path(flags.data).name}"
    )
    gpus = sorted({r["gpu"] for r in scored["replay"] if r["gpu"]})
    text = to_yaml(table, gpus, provenance, flags.id)
    if flags.write:
        pathlib.Path(flags.write).write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
