"""Tests of how a site's own rows become requests, and which figure each is compared with."""

import json
import unittest

import measured
import own_runs

JOB = {"model": {"name": "llama-3.1-8b"}, "cluster": {"gpu": "h100"}}


def row(moment, gauge, job=json.dumps(JOB)):
    return measured.Row(
        {
            "id": f"measured-mine:{moment}_{gauge}",
            "what_is_measured": gauge,
            "notes": f"grade=A; moment={moment}; torch=2.8",
            "job": job,
        }
    )


def moment(phase, first_step, figure):
    names = ("peak_allocated", "current_allocated", "peak_reserved", "current_reserved")
    figures = {f"{name}_bytes": str(figure + i) for i, name in enumerate(names)}
    return {"phase": phase, "first_step": first_step, **figures}


ANSWER = {
    "ranks": [
        {
            "pipeline_stage": "0",
            "layer_count": "1",
            "in_flight_count": "1",
            "parameter_count": "1",
            "peak_phase": "PHASE_LOSS",
            "allocated": {"expected_bytes": "100", "bound_bytes": "110"},
            "reserved": {"expected_bytes": "200", "bound_bytes": "300"},
            "device": {"expected_bytes": "1000", "bound_bytes": "1200"},
            "moments": [
                moment("PHASE_LOSS", True, 40),
                moment("PHASE_END_OF_STEP", True, 10),
                moment("PHASE_LOSS", False, 80),
                moment("PHASE_END_OF_STEP", False, 20),
            ],
        }
    ]
}


class OwnRunsTest(unittest.TestCase):
    def test_the_job_is_asked_for_as_it_is(self):
        self.assertEqual(own_runs.request_of(row("first step", "allocated")), {"job": JOB})

    def test_rows_without_a_job_are_refused(self):
        for job, reason in (("", "the row has no job"), ("{", "the row's job is not JSON")):
            with self.assertRaises(measured.Refused) as caught:
                own_runs.request_of(row("first step", "allocated", job))
            self.assertEqual(str(caught.exception), reason)

    def test_figures(self):
        cases = [
            ("first step", "allocated", 40, 44),
            ("steady step", "allocated", 80, 88),
            ("end of step", "allocated", 21, 23.1),
            ("first step", "reserved", 42, 63),
            ("steady step", "reserved", 82, 123),
            ("end of step", "reserved", 23, 34.5),
            ("whole run", "device", 1000, 1200),
        ]
        for when, gauge, expected, bound in cases:
            with self.subTest(f"{when} {gauge}"):
                prediction = own_runs.predict(row(when, gauge), ANSWER)
                self.assertEqual(prediction.expected, expected)
                self.assertAlmostEqual(prediction.bound, bound)

    def test_sets_and_features(self):
        mine = row("end of step", "reserved")
        self.assertEqual(own_runs.sets_of(mine), ["measured reserved"])
        self.assertEqual(own_runs.features_of(mine)["moment"], "end of step")


if __name__ == "__main__":
    unittest.main()
