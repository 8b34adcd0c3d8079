"""Tests of the figures of step times and of choices, on results made by hand."""

import unittest

import measured
import speed
import speed_figures


def result(name, seconds, predicted, choice="c", verdict="FITS", **features):
    return {
        "set": "s",
        "id": name,
        "row": measured.Row({"id": name, "model": "GPT", "num_gpus": "8", "gpu": "H100", "tp": "2"}),
        "measured": seconds,
        "predicted": predicted,
        "terms": {"matrix-products": predicted},
        "verdict": verdict,
        "choice": choice,
        "features": features,
    }


# Measured 10, 11, 20 s; the second is predicted fastest, the first and third the wrong way round.
THREE = [result("a", 10.0, 9.0), result("b", 11.0, 7.0), result("c", 20.0, 8.0)]


class ErrorsTest(unittest.TestCase):
    def test_figures_of_a_set(self):
        made = speed_figures.summarize([result("a", 10, 11), result("b", 10, 8)])
        self.assertEqual(made["median"], 15.0)
        self.assertEqual((made["worst"], made["worst_id"]), (-20.0, "b"))
        self.assertEqual(made["bias"], -5.0)

    def test_refused_rows_are_rows(self):
        refusals = [{"set": "s", "reason": "experts"}, {"set": "t", "reason": "experts"}]
        made = speed_figures.summarize_sets([result("a", 10, 11)], refusals)
        self.assertEqual((made["s"]["rows"], made["s"]["estimated"]), (2, 1))
        self.assertEqual(made["t"]["reasons"], {"experts": 1})
        self.assertNotIn("median", made["t"])

    def test_another_figure_of_a_run_is_a_row_but_not_refused(self):
        other = {"set": "s", "reason": speed_figures.OTHER_FIGURE}
        made = speed_figures.summarize_sets([result("a", 10, 11)], [other])["s"]
        self.assertEqual((made["rows"], made["same_run"], made["refused"]), (2, 1, 0))
        self.assertEqual(made["reasons"], {})

    def test_features_that_vary(self):
        rows = [result("a", 10, 11, tp="1", z="0"), result("b", 10, 8, tp="16", z="0")]
        rows.append(result("c", 10, 10, tp="2", z="0"))
        lines = speed_figures.by_feature(rows)
        self.assertEqual([line[1:4] for line in lines], [("tp", "1", 1), ("tp", "2", 1), ("tp", "16", 1)])


class ChoiceTest(unittest.TestCase):
    def test_time_lost_is_measured_time(self):
        self.assertAlmostEqual(speed_figures.lost(THREE), 0.1)

    def test_a_tie_goes_to_the_first_id(self):
        tied = [result("b", 10, 5), result("a", 12, 5)]
        self.assertAlmostEqual(speed_figures.lost(tied), 0.2)

    def test_at_random(self):
        self.assertAlmostEqual(speed_figures.lost_at_random(THREE), (0 + 0.1 + 1) / 3)

    def test_pairs_in_order(self):
        self.assertEqual(speed_figures.pairs_in_order(THREE), (1, 3))
        tied = [result("a", 10, 5), result("b", 12, 5), result("c", 12, 7)]
        self.assertEqual(speed_figures.pairs_in_order(tied), (1.5, 2))

    def test_groups_of_one_are_no_choice(self):
        alone = result("d", 1.0, 1.0, choice="other")
        made = speed_figures.choices(THREE + [alone])
        self.assertEqual((made["groups"], made["runs"]), (1, 3))
        self.assertEqual((made["mean"], made["max"]), (10.0, 10.0))
        self.assertEqual((made["random"], made["pairs"]), (36.67, 33.33))
        self.assertIsNone(speed_figures.choices([alone]))


class OutOfMemoryTest(unittest.TestCase):
    FAILED = {"id": "f", "measured": None, "predicted": 1.0, "choice": "c"}

    def test_the_choice_that_ran_out_of_memory_counts(self):
        made = speed_figures.choices_that_fail(THREE + [{**self.FAILED, "verdict": "FITS"}])
        self.assertEqual((made["groups"], made["ran_out_of_memory"], made["ids"]), (1, 1, ["f"]))

    def test_what_does_not_fit_is_not_chosen(self):
        for verdict in ("AT_RISK", "DOES_NOT_FIT"):
            made = speed_figures.choices_that_fail(THREE + [{**self.FAILED, "verdict": verdict}])
            self.assertEqual((made["groups"], made["ran_out_of_memory"]), (1, 0))
            self.assertEqual((made["worked"], made["failed"], made["without_verdict"]), (3, 1, 1))

    def test_groups_in_which_nothing_fits(self):
        group = [result("a", 10, 9, verdict="AT_RISK"), {**self.FAILED, "verdict": "AT_RISK"}]
        made = speed_figures.choices_that_fail(group)
        self.assertEqual((made["groups"], made["nothing_fits"]), (1, 1))

    def test_groups_of_runs_that_all_worked_are_not_counted(self):
        self.assertEqual(speed_figures.choices_that_fail(THREE)["groups"], 0)


