"""Tests of the rows: what is written of a measurement, and that accuracy.py judges it."""

import contextlib
import csv
import io
import json
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

import measure
import plan as plans
import rows
from plan_test import job, sharded

HERE = pathlib.Path(__file__).resolve().parent
GIB = 2**30
# Numbers of no run: each figure its own, so that none can stand for another.
MEASURED = {
    "gpu": "NVIDIA H100 80GB HBM3",
    "gpu_memory_bytes": 79 * GIB,
    "device_bytes": 9 * GIB,
    "processes": 1,
    "parameter_count": 106816,
    "torch": "2.8.0+cu128",
    "transformers": "4.57.1",
    "retries": 0,
    "first": {"peak_allocated": 1, "peak_reserved": 2, "end_allocated": 3, "end_reserved": 4},
    "steady": {"peak_allocated": 5, "peak_reserved": 6, "end_allocated": 7, "end_reserved": 8},
}


def rows_of(asked, **changes):
    return rows.rows_of("mine", asked, plans.plan_of(asked), {**MEASURED, **changes})


class RowsTest(unittest.TestCase):
    def test_a_row_for_each_figure(self):
        found = {row["id"]: row["measured_value"] for row in rows_of(job())}
        self.assertEqual(
            found,
            {
                "measured-mine:first_step_allocated": 1,
                "measured-mine:first_step_reserved": 2,
                "measured-mine:steady_step_allocated": 5,
                "measured-mine:steady_step_reserved": 6,
                "measured-mine:end_of_step_allocated": 7,
                "measured-mine:end_of_step_reserved": 8,
                "measured-mine:whole_run_device": 9 * GIB,
            },
        )

    def test_no_device_where_it_would_mislead(self):
        cases = [
            (sharded(), {}, "ranks are faked, so NCCL's memory is missing"),
            (job(), {"processes": 2}, "other processes are on the GPU"),
            (job(), {"processes": None}, "nvidia-smi does not answer"),
        ]
        for asked, changes, why in cases:
            with self.subTest(why):
                gauges = {row["what_is_measured"] for row in rows_of(asked, **changes)}
                self.assertEqual(gauges, {"allocated", "reserved"})
                made = plans.plan_of(asked)
                self.assertEqual(rows.why_no_device(made, {**MEASURED, **changes}), why)
        self.assertEqual(rows.why_no_device(plans.plan_of(job()), MEASURED), "")

    def test_the_job_carries_the_torch_that_ran_it(self):
        self.assertEqual(
            json.loads(rows_of(job())[0]["job"])["runtime"], {"versions": {"torch": "2.8"}}
        )
        asked = job(runtime={"versions": {"torch": "2.8.0"}, "framework": "ddp"})
        self.assertEqual(json.loads(rows_of(asked)[0]["job"]), asked)

    def test_columns_are_those_of_the_data(self):
        with open(HERE.parent / "data" / "torchtitan.csv", newline="", encoding="utf-8") as file:
            self.assertEqual(rows.COLUMNS, next(csv.reader(file)) + ["job"])


# Stands where a Python with torch and a GPU would: answers a plan with MEASURED.
STAND_IN = f"""#!{sys.executable}
import json, os, sys
asked = json.load(sys.stdin)
if asked["attention"] == "cudnn":
    print("traceback", file=sys.stderr)
    sys.exit("torch.OutOfMemoryError: CUDA out of memory")
measured = json.loads('''{json.dumps(MEASURED)}''')
measured["device_bytes"] = int(os.environ.get("CUBLAS_WORKSPACE_CONFIG", ":5")[1:])
print("chatter of a library")
print(json.dumps(measured))
"""


class MeasureTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.python = self.folder / "python"
        self.python.write_text(STAND_IN, encoding="utf-8")
        self.python.chmod(self.python.stat().st_mode | stat.S_IXUSR)
        self.data = self.folder / "rows"
        self.data.mkdir()

    def file(self, name, asked):
        asked["cluster"] = {"gpu_memory_bytes": 79 * GIB, **asked.get("cluster", {})}
        asked["cluster"].pop("gpu", None)
        path = self.folder / name
        path.write_text(json.dumps(asked), encoding="utf-8")
        return str(path)

    def measure(self, *files):
        """Exit status, stderr, rows written."""
        written = self.data / "rows.csv"
        errors = io.StringIO()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
            flags = ["--write", str(written), "--python", str(self.python)]
            status = measure.main([*files, *flags])
        if not written.exists():
            return status, errors.getvalue(), []
        with open(written, newline="", encoding="utf-8") as file:
            return status, errors.getvalue(), list(csv.DictReader(file))

    def test_good_jobs_are_written_and_bad_ones_said(self):
        good = self.file("good.json", job())
        refused = self.file("refused.json", job(runtime={"compile": True}))
        failed = self.file("failed.json", job(training={"attention": "cudnn"}))
        status, errors, written = self.measure(good, refused, failed)
        self.assertEqual(status, 2)
        self.assertEqual(
            errors,
            f"{refused}: runtime.compile: true; the kit runs eager modules\n"
            f"{failed}: torch.OutOfMemoryError: CUDA out of memory\n",
        )
        self.assertEqual({row["id"].partition(":")[0] for row in written}, {"measured-good"})

    def test_the_environment_reaches_the_run(self):
        path = self.file("a.json", job(runtime={"cublas_workspace_config": ":77"}))
        written = {row["what_is_measured"]: row for row in self.measure(path)[2]}
        self.assertEqual(written["device"]["measured_value"], "77")

    def test_another_gpu_is_refused(self):
        path = self.file("a.json", job(cluster={"gpu_memory_bytes": 5}))
        status, errors, written = self.measure(path)
        self.assertEqual((status, written), (2, []))
        self.assertIn(f"cluster.gpu_memory_bytes: 5; this GPU has {79 * GIB}", errors)

    def test_two_files_of_one_name(self):
        with self.assertRaisesRegex(SystemExit, "two job files have one name"):
            measure.main(["a/job.json", "b/job.json", "--plan"])

    @unittest.skipUnless("PLIMSOLL" in os.environ, "ctest says where the program is")
    def test_accuracy_judges_the_rows(self):
        files = [self.file("one.json", job()), self.file("eight.json", sharded())]
        self.assertEqual(self.measure(*files)[0], 0)
        program = [sys.executable, "-B", str(HERE.parent / "accuracy.py"), "--brief"]
        judged = self.folder / "judged.csv"
        flags = ["--plimsoll", os.environ["PLIMSOLL"], "--data", self.data, "--rows", judged]
        subprocess.run([*program, *flags], check=True, capture_output=True)
        with open(judged, newline="", encoding="utf-8") as file:
            found = {row["id"]: row for row in csv.DictReader(file)}
        self.assertEqual(len(found), 6 + 1 + 6)
        figures = {name: int(row["predicted"]) for name, row in found.items()}
        for name in ("one", "eight"):
            peaks = [figures[f"measured-{name}:{step}_step_allocated"] for step in ("first", "steady")]
            self.assertGreater(min(peaks), figures[f"measured-{name}:end_of_step_allocated"])
            reserved = figures[f"measured-{name}:steady_step_reserved"]
            self.assertGreaterEqual(reserved, figures[f"measured-{name}:steady_step_allocated"])
        self.assertGreater(
            figures["measured-one:whole_run_device"], figures["measured-one:steady_step_reserved"]
        )


if __name__ == "__main__":
    unittest.main()
