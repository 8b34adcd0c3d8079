"""Prolog and epilogs by themselves, with what Slurm gives them and what nobody should:
they always end well. And what the linters say of every script."""

import itertools
import os
import pathlib
import re
import subprocess
import tempfile
import time
import unittest

from cluster import DEPLOY, until

FIGURES = "[plimsoll expected=11 bound=12 usable=13 gpus=4"
COMMENT = f"paper {FIGURES} model=llama-3.1-8b gpu=h100-80gb-sxm]"
SERIES = """\
plimsoll_job_predicted_gpu_memory_bytes{hpc_job="7",figure="expected"} 11
plimsoll_job_predicted_gpu_memory_bytes{hpc_job="7",figure="bound"} 12
plimsoll_job_gpu_memory_usable_bytes{hpc_job="7"} 13
plimsoll_job_gpu_count{hpc_job="7"} 4
plimsoll_job_info{hpc_job="7",user="alice",partition="h100",model="llama-3.1-8b",\
gpu="h100-80gb-sxm"} 1
"""
ENDED = 'plimsoll_job_end_time_seconds{hpc_job="%s",outcome="%s",state="%s"} 1700000100\n'


class ScriptTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.textfiles = self.folder / "textfiles"
        self.textfiles.mkdir()

    def test_settings_are_read_alike(self):
        """Each script stands alone: one that looked for a file of shared lines, and did not
        find it, would end badly, and drain the node."""
        read = {re.search(r"# Settings:.*?\nfi\n", (DEPLOY / script).read_text(), re.S).group()
                for script in ("prolog.sh", "epilog.sh", "epilog_slurmctld.sh")}
        self.assertEqual(len(read), 1)

    def call(self, script, **variables):
        """Runs a script as slurmd does: with these variables alone."""
        variables.setdefault("PLIMSOLL_TEXTFILE_DIRECTORY", str(self.textfiles))
        variables.setdefault("PLIMSOLL_GPU_DIRECTORY", str(self.folder / "gpus"))
        result = subprocess.run([str(DEPLOY / script)], env=variables, capture_output=True,
                                cwd=self.folder, timeout=20)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def files(self):
        return sorted(path.name for path in self.textfiles.iterdir())

    def prolog(self, job="7", comment=COMMENT, **variables):
        self.call("prolog.sh", SLURM_JOB_ID=job, SLURM_JOB_COMMENT=comment,
                  **{"SLURM_JOB_USER": "alice", "SLURM_JOB_PARTITION": "h100", **variables})
        return self.files()

    def series(self):
        """What the prolog wrote, and when it says that the job began."""
        lines = (self.textfiles / "plimsoll_job_7.prom").read_text().splitlines(keepends=True)
        *series, start = [line for line in lines if not line.startswith("#")]
        name, _, begin = start.partition(" ")
        self.assertEqual(name, 'plimsoll_job_start_time_seconds{hpc_job="7"}')
        return "".join(series), int(begin)


