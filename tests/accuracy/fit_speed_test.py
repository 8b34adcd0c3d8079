"""Tests of the fit of speeds on a world whose constants are known, and of the table it writes."""

import math
import unittest

import fit_speed
import measured
import speed_fit
from speed_fit import Run

# Work of a run: operations, bytes over the network, and steps' fixed part.
WORK = [(gpu, framework, flops, sent) for gpu in ("a", "b") for framework in ("x", "y")
        for flops in (1, 3, 10, 30) for sent in (0, 1, 4)]


def seconds(table, gpu, framework, flops, sent):
    hardware, stack = table["gpus"][gpu], table["frameworks"][framework]
    compute = flops / hardware["matrix_efficiency"] * stack["stack_factor"]
    exposed = (1 - stack["data_overlap"]) * sent / hardware["network_efficiency"]
    return compute + exposed + stack["step_seconds"]


def predict(table):
    return [seconds(table, *work) for work in WORK]


def world(**changes):
    """A table that differs from the start, and its runs."""
    blank = [Run({"gpus": gpu, "frameworks": framework}, 1, 1) for gpu, framework, _, _ in WORK]
    table = speed_fit.starting_table(blank)
    table["gpus"]["b"].update({"matrix_efficiency": 0.45, "network_efficiency": 0.25})
    table["frameworks"]["y"].update({"data_overlap": 0.2, "step_seconds": 0.3, **changes})
    return table, [
        Run(run.owners, measured, 1 / len(WORK)) for run, measured in zip(blank, predict(table))
    ]


