"""Figures of predicted step times: errors by set, the quality of choices, what got worse."""

import collections
import itertools

import figures

# Why a row is counted beside the refused ones: its run is judged by another of its figures.
OTHER_FIGURE = "another figure of a run that is counted"
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
        others = reasons.pop(OTHER_FIGURE, 0)
        made[name] = {
            "rows": len(mine) + others + reasons.total(),
            "same_run": others,
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
    failed = _fastest_that_failed(group for group in fitting if group)
    return {
        "groups": len(groups),
        "worked": sum(r["measured"] is not None for group in groups for r in group),
        "failed": sum(r["measured"] is None for group in groups for r in group),
        "nothing_fits": sum(not group for group in fitting),
        "ran_out_of_memory": len(failed),
        "without_verdict": len(_fastest_that_failed(groups)),
        "ids": sorted(failed),
    }


def _fastest_that_failed(groups):
    chosen = [min(group, key=lambda r: (r["predicted"], r["id"])) for group in groups]
    return [r["id"] for r in chosen if r["measured"] is None]


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
        new = now["choices"].get(name, {})
        if new.get("groups", 0) < old["groups"]:
            found.append(f"choice, {name}: groups {new.get('groups', 0)}, committed {old['groups']}")
        found += _worse(f"choice, {name}", new, old, ("mean", "median"))
    found += _failed_worse(now["failed"], committed["failed"])
    new_sets = [name for name in now["sets"] if name not in committed["sets"]]
    return found + [f"{name}: not committed" for name in new_sets]


def _failed_worse(new, old):
    for key, more in (("groups", False), ("ran_out_of_memory", True), ("nothing_fits", True)):
        if (new[key] > old[key]) if more else (new[key] < old[key]):
            yield f"choices beside what ran out of memory: {key} {new[key]}, committed {old[key]}"


def _worse(name, new, old, keys):
    for key in keys:
        if key not in old:
            continue
        if key not in new:
            yield f"{name}: no {key}"
        elif abs(new[key]) > abs(old[key]) + TOLERANCE:
            yield f"{name}: {key} {new[key]} %, committed {old[key]} %"
