"""Figures of predicted step times: errors by set, the quality of choices, and their tables."""

import collections
import itertools

import figures

BEGIN, END = "<!-- speed:begin -->", "<!-- speed:end -->"
# What a check forgives, percentage points.
TOLERANCE = 0.05


def error(result):
    """Of a result, percent: predicted over measured seconds."""
    return 100 * (result["predicted"] / result["measured"] - 1)


def summarize(results):
    errors = [error(r) for r in results]
    sizes = [abs(e) for e in errors]
    worst = max(range(len(errors)), key=lambda i: sizes[i])
    return {
        "median": round(figures.percentile(sizes, 0.5), 2),
        "p90": round(figures.percentile(sizes, 0.9), 2),
        "p95": round(figures.percentile(sizes, 0.95), 2),
        "worst": round(errors[worst], 2),
        "worst_id": results[worst]["id"],
        "bias": round(sum(errors) / len(errors), 2),
    }


def summarize_sets(results, refusals):
    """Figures of each set; both are lists of dicts with `set`."""
    made = {}
    for name in sorted({r["set"] for r in results + refusals}):
        mine = [r for r in results if r["set"] == name]
        reasons = collections.Counter(r["reason"] for r in refusals if r["set"] == name)
        made[name] = {
            "rows": len(mine) + reasons.total(),
            "estimated": len(mine),
            "refused": reasons.total(),
            "reasons": dict(reasons.most_common()),
        }
        if mine:
            made[name].update(summarize(mine))
    return made


def by_feature(results):
    """(set, feature, value, rows, median, p90, bias) for each feature that varies in a set."""
    groups = collections.defaultdict(list)
    for r in results:
        for feature, value in r["features"].items():
            groups[r["set"], feature, value].append(r)
    values = collections.Counter((name, feature) for name, feature, _ in groups)
    lines = []
    for (name, feature, value), mine in sorted(groups.items(), key=_numbers_in_order):
        if values[name, feature] > 1:
            f = summarize(mine)
            lines.append((name, feature, value, len(mine), f["median"], f["p90"], f["bias"]))
    return lines


def _numbers_in_order(group):
    name, feature, value = group[0]
    return name, feature, (0, int(value), "") if value.isdigit() else (1, 0, value)


def groups_of(results):
    """Runs among which there is a choice: two or more of one group."""
    groups = collections.defaultdict(list)
    for r in results:
        groups[r["choice"]].append(r)
    return [mine for mine in groups.values() if len(mine) > 1]


def lost(group):
    """Time lost by taking the run that is predicted fastest, over the fastest run: a share."""
    chosen = min(group, key=lambda r: (r["predicted"], r["id"]))
    return chosen["measured"] / min(r["measured"] for r in group) - 1


def lost_at_random(group):
    """The same of a run taken at random: its mean."""
    best = min(r["measured"] for r in group)
    return sum(r["measured"] / best - 1 for r in group) / len(group)


def pairs_in_order(group):
    """(pairs whose slower run is predicted slower, pairs); a tie counts half."""
    right, pairs = 0.0, 0
    for a, b in itertools.combinations(group, 2):
        if a["measured"] == b["measured"]:
            continue
        pairs += 1
        sign = (a["predicted"] - b["predicted"]) * (a["measured"] - b["measured"])
        right += 0.5 if sign == 0 else sign > 0
    return right, pairs


def choices(results):
    """How good the choice among the runs of each group is."""
    groups = groups_of(results)
    if not groups:
        return None
    losses = [100 * lost(group) for group in groups]
    counts = [pairs_in_order(group) for group in groups]
    return {
        "groups": len(groups),
        "runs": sum(len(group) for group in groups),
        "mean": round(sum(losses) / len(losses), 2),
        "median": round(figures.percentile(losses, 0.5), 2),
        "max": round(max(losses), 2),
        "pairs": round(100 * sum(c[0] for c in counts) / max(1, sum(c[1] for c in counts)), 2),
        "random": round(100 * sum(lost_at_random(group) for group in groups) / len(groups), 2),
    }


def choices_that_fail(results):
    """Among runs that worked and configurations that ran out of memory (`measured` is None), the
    one predicted fastest of those that FITS: how often it is one that ran out."""
    groups = [
        group
        for group in groups_of(results)
        if any(r["measured"] is None for r in group) and any(r["measured"] for r in group)
    ]
    fitting = [[r for r in group if r["verdict"] == "FITS"] for group in groups]
    chosen = [min(group, key=lambda r: (r["predicted"], r["id"])) for group in fitting if group]
    failed = [r["id"] for r in chosen if r["measured"] is None]
    return {
        "groups": len(groups),
        "nothing_fits": sum(not group for group in fitting),
        "ran_out_of_memory": len(failed),
        "ids": sorted(failed),
    }


HEADER = ["set", "rows", "refused", "median", "p90", "p95", "worst", "bias"]
CHOICE_HEADER = ["set", "groups", "runs", "mean", "median", "max", "pairs in order", "at random"]


def _cells(name, f):
    head = [name, str(f["rows"]), str(f["refused"])]
    if "median" not in f:
        return head + ["–"] * 5
    sizes = [f"{f[key]:.1f} %" for key in ("median", "p90", "p95")]
    return head + sizes + [f"{f['worst']:+.1f} % ({f['worst_id']})", f"{f['bias']:+.1f} %"]


def _choice_cells(name, f):
    shares = [f"{f[key]:.1f} %" for key in ("mean", "median", "max", "pairs", "random")]
    return [name, str(f["groups"]), str(f["runs"])] + shares


def markdown(now):
    """What stands between the markers of the README."""
    sets = figures.markdown_table(HEADER, [_cells(n, f) for n, f in now["sets"].items()])
    choice = figures.markdown_table(
        CHOICE_HEADER, [_choice_cells(n, f) for n, f in now["choices"].items()]
    )
    reasons = [
        f"* {name}: " + "; ".join(f"{reason} ({count})" for reason, count in f["reasons"].items())
        for name, f in now["sets"].items()
        if f["reasons"]
    ]
    parts = [sets, choice, [failed_sentence(now["failed"])], ["Refused:"], reasons]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def failed_sentence(failed):
    return (
        f"Of {failed['groups']} groups of runs that worked and configurations that ran out of"
        f" memory, the choice is one that ran out in {failed['ran_out_of_memory']}, and nothing"
        f" is called FITS in {failed['nothing_fits']}."
    )


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


def regressions(now, committed):
    """What got worse than the committed figures, one sentence each."""
    found = []
    for name, old in committed["sets"].items():
        new = now["sets"].get(name, {"rows": 0, "estimated": 0})
        for key in ("rows", "estimated"):
            if new[key] < old[key]:
                found.append(f"{name}: {key} {new[key]}, committed {old[key]}")
        found += _worse(name, new, old, ("median", "p90", "p95", "worst", "bias"))
    for name, old in committed["choices"].items():
        found += _worse(f"choice, {name}", now["choices"].get(name, {}), old, ("mean", "median"))
    if now["failed"]["ran_out_of_memory"] > committed["failed"]["ran_out_of_memory"]:
        found.append(f"choices that ran out of memory: {now['failed']['ran_out_of_memory']}")
    new_sets = [name for name in now["sets"] if name not in committed["sets"]]
    return found + [f"{name}: not committed" for name in new_sets]


def _worse(name, new, old, keys):
    for key in keys:
        if key not in old:
            continue
        if key not in new:
            yield f"{name}: no {key}"
        elif abs(new[key]) > abs(old[key]) + TOLERANCE:
            yield f"{name}: {key} {new[key]} %, committed {old[key]} %"
