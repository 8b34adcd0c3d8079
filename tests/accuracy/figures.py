"""Figures of a set of errors, their tables, and the check against the committed ones."""

import collections
import math

# Figures in percent are kept to two decimals; a check forgives the last one.
TOLERANCE = 0.01

BEGIN, END = "<!-- accuracy:begin -->", "<!-- accuracy:end -->"
COVERAGE = ("<!-- coverage:begin -->", "<!-- coverage:end -->")


def percentile(values, share):
    """Linear interpolation between the ordered values."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * share
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def wilson(successes, count):
    """The 95 % confidence interval of a share."""
    z = 1.959964
    share, scale = successes / count, 1 + z * z / count
    centre = (share + z * z / (2 * count)) / scale
    spread = z / scale * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return max(0.0, centre - spread), min(1.0, centre + spread)


def summarize(results):
    """Figures of one set; `results` are those of its rows that were estimated."""
    errors = [100 * (r["predicted"] / r["measured"] - 1) for r in results]
    sizes = [abs(error) for error in errors]
    worst = max(range(len(errors)), key=lambda i: sizes[i])
    under = sum(r["measured"] <= r["bound"] for r in results)
    low, high = wilson(under, len(results))
    return {
        "median": round(percentile(sizes, 0.5), 2),
        "p90": round(percentile(sizes, 0.9), 2),
        "p95": round(percentile(sizes, 0.95), 2),
        "worst": round(errors[worst], 2),
        "worst_id": results[worst]["id"],
        "bias": round(sum(errors) / len(errors), 2),
        "under_bound": round(100 * under / len(results), 2),
        "under_bound_interval": [round(100 * low, 2), round(100 * high, 2)],
        "bound_to_expected": round(
            percentile([r["bound"] / r["predicted"] for r in results], 0.5), 3
        ),
    }


def summarize_sets(results, refusals):
    """Figures by set, with its refusals by reason; both are lists of dicts with `set`."""
    names = list(dict.fromkeys(r["set"] for r in results + refusals))
    figures = {}
    for name in sorted(names):
        mine = [r for r in results if r["set"] == name]
        refused = collections.Counter(r["reason"] for r in refusals if r["set"] == name)
        figures[name] = {
            "rows": len(mine) + refused.total(),
            "estimated": len(mine),
            "refused": refused.total(),
            "reasons": dict(refused.most_common()),
        }
        if mine:
            figures[name].update(summarize(mine))
    return figures


def by_feature(results):
    """(set, feature, value, rows, median, p90, bias) for each feature that varies in a set."""
    groups = collections.defaultdict(list)
    values = collections.defaultdict(set)
    for r in results:
        for feature, value in r["features"].items():
            groups[r["set"], feature, value].append(r)
            values[r["set"], feature].add(value)
    lines = []
    for (name, feature, value), mine in sorted(groups.items()):
        if len(values[name, feature]) > 1:
            f = summarize(mine)
            lines.append((name, feature, value, len(mine), f["median"], f["p90"], f["bias"]))
    return lines


def _percent(value):
    return f"{value:.2f} %"


def _cells(name, f):
    head = [name, str(f["rows"]), str(f["refused"])]
    if "median" not in f:
        return head + ["–"] * 7
    low, high = f["under_bound_interval"]
    return head + [
        _percent(f["median"]),
        _percent(f["p90"]),
        _percent(f["p95"]),
        f"{f['worst']:+.2f} % ({f['worst_id']})",
        f"{f['bias']:+.2f} %",
        f"{f['under_bound']:.1f} % ({low:.1f}–{high:.1f})",
        f"{f['bound_to_expected']:.2f}",
    ]


HEADER = [
    "set", "rows", "refused", "median", "p90", "p95", "worst", "bias", "under the bound",
    "bound / expected",
]


def markdown_table(header, body):
    lines = [header, ["---"] * len(header)] + body
    return ["| " + " | ".join(cells) + " |" for cells in lines]


def markdown(figures):
    """The table for the README, and below it what was refused."""
    table = markdown_table(HEADER, [_cells(n, f) for n, f in figures.items()])
    refused = [
        f"* {name}: " + "; ".join(f"{reason} ({n})" for reason, n in f["reasons"].items())
        for name, f in figures.items()
        if f["reasons"]
    ]
    return "\n".join(table + ["", "Refused:", ""] + refused if refused else table) + "\n"


def plain(figures, features):
    """The same for a terminal, with a breakdown by feature."""
    rows = [HEADER] + [_cells(n, f) for n, f in figures.items()]
    text = [align(rows), ""]
    for name, f in figures.items():
        text += [f"{name}: {n} refused: {reason}" for reason, n in f["reasons"].items()]
    if features:
        head = [("set", "feature", "value", "rows", "median", "p90", "bias")]
        body = [
            (*line[:3], str(line[3]), *(f"{x:.2f}" for x in line[4:6]), f"{line[6]:+.2f}")
            for line in features
        ]
        text += ["", align(head + body)]
    return "\n".join(text)


def align(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows
    )


def write_between_markers(text, table, markers=(BEGIN, END)):
    """`text` with what stands between the markers replaced by `table`."""
    before, begin, rest = text.partition(markers[0])
    _, end, after = rest.partition(markers[1])
    if not begin or not end:
        raise ValueError(f"no {markers[0]} and {markers[1]}")
    return f"{before}{begin}\n{table}{end}{after}"


def regressions(now, committed):
    """What got worse than the committed figures, one sentence each."""
    found = []
    for name, old in committed.items():
        new = now.get(name)
        if new is None:
            found.append(f"{name}: the set is gone")
            continue
        found += [f"{name}: {text}" for text in _worse(new, old)]
    found += [f"{name}: not committed" for name in now if name not in committed]
    return found


def _worse(new, old):
    for key in ("rows", "estimated"):
        if new[key] < old[key]:
            yield f"{key} {new[key]}, committed {old[key]}"
    if "median" not in old or "median" not in new:
        return
    for key in ("median", "p90", "p95", "worst", "bias"):
        if abs(new[key]) > abs(old[key]) + TOLERANCE:
            yield f"{key} {new[key]} %, committed {old[key]} %"
    if new["under_bound"] < old["under_bound"] - TOLERANCE:
        yield f"under the bound {new['under_bound']} %, committed {old['under_bound']} %"
