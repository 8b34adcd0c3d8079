"""Prolog and epilogs by themselves, with what Slurm gives them and what nobody should:
they always end well. And what the linters say of every script."""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

from cluster import DEPLOY

COMMENT = "paper [plimsoll expected=11 bound=12 usable=13 gpus=4]"
SERIES = """\
plimsoll_job_predicted_gpu_memory_bytes{hpc_job="7",figure="expected"} 11
plimsoll_job_predicted_gpu_memory_bytes{hpc_job="7",figure="bound"} 12
plimsoll_job_gpu_memory_usable_bytes{hpc_job="7"} 13
plimsoll_job_gpu_count{hpc_job="7"} 4
"""


class ScriptTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.textfiles = self.folder / "textfiles"
        self.textfiles.mkdir()

    def call(self, script, **variables):
        """Runs a script as slurmd does: with these variables alone."""
        variables.setdefault("PLIMSOLL_TEXTFILE_DIRECTORY", str(self.textfiles))
        result = subprocess.run([str(DEPLOY / script)], env=variables, capture_output=True,
                                cwd=self.folder, timeout=20)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def files(self):
        return sorted(path.name for path in self.textfiles.iterdir())

    def prolog(self, job="7", comment=COMMENT):
        self.call("prolog.sh", SLURM_JOB_ID=job, SLURM_JOB_COMMENT=comment)
        return self.files()


class PrologTest(ScriptTest):
    def test_writes_what_was_predicted(self):
        self.assertEqual(self.prolog(), ["plimsoll_job_7.prom"])
        path = self.textfiles / "plimsoll_job_7.prom"
        lines = path.read_text().splitlines(keepends=True)
        self.assertEqual("".join(line for line in lines if not line.startswith("#")), SERIES)
        self.assertEqual(path.stat().st_mode & 0o777, 0o644)
        checked = subprocess.run(["promtool", "check", "metrics"], input=path.read_text(),
                                 text=True, capture_output=True)
        # A number of GPUs is a count, whatever the linter takes that word for.
        complaints = [line for line in (checked.stdout + checked.stderr).splitlines()
                      if not line.startswith("plimsoll_job_gpu_count ")]
        self.assertEqual(complaints, [])

    def test_the_epilog_removes_it(self):
        self.prolog()
        (self.textfiles / "other.prom").write_text("")
        self.call("epilog.sh", SLURM_JOB_ID="7")
        self.assertEqual(self.files(), ["other.prom"])
        self.call("epilog.sh", SLURM_JOB_ID="7")

    def test_a_job_without_a_prediction_leaves_nothing(self):
        for comment in ("", "paper", "[plimsoll expected=11 bound=12 usable=13 gpus=4] and more",
                        "[plimsoll expected=11 bound=12 usable=13]",
                        "[plimsoll expected= bound=12 usable=13 gpus=4]",
                        "[plimsoll expected=-1 bound=12 usable=13 gpus=4]",
                        "[plimsoll expected=$(id) bound=12 usable=13 gpus=4]",
                        "[plimsoll expected=11 bound=12 usable=13 gpus=" + "9" * 30 + "]"):
            self.assertEqual(self.prolog(comment=comment), [], comment)
        self.call("prolog.sh")

    def test_the_last_mark_counts(self):
        self.prolog(comment="[plimsoll expected=99 bound=99 usable=99 gpus=99] " + COMMENT)
        self.assertIn(SERIES.splitlines()[0],
                      (self.textfiles / "plimsoll_job_7.prom").read_text())

    def test_a_job_is_digits_or_nothing_happens(self):
        keep = self.folder / "keep.prom"
        keep.write_text("")
        for job in ("", "../7", "7 8", "$(touch mark)", "`touch mark`", "7;touch mark", "-rf",
                    "*", "7\n8", "../../keep"):
            self.assertEqual(self.prolog(job=job), [], job)
            self.call("epilog.sh", SLURM_JOB_ID=job)
            self.call("epilog_slurmctld.sh", SLURM_JOB_ID=job, SLURM_JOB_COMMENT=COMMENT)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()),
                         ["keep.prom", "textfiles"])

    def test_a_missing_folder_is_no_failure(self):
        for script in ("prolog.sh", "epilog.sh"):
            self.call(script, PLIMSOLL_TEXTFILE_DIRECTORY=str(self.folder / "none"),
                      SLURM_JOB_ID="7", SLURM_JOB_COMMENT=COMMENT)


class LintTest(unittest.TestCase):
    def check(self, *command, cwd=DEPLOY, **variables):
        result = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True,
                                text=True, env={**os.environ, **variables})
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout

    def test_luacheck(self):
        output = self.check("luacheck", "--no-color", ".")
        checked = re.search(r"0 errors in (\d+) files", output)
        self.assertGreater(int(checked[1]), 5)
        self.check("luacheck", "--no-color", "--std", "lua51", "--max-line-length", "100",
                   "plimsoll_test.lua", cwd=pathlib.Path(__file__).parent)

    def test_shellcheck(self):
        scripts = sorted(DEPLOY.glob("*.sh"))
        self.assertEqual(len(scripts), 3)
        self.check("shellcheck", "--shell=sh", *scripts)

    def test_the_parts_of_lua(self):
        output = self.check("lua5.1", "plimsoll_test.lua", cwd=pathlib.Path(__file__).parent,
                            LUA_PATH=f"{DEPLOY}/?.lua;;")
        self.assertRegex(output, r"(\d\d) of \1 passed")


if __name__ == "__main__":
    unittest.main()
