"""Tests of the tables of step times, on results made by hand."""

import unittest

import figures
import measured
import speed
import speed_figures
import speed_tables
from speed_figures_test import THREE, result


class ReadmeTest(unittest.TestCase):
    def now(self):
        failed = {"set": "s", "reason": "experts", "row": THREE[0]["row"]}
        return speed.summarize(THREE, [failed], [])

    def test_sets(self):
        text = speed_tables.markdown(self.now())
        self.assertIn("| s | 4 | 0 | 1 | 36.4 % | 55.3 % | 57.6 % | -35.5 % | – |", text)

    def test_a_set_of_refused_rows_alone(self):
        now = speed.summarize([], [{"set": "s", "reason": "experts", "row": THREE[0]["row"]}], [])
        self.assertIn("| s | 1 | 0 | 1 | – | – | – | – | – |", speed_tables.markdown(now))

    def test_choices_beside_what_failed(self):
        now = self.now()
        now["failed"].update(groups=3, worked=5, failed=4, ran_out_of_memory=1, without_verdict=2)
        text = speed_tables.markdown(now)
        self.assertIn("Of 3 groups in which 5 configurations worked and 4 ran out of memory", text)
        self.assertIn("one that ran out in 1 (without the verdict: 2)", text)

    def test_targets(self):
        f = {"median": 4.0, "p90": 30.0}
        both = {"median": 5, "p90": 25}
        self.assertEqual(speed_tables.target_cell(both, f), "median 5 %, p90 25 %: **missed**")
        self.assertEqual(speed_tables.target_cell(None, f), "–")

    def test_targets_of_choices(self):
        mine = [{**r, "set": "vtrain_multi_node"} for r in THREE]
        text = speed_tables.markdown(speed.summarize(mine, [], []))
        self.assertIn("| vtrain_multi_node | 1 | 3 | 10.0 % |", text)
        self.assertIn("mean 3 %: **missed** |", text)

    def test_blocks_have_markers_of_their_own(self):
        begin, end = speed_tables.MARKERS
        old = f"a\n{begin}\nold\n{end}\n{figures.BEGIN}\nb\n{figures.END}\n"
        new = figures.write_between_markers(old, "new\n", speed_tables.MARKERS)
        self.assertEqual(new, old.replace("old", "new"))


    def test_errors_on_models_not_seen(self):
        text = speed_tables.folds(self.now()["sets"])
        self.assertIn("| s | 3 | 36.4 % | 55.3 % | 57.6 % | -35.5 % |", text)


class DetailTest(unittest.TestCase):
    ON_A100 = {"gpu": "a100", "framework": "megatron-lm"}

    def of(self, row_id, name, predicted, notes=""):
        made = result(row_id, 10, predicted, **self.ON_A100)
        return {**made, "set": name, "row": measured.Row({"id": row_id, "notes": notes})}

    def test_residuals_by_gpu_and_framework(self):
        lines = speed_tables.residuals([self.of("kor-1", "papers", 11), self.of("vts-1", "vtrain_single_node", 9)])
        self.assertEqual(lines, [["a100", "megatron-lm", "2", "10.0 %", "10.0 %", "+0.0 %"]])

    def test_a_row_of_two_sets_counts_once_and_a_suspect_one_not(self):
        rows = [
            self.of("usp-1", "nanotron, all", 11, "cal=ok"),
            self.of("usp-1", "nanotron, cal=ok", 11, "cal=ok"),
            self.of("usp-2", "nanotron, all", 50),
        ]
        self.assertEqual(speed_tables.residuals(rows)[0][2:4], ["1", "10.0 %"])

    def test_refusals_and_worst_rows(self):
        rows = [self.of("kor-1", "papers", 11), self.of("kor-2", "papers", 8)]
        refusal = {"set": "papers", "reason": "experts", "row": rows[0]["row"]}
        text = speed_tables.detail(speed.summarize(rows, [refusal], []), rows)
        self.assertIn("| papers | -20.0 % | kor-2 |", text)
        self.assertIn("* papers: experts (1)", text)


class PublishedTest(unittest.TestCase):
    def test_rows_are_estimated_or_say_why_not(self):
        made = result("kor-0001", 2.0, 2.5)
        row = measured.Row({"id": "kor-0002", "model": "m", "num_gpus": "4", "gpu": "H100"})
        refused = {"row": row, "reason": "experts"}
        other = {"row": measured.Row({"id": "kor-0003"}), "reason": speed_figures.OTHER_FIGURE}
        text = speed_tables.published([made], [refused, other])
        self.assertIn("| kor-0001 | GPT, 8x H100, tp2 | 2.000 | 2.500 | 1.250 |", text)
        self.assertIn("| kor-0002 | m, 4x H100 |  |  | not estimated: experts |", text)
        self.assertNotIn("kor-0003", text)


if __name__ == "__main__":
    unittest.main()