class FitTest(unittest.TestCase):
    def errors(self, table, runs):
        return [abs(math.log(s / run.measured)) for s, run in zip(predict(table), runs)]

    def test_finds_a_world_that_its_constants_can_make(self):
        _, runs = world()
        start = speed_fit.starting_table(runs)
        self.assertGreater(max(self.errors(start, runs)), 0.3)
        fitted = speed_fit.fit(start, runs, predict, 30)
        self.assertLess(sum(self.errors(fitted, runs)) / len(runs), 0.02)
        self.assertAlmostEqual(fitted["gpus"]["b"]["matrix_efficiency"], 0.45, delta=0.05)

    def test_one_run_that_is_far_off_moves_little(self):
        _, runs = world()
        runs[0] = Run(runs[0].owners, runs[0].measured * 20, runs[0].weight)
        fitted = speed_fit.fit(speed_fit.starting_table(runs), runs, predict, 30)
        self.assertLess(sorted(self.errors(fitted, runs))[len(runs) // 2], 0.03)

    def test_stays_within_physical_bounds(self):
        _, runs = world()
        fast = [Run(run.owners, run.measured / 10, run.weight) for run in runs]
        fitted = speed_fit.fit(speed_fit.starting_table(fast), fast, predict, 30)
        for kind, constants in speed_fit.KINDS.items():
            for values in fitted[kind].values():
                for constant in constants:
                    self.assertLessEqual(values[constant.name], constant.high)
                    self.assertGreaterEqual(values[constant.name], constant.low)

    def test_what_no_row_tells_of_stays_at_its_start(self):
        _, runs = world()
        fitted = speed_fit.fit(speed_fit.starting_table(runs), runs, predict, 30)
        for values in fitted["gpus"].values():
            self.assertAlmostEqual(values["attention_efficiency"], 0.3)

    def test_rows_without_weight_tell_nothing(self):
        _, runs = world()
        mute = [Run(run.owners, run.measured, 0) for run in runs]
        start = speed_fit.starting_table(runs)
        self.assertEqual(speed_fit.fit(start, mute, predict, 5), start)

    def test_a_fit_says_what_it_does(self):
        _, runs = world()
        said = []
        speed_fit.fit(speed_fit.starting_table(runs), runs, predict, 3, said.append)
        self.assertRegex(said[0], r"^round 1: 0\.\d+$")

    def test_trials_move_one_constant_of_every_owner(self):
        table, _ = world()
        table["frameworks"]["x"]["data_overlap"] = 1
        constant = next(c for c in speed_fit.FRAMEWORK_CONSTANTS if c.name == "data_overlap")
        trial, distances = speed_fit.moved(table, "frameworks", constant, 0.03)
        self.assertAlmostEqual(distances["x"], -0.03)  # its bound is above
        self.assertAlmostEqual(distances["y"], 0.03)
        self.assertAlmostEqual(trial["frameworks"]["y"]["data_overlap"], 0.23)
        self.assertEqual(trial["gpus"], table["gpus"])
        self.assertEqual(table["frameworks"]["x"]["data_overlap"], 1)

    def test_linear_equations(self):
        self.assertEqual(speed_fit.solve([[0, 2, 4], [4, 0, 4]]), [1, 2])


class RunsTest(unittest.TestCase):
    JOB = {"cluster": {"gpu": "g"}, "runtime": {"framework": "ddp"}}

    def todo(self, *rows):
        return [(measured.Row({"id": i, "notes": n}), {"job": self.JOB}, 2.0) for i, n in rows]

    def test_a_set_weighs_as_much_as_another(self):
        many = self.todo(*[(f"vtm-{i}", "") for i in range(40)])
        few = self.todo(*[(f"llmf-{i}", "") for i in range(10)])
        runs = fit_speed.runs_of(many + few)
        self.assertAlmostEqual(sum(run.weight for run in runs[:40]), 1)
        self.assertAlmostEqual(sum(run.weight for run in runs[40:]), 0.5)
        self.assertEqual(runs[0].owners, {"gpus": "g", "frameworks": "ddp"})

    def test_rows_that_their_source_suspects_weigh_nothing(self):
        ok, suspect = fit_speed.runs_of(self.todo(("usp-1", "cal=ok"), ("usp-2", "cal=suspect")))
        self.assertGreater(ok.weight, 0)
        self.assertEqual(suspect.weight, 0)

    def test_no_model_is_on_both_sides_of_a_fold(self):
        shapes = [{"hidden_size": size} for size in (1, 2, 3, 4, 5, 5)]
        todo = [
            (row, {"job": {**self.JOB, "model": {"transformer": shape}}}, 2.0)
            for (row, _, _), shape in zip(self.todo(*[(f"vtm-{i}", "") for i in range(6)]), shapes)
        ]
        runs, tables = fit_speed.runs_of(todo), []

        def predict_(table):
            tables.append(table)
            return [1 / table["gpus"]["g"]["matrix_efficiency"]] * 6

        results = fit_speed.folds(todo, runs, predict_, 2)
        self.assertEqual([r["id"] for r in results], [f"vtm-{i}" for i in range(6)])
        self.assertEqual(results[4]["predicted"], results[5]["predicted"])


class TableTest(unittest.TestCase):
    def test_residuals_are_of_rows_that_weigh(self):
        runs = [Run({"gpus": "g", "frameworks": "f"}, 2.0, w) for w in (1, 1, 0)]
        made = fit_speed.residuals(runs, [2.2, 2.0 / 1.3, 9.0])
        rows, median, tail = made["gpus", "g"]
        self.assertEqual(rows, 2)
        self.assertAlmostEqual(median, 0.2)
        self.assertEqual(tail, fit_speed.UNMEASURED_SPREAD)

    def test_nine_of_ten(self):
        self.assertEqual(fit_speed.nine_of_ten([i / 100 for i in range(1, 20)]), 0.18)
        self.assertEqual(fit_speed.nine_of_ten([i / 100 for i in range(1, 10)]), 0.09)
        self.assertEqual(fit_speed.nine_of_ten([0.01] * 8), fit_speed.UNMEASURED_SPREAD)

    def test_every_set_says_where_it_is_from(self):
        table, _ = world()
        table["gpus"] = {"h100-80gb-sxm": table["gpus"]["b"]}
        told = {("gpus", "h100-80gb-sxm"): (12, 0.031, 0.1)}
        text = fit_speed.yaml_of(table, told, "name")
        lines = {line.split(":")[0].strip(): line for line in text.splitlines()}
        self.assertIn("matrix_efficiency: 0.45, ", lines["h100-80gb-sxm"])
        self.assertIn('spread: 0.10, source: "12 rows: median 3.1 %, nine of ten 10 %"', lines["h100-80gb-sxm"])
        self.assertIn("measured: true", lines["h100-80gb-sxm"])
        self.assertIn("matrix_efficiency: 0.45, ", lines["h200-141gb-sxm"])
        self.assertIn('source: "spec-only: as h100-80gb-sxm, the same chip"', lines["h200-141gb-sxm"])
        self.assertIn("matrix_efficiency: 0.4335, ", lines["mi300x-192gb"])
        self.assertIn("measured: false, spread: 0.50", lines["mi300x-192gb"])
        self.assertIn("matrix_efficiency: 0.6, ", lines["other_gpu"])
        self.assertIn("stack_factor: 1.0, ", lines["other_framework"])
        self.assertIn('source: "not fitted"', lines["y"])
        self.assertNotIn("a100-80gb-pcie", lines)  # its chip has no rows here


if __name__ == "__main__":
    unittest.main()
