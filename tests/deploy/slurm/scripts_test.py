"""Prolog and epilogs by themselves, with what Slurm gives them and what nobody should:
they always end well. And what the linters say of every script."""

import itertools
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

from cluster import DEPLOY, until

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


class ReportTest(ScriptTest):
    """epilog_slurmctld.sh with a squeue and a program that wait until they are let go."""

    def setUp(self):
        super().setUp()
        self.gone = set()
        self.log, self.waiting = self.folder / "log", self.folder / "waiting"
        self.over = self.folder / "over"
        self.program = self.folder / "program"
        self.program.write_text(
            f"#!/bin/sh\n[ ! -e {self.over} ] || exit 0\n"
            f"mkfifo {self.folder}/go.$3\necho $3 >>{self.waiting}\n"
            f"read -r _ <{self.folder}/go.$3\n")
        self.program.chmod(0o755)
        self.addCleanup(self.end_all)
        script = (DEPLOY / "epilog_slurmctld.sh").read_text()
        queue = ('squeue() { for word; do case $word in --jobs=*) '
                 'echo "${word#--jobs=} COMPLETED 1 2 plimsoll {}" ;; esac; done; }\n')
        self.script = self.folder / "epilog.sh"
        self.script.write_text(script.replace("export PATH\n", "export PATH\n" + queue, 1))
        self.script.chmod(0o755)

    def end(self, *jobs, **variables):
        for job in jobs:
            self.call(self.script, SLURM_JOB_ID=str(job), SLURM_JOB_COMMENT=COMMENT,
                      PLIMSOLL_PROGRAM=str(self.program), PLIMSOLL_REPORT_LOG=str(self.log),
                      PLIMSOLL_REPORTS="3", **{"PLIMSOLL_SLOTS": str(self.folder / "slots"),
                                               **variables})

    def lines(self, path, count):
        """The lines of a file, when there are so many."""
        return until(lambda: path.exists() and len(lines := path.read_text().splitlines()) == count
                     and sorted(lines), f"{count} lines in {path}")

    def jobs_waiting(self):
        return self.waiting.read_text().split() if self.waiting.exists() else []

    def let_go(self, count=None):
        """Ends so many reports that wait; all without a number."""
        for job in [job for job in self.jobs_waiting() if job not in self.gone][:count]:
            (self.folder / f"go.{job}").write_text("\n")
            self.gone.add(job)

    def end_all(self):
        """Reports may still be on their way: none begins to wait now, and those that do end."""
        self.over.touch()
        until(lambda: self.let_go() or not self.running(), "every report has ended")

    def running(self):
        """Processes that have to do with this test's folder."""
        found = []
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if str(self.folder).encode() in (process / "cmdline").read_bytes():
                    found.append(process.name)
            except OSError:  # it has just ended
                pass
        return found

    def test_so_many_wait_and_no_more(self):
        self.end(*range(7, 27))
        self.lines(self.waiting, 3)
        said = self.lines(self.log, 17)
        for line in said:
            self.assertRegex(line, r"job \d+: not reported: the slots of .* are taken "
                                   r"\(PLIMSOLL_REPORTS: 3\)")
        reported = set(self.jobs_waiting())
        self.assertEqual(len(reported | {line.split()[1][:-1] for line in said}), 20)
        # One that ends makes room for one.
        self.let_go(1)
        more = itertools.count(30)
        until(lambda: self.end(next(more)) or len(self.jobs_waiting()) == 4, "there is room")

    def test_a_folder_of_somebody_else_is_not_used(self):
        other = self.folder / "other"
        other.mkdir()
        (self.folder / "link").symlink_to(self.textfiles)
        os.chown(other, 65534, -1)
        self.end(7, PLIMSOLL_SLOTS=str(other))
        self.end(8, PLIMSOLL_SLOTS=str(self.folder / "link"))
        self.lines(self.log, 2)
        self.assertEqual(list(other.iterdir()) + list(self.textfiles.iterdir()), [])
        self.assertFalse(self.waiting.exists())


class VariablesTest(unittest.TestCase):
    def fields(self, messages, name, prefix):
        found = []
        for kind, field in messages[name]:
            path = f"{prefix}_{field.upper()}"
            found += self.fields(messages, kind, path) if kind in messages else [path]
        return found

    def test_all_that_a_decision_sets_are_known(self):
        """By name, as in the fields of the API."""
        proto = (DEPLOY.parents[1] / "proto/plimsoll/v1/job.proto").read_text()
        messages = {}
        for name, body in re.findall(r"^message (\w+) \{\n(.*?)^\}", proto, re.S | re.M):
            messages[name] = re.findall(r"^ +(?:optional |repeated )?([\w.]+) (\w+) = \d+;", body,
                                        re.M)
        expected = {f"PLIMSOLL_{name}" for name in ("PREDICTION", "PREDICTED_BYTES", "BOUND_BYTES",
                                                    "USABLE_BYTES", "GPU_COUNT", "FRAMEWORK")}
        for section in ("Training", "Parallelism"):
            expected.update(self.fields(messages, section, "PLIMSOLL"))
        self.assertIn("PLIMSOLL_RECOMPUTE_MODE", expected)
        text = (DEPLOY / "plimsoll/variables.lua").read_text()
        self.assertEqual(sorted(re.findall(r'"(PLIMSOLL_\w+)"', text)), sorted(expected))


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
