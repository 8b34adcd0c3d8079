"""Tests of the quantiles, the groups and the folds of the calibration."""

import unittest

import calibrate


def row(score, framework="ddp", gauge="allocated", model="m", tensor=False, number=0,
        trainer="none", ran=False, experts=False):
    return {
        "id": f"r-{number}",
        "sets": ["s"],
        "gauge": gauge,
        "framework": framework,
        "tensor_parallel": tensor,
        "trainer": trainer,
        "phantom": ran,
        "experts": experts,
        "gpu": "g",
        "model": model,
        "measured": 100 * (1 + score),
        "expected": 100,
        "structural": 100,
        "beside": 0,
        "score": score,
    }


class CalibrateTest(unittest.TestCase):
    def test_the_worst_case_covers_or_the_share_does(self):
        self.assertEqual(calibrate.score(110, 100, 110), 0)
        self.assertAlmostEqual(calibrate.score(110, 100, 109), 0.1)
        self.assertEqual(calibrate.score(90, 100, 80), 0)

    def test_what_loading_leaves_is_no_share(self):
        self.assertAlmostEqual(calibrate.score(112, 100, 110, beside=10), 0.02)
        self.assertEqual(calibrate.score(109, 100, 110, beside=10), 0)
        table = calibrate.fit([row(0.02, number=i) for i in range(300)], "replay")
        resumed = dict(row(0.12), structural=110, beside=10)
        self.assertAlmostEqual(calibrate.bound(table, resumed, "replay"), 112)

    def test_quantile_has_the_finite_sample_correction(self):
        scores = list(range(199))
        self.assertEqual(calibrate.conformal(scores, 0.01), 197, "the second greatest of 199")
        self.assertEqual(calibrate.conformal(scores, 0.5), 99)
        self.assertEqual(calibrate.conformal([5], 0.01), 5, "too few: the greatest")

    def test_a_side_is_filled_up_with_its_own_kind(self):
        rows = [row(0.01, "ddp"), *[row(0.02, "fsdp2") for _ in range(40)]]
        rows += [row(0.7, "nanotron", tensor=True) for _ in range(400)]
        table = calibrate.fit(rows, "replay")
        self.assertEqual(table["allocated", "replay", "ddp", False], (1, [0.02] * 6))
        self.assertEqual(table["allocated", "replay", "ddp", True], (0, [0.7] * 6))

    def test_few_rows_are_filled_up_with_the_wider_group(self):
        self.assertEqual(calibrate.conformal([9.0], 0.01, [1.0] * 50), 1.0)
        self.assertEqual(calibrate.conformal([9.0] * 3, 0.01, [1.0] * 50), 9.0)
        self.assertEqual(calibrate.conformal([0.0] * 199, 0.01, [1.0] * 50), 0.0)

    def test_a_sites_few_rows_are_filled_up_with_those_that_are_known(self):
        known = [dict(row(0.3, "fsdp2"), prior=True) for _ in range(50)]
        known += [dict(row(0.8, "ddp"), prior=True) for _ in range(50)]
        table = calibrate.fit([row(0.0, "fsdp2"), *known], "replay")
        self.assertEqual(table["allocated", "replay", "fsdp2", False], (1, [0.3] * 6))
        self.assertEqual(table["allocated", "replay", "ddp", False], (0, [0.8] * 6))
        many = [row(0.0, "fsdp2") for _ in range(calibrate.FULL)]
        table = calibrate.fit([*many, *known], "replay")
        self.assertEqual(table["allocated", "replay", "fsdp2", False], (199, [0.0] * 6))

    def test_groups(self):
        rows = [row(0.1, tensor=side) for side in (False, True) for _ in range(50)]
        rows += [row(0.5, "fsdp2", "reserved")]
        table = calibrate.fit(rows, "replay")
        self.assertEqual(table["allocated", "replay", "ddp", True], (50, [0.1] * 6))
        self.assertEqual(table["device", "replay", "fsdp2", False], (0, [0.5] * 6))
        self.assertEqual(table["device", "replay", None, None][1], [0.5] * 6)
        self.assertEqual(calibrate.look_up(table, row(0, "nanotron"), "replay"), 0.1)
        self.assertAlmostEqual(calibrate.bound(table, row(0), "replay"), 110)

    def test_a_phantoms_rows_make_a_group_of_their_own(self):
        ran = [row(0.01, ran=True, number=i) for i in range(40)]
        few = [row(0.0, "fsdp2", ran=True) for _ in range(calibrate.LEAST - 1)]
        table = calibrate.fit_all([row(0.02), *ran, *few], "replay")
        self.assertEqual(table["allocated", "replay", "ddp", False, "none"], (40, [0.02] * 6),
                         "a measured row holds more")
        self.assertNotIn(("allocated", "replay", "fsdp2", False, "none"), table)
        self.assertEqual(table["allocated", "replay", "ddp", False], (1, [0.02] * 6))
        table = calibrate.fit_all([row(0.0), *ran, *few], "replay")
        self.assertEqual(table["allocated", "replay", "ddp", False, "none"], (40, [0.01] * 6))
        self.assertEqual(table["allocated", "replay", None, None], (1, [0.0] * 6),
                         "what is known of nothing is measured")
        self.assertAlmostEqual(calibrate.bound(table, ran[0], "replay"), 101)
        self.assertAlmostEqual(calibrate.bound(table, row(0.0), "replay"), 100)

    def test_a_trainer_needs_rows_of_its_own(self):
        ran = [row(0.01, ran=True, number=i) for i in range(40)]
        ran += [row(0.03, ran=True, trainer="litgpt") for _ in range(5)]
        ran += [row(0.05, "fsdp2", ran=True, trainer="hf-trainer") for _ in range(29)]
        ran += [row(0.05, ran=True, trainer="hf-trainer")]
        table = calibrate.fit_all([row(0.0), *ran], "replay")
        self.assertNotIn(("allocated", "replay", "ddp", False, "litgpt"), table)
        count, shares = table["allocated", "replay", "ddp", False, "hf-trainer"]
        self.assertEqual((count, shares[-1]), (1, 0.05), "the trainer's rows ask for more")

    def test_rows_that_send_to_experts_widen_the_widest_alone(self):
        table = calibrate.fit([row(0.01), row(0.3, "megatron-core", experts=True)], "replay")
        self.assertNotIn(("allocated", "replay", "megatron-core", False), table)
        self.assertEqual(table["allocated", "replay", "ddp", False], (1, [0.01] * 6))
        self.assertEqual(table["allocated", "replay", None, None], (2, [0.3] * 6))
        asked = row(0, "megatron-core", experts=True)
        self.assertEqual(calibrate.look_up(table, asked, "replay"), 0.3)

    def test_no_model_is_on_both_sides(self):
        rows = [row(0, model=str(i % 7), number=i) for i in range(70)]
        folds = calibrate.assign_folds(rows)
        self.assertEqual(len(folds), 7)
        self.assertEqual(set(folds.values()), set(range(calibrate.FOLDS)))
        outlier = [row(0, number=i) for i in range(300)]
        outlier += [row(0.9, model="odd", number=i) for i in range(300, 330)]
        line = calibrate.coverage(outlier, "replay")["s"]
        self.assertEqual((line["in_sample"], line["on_folds"]), (330, 300))

    def test_a_gap_makes_no_share_but_is_not_covered(self):
        rows = [row(0.01, number=i) for i in range(300)]
        gap = dict(row(5.0), id=next(iter(calibrate.GAPS)))
        line = calibrate.coverage([*rows, gap], "replay")["s"]
        self.assertEqual((line["rows"], line["in_sample"]), (301, 300))

    def test_yaml(self):
        table = {("reserved", "replay", "ddp", True): (7, [0.0, 0.25])}
        text = calibrate.to_yaml(table, ["g"], "why", "name")
        self.assertIn("id: name\n", text)
        self.assertIn(
            "- {gauge: reserved, detail: replay, framework: ddp, tensor_parallel: true, rows: 7,"
            " shares: [0, 0.25]}\n",
            text,
        )


if __name__ == "__main__":
    unittest.main()