class RegressionsTest(unittest.TestCase):
    def now(self):
        failed = {"set": "s", "reason": "experts", "row": THREE[0]["row"]}
        return speed.summarize(THREE, [failed], [])

    def test_what_got_worse(self):
        old, new = self.now(), self.now()
        self.assertEqual(speed_figures.regressions(new, old), [])
        new["sets"]["s"]["median"] = 99.0
        new["sets"]["s"]["estimated"] = 2
        new["failed"]["ran_out_of_memory"] = 1
        found = speed_figures.regressions(new, old)
        self.assertEqual(found[0], "s: estimated 2, committed 3")
        self.assertEqual(found[1], "s: median 99.0 %, committed 36.36 %")
        self.assertEqual(
            found[2], "choices beside what ran out of memory: ran_out_of_memory 1, committed 0"
        )

    def test_groups_beside_what_failed_may_not_get_lost(self):
        old, new = self.now(), self.now()
        old["failed"].update(groups=2)
        new["failed"].update(groups=1, nothing_fits=1)
        what = "choices beside what ran out of memory: "
        expected = [what + "groups 1, committed 2", what + "nothing_fits 1, committed 0"]
        self.assertEqual(speed_figures.regressions(new, old), expected)

    def test_a_set_that_is_new_or_gone(self):
        old, new = self.now(), self.now()
        new["sets"]["t"] = new["sets"].pop("s")
        found = speed_figures.regressions(new, old)
        self.assertEqual((found[0], found[-1]), ("s: rows 0, committed 4", "t: not committed"))

    def test_a_choice_that_got_worse(self):
        old, new = self.now(), self.now()
        old["choices"] = {"s": {"groups": 2, "mean": 1.0}}
        new["choices"] = {"s": {"groups": 2, "mean": 2.0}}
        expected = ["choice, s: mean 2.0 %, committed 1.0 %"]
        self.assertEqual(speed_figures.regressions(new, old), expected)
        new["choices"] = {}
        expected = ["choice, s: groups 0, committed 2", "choice, s: no mean"]
        self.assertEqual(speed_figures.regressions(new, old), expected)


class AnswersTest(unittest.TestCase):
    ANSWER = {
        "requested": {
            "verdict": "VERDICT_FITS",
            "step_time": {
                "seconds": 1.5,
                "terms": [
                    {"term": "STEP_TERM_MATRIX_PRODUCTS", "seconds": 1.0},
                    {"term": "STEP_TERM_FIXED", "seconds": 0.5},
                ],
            },
        }
    }

    def test_a_row_is_in_each_of_its_sets(self):
        row = measured.Row({"id": "vtm-1", "model": "GPT", "notes": ""})
        job = {
            "model": {"transformer": {"hidden_size": 8}},
            "training": {"sequence_length": 8, "micro_batch_size": 2, "global_batch_size": 16},
            "parallelism": {
                "data_parallel_size": 4,
                "tensor_parallel_size": 2,
                "pipeline_parallel_size": 1,
                "zero_stage": 0,
            },
            "runtime": {"framework": "ddp"},
            "cluster": {"gpu": "h100-80gb-sxm"},
        }
        results, refusals = speed.judge(
            [(row, {"job": job}, 1.0), (row, {"job": job}, 1.0)],
            [self.ANSWER, {"error": {"message": "job.a: 1; no"}}],
        )
        (made,) = results
        self.assertEqual((made["set"], made["predicted"]), ("vtrain_multi_node", 1.5))
        self.assertEqual(made["terms"], {"matrix products": 1.0, "fixed": 0.5})
        self.assertEqual(made["verdict"], "FITS")
        self.assertEqual([r["reason"] for r in refusals], ["plimsoll: job.a: N; no"])


if __name__ == "__main__":
    unittest.main()
