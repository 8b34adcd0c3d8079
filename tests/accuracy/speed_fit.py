"""Fits the constants of predicted speed to measured step times: a robust least-squares fit of the
logarithms, held towards starting values that say what is usual.

Every row depends on the constants of its own GPU and framework alone, so one trial moves one
constant of all GPUs (or of all frameworks) at once: the derivatives cost a trial a constant.
"""

import dataclasses
import math

# An error of this size weighs half of what its square would: the fit is of absolute errors.
ROBUST = 0.02
# How much a constant that is one `width` off its start weighs, against a mean absolute error.
HELD = 0.001
LARGEST_STEP = 0.7
TRIES = 12  # of shorter and shorter steps


@dataclasses.dataclass(frozen=True)
class Constant:
    """One constant of each owner. `share` ones move on a line, others by factors; `width` is what
    is a usual distance from the start there."""

    name: str
    start: float
    low: float
    high: float
    width: float
    share: bool = False

    def free(self, value):
        return value if self.share else math.log(value)

    def value(self, free):
        return min(self.high, max(self.low, free if self.share else math.exp(free)))


# Shares of what the data sheet says; the sizes are usual, of the fits that are published.
GPU_CONSTANTS = (
    Constant("matrix_efficiency", 0.7, 0.2, 1, 0.3),
    Constant("matrix_half_gflop", 6, 0.05, 200, 1),
    Constant("attention_efficiency", 0.3, 0.03, 1, 0.7),
    Constant("memory_efficiency", 0.85, 0.2, 1, 0.2),
    Constant("link_efficiency", 0.7, 0.2, 1, 0.3),
    Constant("network_efficiency", 0.5, 0.1, 1, 0.5),
)
FRAMEWORK_CONSTANTS = (
    Constant("stack_factor", 1, 0.6, 2, 0.12),
    Constant("tensor_overlap", 0.1, 0, 0.9, 0.4, share=True),
    Constant("data_overlap", 0.5, 0, 1, 0.4, share=True),
    Constant("kernel_seconds", 4e-5, 1e-7, 2e-4, 1),  # an op of the program is several kernels
    Constant("collective_seconds", 1e-4, 1e-6, 2e-3, 1.2),
    Constant("hop_seconds", 1.5e-5, 1e-7, 2e-4, 1),
    Constant("step_seconds", 0.02, 1e-4, 1, 1.2),
)
KINDS = {"gpus": GPU_CONSTANTS, "frameworks": FRAMEWORK_CONSTANTS}


@dataclasses.dataclass(frozen=True)
class Run:
    """A measured step; `owners` are its GPU and its framework, by the names of KINDS."""

    owners: dict
    measured: float
    weight: float


def starting_table(runs):
    """The starting constants of every GPU and framework that has a run that weighs."""
    return {
        kind: {
            owner: {constant.name: constant.start for constant in constants}
            for owner in sorted({run.owners[kind] for run in runs if run.weight})
        }
        for kind, constants in KINDS.items()
    }


def fit(table, runs, predict, rounds=12, say=lambda _: None):
    """The table that makes `predict(table)`, seconds of each run, nearest to what was measured."""
    start, caution = table, 0.01
    best, errors = _loss(table, start, runs, predict(table))
    for number in range(rounds):
        slopes = _slopes(table, runs, errors, predict)
        for _ in range(TRIES):
            trial = _step(table, start, runs, errors, slopes, caution)
            loss, trial_errors = _loss(trial, start, runs, predict(trial))
            if loss < best:
                break
            caution *= 5
        else:
            return table
        say(f"round {number + 1}: {loss:.5f}")
        gained, best, table, errors = best - loss, loss, trial, trial_errors
        caution = max(1e-4, caution / 4)
        if gained < 1e-4:
            return table
    return table


def _each(table):
    for kind, constants in KINDS.items():
        for owner in table[kind]:
            for constant in constants:
                yield kind, owner, constant


def _away(table, start, kind, owner, constant):
    values = table[kind][owner][constant.name], start[kind][owner][constant.name]
    return constant.free(values[0]) - constant.free(values[1])


def _loss(table, start, runs, seconds):
    """(what is made small, each run's error as a logarithm)"""
    errors = [math.log(s / run.measured) for s, run in zip(seconds, runs)]
    loss = sum(run.weight * abs(error) for run, error in zip(runs, errors))
    for kind, owner, constant in _each(table):
        loss += HELD * (_away(table, start, kind, owner, constant) / constant.width) ** 2
    return loss, errors


def moved(table, kind, constant, by):
    """(the table with one constant of every owner moved, how far each moved): up, or down where
    its bound is near."""
    made = {k: {owner: dict(v) for owner, v in owners.items()} for k, owners in table.items()}
    distances = {}
    for owner, values in made[kind].items():
        old = constant.free(values[constant.name])
        bound = constant.free(constant.high)
        values[constant.name] = constant.value(old + by if old + by <= bound else old - by)
        distances[owner] = constant.free(values[constant.name]) - old
    return made, distances


def _slopes(table, runs, errors, predict):
    """For each run, the slope of its error by each constant that it depends on."""
    slopes = [{} for _ in runs]
    for kind, constants in KINDS.items():
        for constant in constants:
            trial, distances = moved(table, kind, constant, 0.03 if constant.share else 0.05)
            for slope, run, error, seconds in zip(slopes, runs, errors, predict(trial)):
                owner = run.owners[kind]
                distance = distances.get(owner, 0)
                change = math.log(seconds / run.measured) - error
                if run.weight and distance and change:
                    slope[kind, owner, constant] = change / distance
    return slopes


def _step(table, start, runs, errors, slopes, caution):
    """One Levenberg-Marquardt step of reweighted squares."""
    keys = list(_each(table))
    index = {key: i for i, key in enumerate(keys)}
    matrix = [[0.0] * (len(keys) + 1) for _ in keys]
    for run, error, slope in zip(runs, errors, slopes):
        weight = run.weight / (abs(error) + ROBUST)
        for key, value in slope.items():
            line = matrix[index[key]]
            line[-1] -= weight * value * error
            for other, second in slope.items():
                line[index[other]] += weight * value * second
    for i, (kind, owner, constant) in enumerate(keys):
        hold = 2 * HELD / constant.width**2
        matrix[i][i] += hold
        matrix[i][-1] -= hold * _away(table, start, kind, owner, constant)
        matrix[i][i] *= 1 + caution
    made = {kind: {owner: {} for owner in owners} for kind, owners in table.items()}
    for (kind, owner, constant), change in zip(keys, solve(matrix)):
        old = constant.free(table[kind][owner][constant.name])
        change = min(LARGEST_STEP, max(-LARGEST_STEP, change))
        made[kind][owner][constant.name] = constant.value(old + change)
    return made


def solve(matrix):
    """The solution of linear equations, whose right sides are the last column, by elimination."""
    lines = [line[:] for line in matrix]
    size = len(lines)
    for i in range(size):
        pivot = max(range(i, size), key=lambda r: abs(lines[r][i]))
        lines[i], lines[pivot] = lines[pivot], lines[i]
        for lower in lines[i + 1 :]:
            factor = lower[i] / lines[i][i]
            if factor:
                lower[i:] = [a - factor * b for a, b in zip(lower[i:], lines[i][i:])]
    solution = [0.0] * size
    for i in reversed(range(size)):
        known = sum(lines[i][j] * solution[j] for j in range(i + 1, size))
        solution[i] = (lines[i][-1] - known) / lines[i][i]
    return solution
