"""Tables of predicted step times: of sets and choices, of what is left, and those published."""

import collections

import figures
import speed_figures
import speed_sets

MARKERS = ("<!-- speed:begin -->", "<!-- speed:end -->")
DETAIL_MARKERS = ("<!-- speed-detail:begin -->", "<!-- speed-detail:end -->")
FOLDS_MARKERS = ("<!-- speed-folds:begin -->", "<!-- speed-folds:end -->")
HEADER = ["set", "rows", "same run", "refused", "median", "p90", "p95", "bias", "target"]
CHOICE_HEADER = [
    "choice among", "groups", "runs", "mean", "median", "max", "at random", "pairs in order", "target",
]
FOLDS_HEADER = ["set", "rows", "median", "p90", "p95", "bias"]
RESIDUAL_HEADER = ["GPU", "framework", "rows", "median", "p90", "bias"]
PUBLISHED_HEADER = ["row", "run", "measured, s", "predicted, s", "ratio"]
PUBLISHED = """\
# Published speeds, row by row

Written by `speed.py --tables`. A table's rows that are a second figure of a run are left out; of what
is not estimated the reason is given. Ratio is predicted over measured seconds of one step.

"""


def _cells(name, f):
    head = [name, str(f["rows"]), str(f["same_run"]), str(f["refused"])]
    if "median" not in f:
        return head + ["–"] * 5
    sizes = [f"{f[key]:.1f} %" for key in ("median", "p90", "p95")]
    return head + sizes + [f"{f['bias']:+.1f} %", target_cell(speed_sets.TARGETS.get(name), f)]


def _choice_cells(name, f):
    shares = [f"{f[key]:.1f} %" for key in ("mean", "median", "max", "random", "pairs")]
    target = target_cell(speed_sets.CHOICE_TARGETS.get(name), f)
    return [name, str(f["groups"]), str(f["runs"]), *shares, target]


def target_cell(targets, f):
    """Each target of a set, and whether its figure is missed."""
    words = [
        f"{key} {target} %" + (": **missed**" if f[key] > target else "")
        for key, target in (targets or {}).items()
    ]
    return ", ".join(words) or "–"


def markdown(now):
    """What stands between the markers of the README."""
    sets = [_cells(name, f) for name, f in now["sets"].items()]
    chosen = [_choice_cells(name, f) for name, f in now["choices"].items()]
    parts = [
        figures.markdown_table(HEADER, sets),
        figures.markdown_table(CHOICE_HEADER, chosen),
        [failed_sentence(now["failed"])],
    ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def failed_sentence(failed):
    return (
        f"Of {failed['groups']} groups in which {failed['worked']} configurations worked and"
        f" {failed['failed']} ran out of memory,\nthe fastest predicted of those called FITS is one"
        f" that ran out in {failed['ran_out_of_memory']} (without the verdict:"
        f" {failed['without_verdict']}), and nothing is called FITS in {failed['nothing_fits']}."
    )


def detail(now, results):
    """What stands between the markers of this folder's README: residuals, worst rows, refusals."""
    worst = [
        [name, f"{f['worst']:+.1f} %", f["worst_id"]]
        for name, f in now["sets"].items()
        if "worst" in f
    ]
    reasons = [
        f"* {name}: " + "; ".join(f"{reason} ({count})" for reason, count in f["reasons"].items())
        for name, f in now["sets"].items()
        if f["reasons"]
    ]
    parts = [
        figures.markdown_table(RESIDUAL_HEADER, residuals(results)),
        figures.markdown_table(["set", "largest error", "row"], worst),
        ["Refused:"],
        reasons,
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def residuals(results):
    """Errors by GPU and framework, each row once, without those whose source calls them suspect."""
    groups = collections.defaultdict(list)
    for r in results:
        narrowest = speed_sets.sets_of(r["row"])[-1]
        if r["set"] == narrowest and narrowest != speed_sets.NANOTRON_ALL:
            groups[r["features"]["gpu"], r["features"]["framework"]].append(r)
    lines = []
    for (gpu, framework), mine in sorted(groups.items()):
        f = speed_figures.summarize(mine)
        sizes = [f"{f['median']:.1f} %", f"{f['p90']:.1f} %", f"{f['bias']:+.1f} %"]
        lines.append([gpu, framework, str(len(mine)), *sizes])
    return lines


def folds(sets):
    """The errors of each set under tables that were fitted without the row's model."""
    body = [
        [name, str(f["estimated"]), *(f"{f[key]:.1f} %" for key in ("median", "p90", "p95"))]
        + [f"{f['bias']:+.1f} %"]
        for name, f in sets.items()
    ]
    return "\n".join(figures.markdown_table(FOLDS_HEADER, body)) + "\n"


def plain_sets(sets):
    return figures.align([HEADER] + [_cells(name, f) for name, f in sets.items()])


def plain(now, features):
    """The same for a terminal, with a breakdown by feature."""
    text = [plain_sets(now["sets"]), ""]
    for name, f in now["sets"].items():
        text += [f"{name}: {n} refused: {reason}" for reason, n in f["reasons"].items()]
    chosen = [_choice_cells(n, f) for n, f in now["choices"].items()]
    text += ["", figures.align([CHOICE_HEADER] + chosen), "", failed_sentence(now["failed"])]
    if features:
        head = [("set", "feature", "value", "rows", "median", "p90", "bias")]
        body = [
            (*line[:3], str(line[3]), *(f"{x:.1f}" for x in line[4:6]), f"{line[6]:+.1f}")
            for line in features
        ]
        text += ["", figures.align(head + body)]
    return "\n".join(text)


def published(results, refusals):
    """The published tables, row by row; a row that is refused has its reason."""
    lines = []
    for family, title in speed_sets.TABLES.items():
        body = {r["id"]: _published_cells(r) for r in results if r["row"].family == family}
        for r in refusals:
            if r["row"].family == family and r["reason"] != speed_figures.OTHER_FIGURE:
                body[r["row"].id] = _run_cells(r["row"]) + ["", "", f"not estimated: {r['reason']}"]
        if body:
            lines += [f"## {title}", ""]
            lines += figures.markdown_table(PUBLISHED_HEADER, [body[name] for name in sorted(body)])
            lines.append("")
    return PUBLISHED + "\n".join(lines)


def _run_cells(row):
    names = [name for name in ("tp", "pp", "vp", "cp", "ep") if row.text(name)]
    degrees = " ".join(name + row.text(name) for name in names)
    words = (row.text("model"), f"{row.text('num_gpus')}x {row.text('gpu')}", degrees)
    return [row.id, ", ".join(word for word in words if word)]


def _published_cells(r):
    ratio = r["predicted"] / r["measured"]
    return _run_cells(r["row"]) + [f"{r['measured']:.3f}", f"{r['predicted']:.3f}", f"{ratio:.3f}"]
