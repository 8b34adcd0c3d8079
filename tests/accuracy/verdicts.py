"""How often the verdict is right: jobs that worked or ran out of memory, against FITS,
AT_RISK and DOES_NOT_FIT.

FITS must be right about what runs out of memory, and must not be withheld from what works.
"""

import collections

import figures

VERDICTS = ("FITS", "AT_RISK", "DOES_NOT_FIT")
OUTCOMES = ("worked", "out of memory")


def outcome(row):
    return "out of memory" if row.ran_out_of_memory() else "worked"


def verdict_of(answer):
    return answer["verdict"].removeprefix("VERDICT_")


def _shares(counts):
    """Of one outcome: rows, and for each verdict its count, share and interval in percent."""
    total = sum(counts.values())
    line = {"rows": total}
    for verdict in VERDICTS:
        low, high = figures.wilson(counts[verdict], total)
        line[verdict] = {
            "rows": counts[verdict],
            "share": round(100 * counts[verdict] / total, 2),
            "interval": [round(100 * low, 2), round(100 * high, 2)],
        }
    return line


def _matrix(judged):
    counts = collections.defaultdict(collections.Counter)
    for one in judged:
        counts[one["outcome"]][one["verdict"]] += 1
    return {outcome: _shares(counts[outcome]) for outcome in OUTCOMES if counts[outcome]}


def summarize(judged, refusals):
    """The matrix of each set; `judged` has set, id, outcome, verdict and features, `refusals`
    set, outcome and reason."""
    matrices = {}
    for name in sorted({one["set"] for one in judged + refusals}):
        refused = collections.Counter(
            f"{r['outcome']}: {r['reason']}" for r in refusals if r["set"] == name
        )
        matrices[name] = {
            **_matrix([one for one in judged if one["set"] == name]),
            "refused": dict(refused.most_common()),
        }
    return matrices


def by_feature(judged):
    """(set, feature, value, outcome, rows, share of each verdict) for features that vary."""
    values = collections.defaultdict(lambda: collections.defaultdict(list))
    for one in judged:
        for feature, value in one["features"].items():
            values[one["set"], feature][value].append(one)
    lines = []
    for (name, feature), groups in sorted(values.items()):
        if len(groups) < 2:
            continue
        for value, mine in sorted(groups.items()):
            for kind, line in _matrix(mine).items():
                shares = [f"{line[v]['share']:.1f}" for v in VERDICTS]
                lines.append((name, feature, value, kind, str(line["rows"]), *shares))
    return lines


HEADER = ["verdict on", "jobs that", "rows", *(v.replace("_", " ") for v in VERDICTS)]


def _cell(line, verdict):
    low, high = line[verdict]["interval"]
    return f"{line[verdict]['share']:.1f} % ({low:.1f}–{high:.1f})"


def cells(matrices):
    words = {"worked": "worked", "out of memory": "ran out of memory"}
    return [
        [name, words[kind], str(matrix[kind]["rows"]), *(_cell(matrix[kind], v) for v in VERDICTS)]
        for name, matrix in matrices.items()
        for kind in OUTCOMES
        if kind in matrix
    ]


def refusal_lines(matrices):
    return [
        f"verdict on {name}, {reason} ({count})"
        for name, matrix in matrices.items()
        for reason, count in matrix["refused"].items()
    ]


def markdown(matrices):
    """The table for the README, and below it what was refused."""
    if not matrices:
        return ""
    table = figures.markdown_table(HEADER, cells(matrices))
    refused = [f"* {line}" for line in refusal_lines(matrices)]
    return "\n".join([*table, *(["", *refused] if refused else [])]) + "\n"


def plain(matrices, features):
    """The same for a terminal, with a breakdown by feature."""
    text = [figures.align([HEADER, *cells(matrices)]), ""] if matrices else []
    text += refusal_lines(matrices)
    if features:
        head = ["set", "feature", "value", "jobs that", "rows", *VERDICTS]
        text += ["", figures.align([head, *features])]
    return "\n".join(text)


def regressions(now, committed):
    """What got worse: rows lost, jobs that failed called FITS more often, jobs that worked less."""
    found = []
    for name, old in committed.items():
        for kind in (kind for kind in OUTCOMES if kind in old):
            new = now.get(name, {}).get(kind)
            what = f"verdict on {name}, {kind}"
            if new is None or new["rows"] < old[kind]["rows"]:
                found.append(f"{what}: rows {new and new['rows']}, committed {old[kind]['rows']}")
                continue
            change = new["FITS"]["share"] - old[kind]["FITS"]["share"]
            if (change if kind == "out of memory" else -change) > figures.TOLERANCE:
                found.append(
                    f"{what}: FITS {new['FITS']['share']} %, committed {old[kind]['FITS']['share']} %"
                )
    found += [f"verdict on {name}: not committed" for name in now if name not in committed]
    return found
