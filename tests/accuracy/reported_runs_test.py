"""Tests of rows that `plimsoll report` writes: how they are read, and that the program's own rows
are judged and calibrated from."""

import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import measured
import reported_runs

HERE = pathlib.Path(__file__).resolve().parent
GIB = 2**30
JOB = {
    "model": {"name": "llama-3.1-8b"},
    "training": {"sequence_length": "4096"},
    "parallelism": {"zero_stage": "3", "pipeline_layout": ["16", "16"], "sequence_parallel": False},
    "runtime": {"versions": {"torch": "2"}},
    "cluster": {"gpu": "h100", "gpu_count": "8"},
}


def row(job=json.dumps(JOB)):
    return measured.Row(
        {
            "id": "reported-4711:whole_run_device",
            "gpu": "h100-80gb-sxm",
            "framework": "fsdp2",
            "what_is_measured": "device",
            "notes": "grade=B; moment=whole run; outcome=finished; source=nvidia-smi; gpus=8",
            "job": job,
        }
    )


class ReportedRunsTest(unittest.TestCase):
    def test_numbers_are_numbers_and_texts_stay(self):
        self.assertEqual(
            reported_runs.request_of(row()),
            {
                "job": {
                    "model": {"name": "llama-3.1-8b"},
                    "training": {"sequence_length": 4096},
                    "parallelism": {
                        "zero_stage": 3,
                        "pipeline_layout": [16, 16],
                        "sequence_parallel": False,
                    },
                    "runtime": {"versions": {"torch": "2"}},
                    "cluster": {"gpu": "h100-80gb-sxm", "gpu_count": 8},
                }
            },
        )

    def test_a_configuration_is_left_as_it_is(self):
        model = {"hf_config": {"model_type": "llama", "transformers_version": "4"}}
        job = {"model": model, "cluster": {"gpu_memory_bytes": "5"}}
        self.assertEqual(
            reported_runs.request_of(row(json.dumps(job))),
            {"job": {"model": model, "cluster": {"gpu_memory_bytes": 5}}},
        )

    def test_rows_without_a_job_are_refused(self):
        for job, reason in (("", "the row has no job"), ("{", "the row's job is not JSON")):
            with self.assertRaises(measured.Refused) as caught:
                reported_runs.request_of(row(job))
            self.assertEqual(str(caught.exception), reason)

    def test_the_fullest_rank_is_compared(self):
        def rank(expected):
            moment = {
                "phase": "PHASE_END_OF_STEP",
                "peak_allocated_bytes": "1",
                "current_allocated_bytes": "1",
            }
            return {
                "device": {"expected_bytes": str(expected), "bound_bytes": str(expected + 1)},
                "parameter_count": "1",
                "layer_count": "1",
                "in_flight_count": "1",
                "peak_phase": "PHASE_LOSS",
                "moments": [{**moment, "first_step": first} for first in (True, False)],
            }

        prediction = reported_runs.predict(row(), {"ranks": [rank(9), rank(10), rank(8)]})
        self.assertEqual((prediction.expected, prediction.bound), (10, 11))
        self.assertEqual(prediction.gauge, "device")

    def test_sets_and_features(self):
        self.assertEqual(reported_runs.sets_of(row()), ["reported device"])
        self.assertEqual(
            reported_runs.features_of(row()),
            {"source": "nvidia-smi", "framework": "fsdp2", "gpu": "h100-80gb-sxm"},
        )


@unittest.skipUnless("PLIMSOLL" in os.environ, "ctest says where the program is")
class OwnRowsTest(unittest.TestCase):
    """The program writes rows; accuracy.py judges them, and calibrate.py makes a table of them
    that the program takes."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "rows").mkdir()
        self.program = os.environ["PLIMSOLL"]

    def job(self, tensor_parallel_size):
        return {
            "model": {"name": "llama-3.1-8b"},
            "training": {"sequence_length": 2048},
            "parallelism": {"zero_stage": 1, "tensor_parallel_size": tensor_parallel_size},
            "runtime": {"framework": "megatron-core", "versions": {"megatron-core": "0.8"}},
            "cluster": {"gpu": "h200", "gpu_count": 8},  # which has room for any bound
        }

    def run_program(self, *arguments, text=""):
        done = subprocess.run(
            [self.program, *arguments], input=text, capture_output=True, text=True, check=False
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def report(self, number, job, excess):
        """Reports that a job used `excess` times what is predicted for it; returns that."""
        estimate = json.loads(self.run_program("estimate", "-", "-o", "json", text=json.dumps(job)))
        device = estimate["ranks"][int(estimate["limitingRank"])]["device"]
        peak = round(int(device["expectedBytes"]) * excess)
        prediction = {"job": job, "verdict": estimate["verdict"], "device": device}
        arguments = ["--prediction", "-", "--peak", f"{peak}B", "--job-id", str(number)]
        arguments += ["--rows", str(self.folder / "rows" / "site.csv")]
        self.run_program("report", *arguments, text="plimsoll " + json.dumps(prediction))
        return int(device["expectedBytes"]), peak

    def script(self, name, *flags):
        command = [sys.executable, "-B", str(HERE / name), "--plimsoll", self.program]
        command += ["--data", str(self.folder / "rows"), *flags]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_columns_are_those_of_the_kit(self):
        self.report(1, self.job(1), 1.0)
        sys.path.insert(0, str(HERE / "measure"))
        self.addCleanup(sys.path.remove, str(HERE / "measure"))
        import rows  # of the kit

        with open(self.folder / "rows" / "site.csv", newline="", encoding="utf-8") as file:
            self.assertEqual(next(csv.reader(file)), rows.COLUMNS)

    def test_rows_are_judged_and_calibrated_from(self):
        reported = {
            f"reported-{number}:whole_run_device": self.report(number, self.job(size), excess)
            for number, size, excess in ((1, 1, 0.9), (2, 2, 1.05), (3, 4, 1.1))
        }
        judged = self.folder / "judged.csv"
        table = self.script("accuracy.py", "--rows", str(judged), "--brief")
        self.assertRegex(table, r"\nreported device +3 +0 ")
        with open(judged, newline="", encoding="utf-8") as file:
            found = {row["id"]: row for row in csv.DictReader(file)}
        self.assertEqual(set(found), set(reported))
        for name, (expected, peak) in reported.items():
            self.assertEqual(int(found[name]["predicted"]), expected)
            self.assertEqual(float(found[name]["measured"]), peak)

        calibration = self.folder / "site.yaml"
        self.script("calibrate.py", "--id", "my-site", "--write", str(calibration))
        arguments = ["estimate", "-", "-o", "json", "--calibration", str(calibration)]
        answer = json.loads(self.run_program(*arguments, text=json.dumps(self.job(1))))
        self.assertEqual(answer["calibrationId"], "my-site")


if __name__ == "__main__":
    unittest.main()