class PrologTest(ScriptTest):
    def test_writes_what_was_predicted(self):
        before = int(time.time())
        self.assertEqual(self.prolog(), ["plimsoll_job_7.prom"])
        path = self.textfiles / "plimsoll_job_7.prom"
        series, begin = self.series()
        self.assertEqual(series, SERIES)
        self.assertTrue(before <= begin <= time.time())
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

    def gpus(self):
        folder = self.folder / "gpus"
        return {path.name: path.read_text().split() for path in folder.iterdir()
                if path.name != ".lock"}

    def test_each_gpu_names_its_jobs(self):
        """For dcgm-exporter; jobs without a prediction too, and such as share a GPU."""
        self.prolog("7", "", SLURM_JOB_GPUS="0,1")
        self.prolog("8", SLURM_JOB_GPUS="1,3")
        self.prolog("8", SLURM_JOB_GPUS="1,3")
        self.prolog("9", "")
        self.assertEqual(self.gpus(), {"0": ["7"], "1": ["7", "8"], "3": ["8"]})
        self.assertEqual((self.folder / "gpus/0").stat().st_mode & 0o777, 0o644)
        self.call("epilog.sh", SLURM_JOB_ID="8")
        self.assertEqual(self.gpus(), {"0": ["7"], "1": ["7"]})
        self.call("epilog.sh", SLURM_JOB_ID="7")
        self.assertEqual(self.gpus(), {})

    def test_a_gpu_is_digits_or_left_out(self):
        self.prolog(SLURM_JOB_GPUS="../x,*,2,$(id),GPU-4a")
        self.assertEqual(self.gpus(), {"2": ["7"]})
        self.assertFalse((self.folder / "x").exists())

    def test_no_place_for_gpus_is_no_failure(self):
        place = self.folder / "file"
        place.write_text("")
        self.assertEqual(self.prolog(SLURM_JOB_GPUS="0", PLIMSOLL_GPU_DIRECTORY=str(place)),
                         ["plimsoll_job_7.prom"])
        full = self.folder / "full"
        (full / ".lock").mkdir(parents=True)
        for script in ("prolog.sh", "epilog.sh"):
            self.call(script, SLURM_JOB_ID="7", SLURM_JOB_COMMENT=COMMENT, SLURM_JOB_GPUS="0",
                      PLIMSOLL_GPU_DIRECTORY=str(full))
        self.assertEqual(self.files(), [])

    def test_labels_are_plain_or_empty(self):
        """Whoever names a user, a partition or a model, no line is made of it."""
        def info(comment=COMMENT, **variables):
            self.prolog(comment=comment, **variables)
            return self.series()[0].splitlines()[-1].partition("{")[2]

        hostile = 'x"} 1\nother{a="'
        self.assertEqual(info(SLURM_JOB_USER=hostile, SLURM_JOB_PARTITION=hostile),
                         'hpc_job="7",user="",partition="",model="llama-3.1-8b",'
                         'gpu="h100-80gb-sxm"} 1')
        self.assertEqual(info(f"{FIGURES} model={hostile} gpu=$(id)]"),
                         'hpc_job="7",user="alice",partition="h100",model="x",gpu=""} 1')
        self.assertEqual(info(f"{FIGURES}]", SLURM_JOB_USER="", SLURM_JOB_UID="1000"),
                         'hpc_job="7",user="1000",partition="h100",model="",gpu=""} 1')

    def test_a_file_has_the_settings(self):
        """Without a script around them, and nothing in it is run."""
        other = self.folder / "other textfiles"
        other.mkdir()
        settings = self.folder / "slurm.env"
        for line in (f"PLIMSOLL_TEXTFILE_DIRECTORY={other}",
                     f'  PLIMSOLL_TEXTFILE_DIRECTORY="{other}"'):
            settings.write_text(
                f"# comment\n\n)(\nPLIMSOLL_X\nPLIMSOLL_a;b=1\ntouch {self.folder}/run\n"
                f"PLIMSOLL_X=$(touch {self.folder}/run)\nPATH=/nonexistent\n{line}")
            self.prolog(PLIMSOLL_SLURM_ENV=str(settings))
            self.assertEqual([path.name for path in other.iterdir()], ["plimsoll_job_7.prom"])
            self.call("epilog.sh", SLURM_JOB_ID="7", PLIMSOLL_SLURM_ENV=str(settings))
            self.assertEqual(self.files() + list(other.iterdir()), [])
        self.assertFalse((self.folder / "run").exists())

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
        queue = ('squeue() { for word; do case $word in --jobs=*) echo "${word#--jobs=} '
                 '${STATE:-COMPLETED} 1700000000 1700000100 plimsoll {}" ;; esac; done; }\n')
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

    def ended(self, job, **variables):
        """What is written of a job's end."""
        self.end(job, **variables)
        path = self.textfiles / f"plimsoll_ended_{job}.prom"
        text = until(lambda: path.exists() and path.read_text(), path.name)
        self.assertEqual(path.stat().st_mode & 0o777, 0o644)
        checked = subprocess.run(["promtool", "check", "metrics"], input=text, text=True,
                                 capture_output=True)
        self.assertEqual(checked.stdout + checked.stderr, "")
        return text.splitlines(keepends=True)[-1]

    def test_how_a_job_ended_is_written(self):
        self.assertEqual(self.ended("7"), ENDED % ("7", "finished", "COMPLETED"))
        self.assertEqual(self.ended("8", STATE="CANCELLED"), ENDED % ("8", "other", "CANCELLED"))
        codes = {"PLIMSOLL_OUT_OF_MEMORY_EXIT_CODES": "76 77", "SLURM_JOB_EXIT_CODE2": "77:0"}
        self.assertEqual(self.ended("9", STATE="FAILED", **codes),
                         ENDED % ("9", "out-of-memory", "FAILED"))

    def test_what_was_written_of_ends_goes_after_ten_minutes(self):
        for job, minutes in (("5", 9), ("6", 11)):
            path = self.textfiles / f"plimsoll_ended_{job}.prom"
            path.touch()
            os.utime(path, (time.time() - 60 * minutes,) * 2)
        (self.textfiles / "other.prom").touch()
        os.utime(self.textfiles / "other.prom", (0, 0))
        self.ended("7")
        self.assertEqual(self.files(), ["other.prom", "plimsoll_ended_5.prom",
                                        "plimsoll_ended_7.prom"])

    def test_a_job_that_has_not_ended_is_not_said_to_have(self):
        for job, state in (("7", "PENDING 0 N/A plimsoll {}"), ("8", "a\"b")):
            self.end(job, STATE=state)
        self.lines(self.waiting, 2)
        self.assertEqual(self.files(), [])

    def test_a_file_has_the_settings(self):
        settings = self.folder / "slurm.env"
        settings.write_text(f"PLIMSOLL_REPORT_LOG={self.log}\nPLIMSOLL_REPORTS=0\n")
        self.call(self.script, SLURM_JOB_ID="7", SLURM_JOB_COMMENT=COMMENT,
                  PLIMSOLL_SLURM_ENV=str(settings))
        self.assertIn("PLIMSOLL_REPORTS: 0;", self.lines(self.log, 1)[0])

    def test_a_folder_of_somebody_else_is_not_used(self):
        other = self.folder / "other"
        other.mkdir()
        (self.folder / "link").symlink_to(self.textfiles)
        os.chown(other, 65534, -1)
        self.end(7, PLIMSOLL_SLOTS=str(other))
        self.end(8, PLIMSOLL_SLOTS=str(self.folder / "link"))
        self.lines(self.log, 2)
        self.assertEqual(list(other.iterdir()) + self.files(), [])
        self.assertFalse(self.waiting.exists())


class SettingsTest(unittest.TestCase):
    def scripts(self):
        return {path.name: path.read_text() for path in DEPLOY.glob("*.sh")}

    def test_all_scripts_read_them_alike(self):
        readers = {re.search(r"^# Settings: .*?^fi$", text, re.S | re.M)[0]
                   for text in self.scripts().values()}
        self.assertEqual(len(readers), 1)

    def test_the_file_names_each_with_its_default(self):
        file = (DEPLOY / "slurm.env").read_text()
        shown = dict(re.findall(r"^#(PLIMSOLL_\w+)=(.*)$", file, re.M))
        text = "".join(self.scripts().values())
        used = dict(re.findall(r"\$\{(PLIMSOLL_\w+):-([^}$]*)", text))
        del used["PLIMSOLL_SLURM_ENV"]
        used["PLIMSOLL_SLOTS"] = ""  # it has SlurmUser's number
        self.assertEqual(shown, used)


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
