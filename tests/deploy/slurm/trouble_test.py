"""A real Slurm whose Plimsoll is down, hangs, or dies in the middle, and how long two
hundred submissions in a burst wait for it.

    PLIMSOLL=build/client/plimsoll PLIMSOLL_SERVER_BINARY=build/server/plimsoll-server \\
        python3 -m unittest trouble_test     (as root)
"""

import concurrent.futures
import pathlib
import statistics
import sys
import time
import unittest

import slurm_test
from cluster import until
from slurm_test import FITS, WHOLE_NODE, SlurmTest, counts, decisions, sbatch, settle, write_job

BURST = 200
BUDGET = 0.1  # seconds, as shipped
NAME = "plimsoll_admission_decisions_total"


def setUpModule():
    slurm_test.setUpModule()


def tearDownModule():
    slurm_test.tearDownModule()


def count_decisions(**labels):
    wanted = [f'{name}="{value}"' for name, value in labels.items()]
    return sum(value for series, value in counts().items()
               if series.startswith(NAME) and all(label in series for label in wanted))


def burst(script, count=BURST):
    """Submits from four sides at once. Returns the results, and how long each took, in
    seconds."""
    def submit(_):
        begin = time.monotonic()
        result = slurm_test.cluster.run("sbatch", "--parsable", "--hold", WHOLE_NODE, script,
                                        bare=True)
        return result, time.monotonic() - begin
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = list(pool.map(submit, range(count)))
    return [result for result, _ in results], [seconds for _, seconds in results]


class BurstTest(SlurmTest):
    def tearDown(self):
        slurm_test.cluster.run("scancel", "--state=PENDING", "--user=root")

    def assertAllQueued(self, results):
        self.assertEqual([result.stderr for result in results if result.returncode], [])
        queued = slurm_test.cluster.run("squeue", "--noheader", "--format=%i").stdout.split()
        jobs = [result.stdout.strip() for result in results]
        self.assertEqual(len(set(jobs)), len(results))
        self.assertLessEqual(set(jobs), set(queued))

    def waited(self):
        return counts()["plimsoll_admission_seconds_sum"]

    def test_a_burst_waits_for_its_answers_alone(self):
        """With all the time of the world: how long the answers take on this machine, with
        whatever else it does meanwhile."""
        results, plain = burst(write_job("", name="plain.sh"))
        self.assertAllQueued(results)
        results, asked = burst(write_job(FITS))
        self.assertAllQueued(results)
        self.assertEqual(count_decisions(decision="admit", cause="fits"), BURST)
        self.assertEqual(counts()["plimsoll_admission_seconds_count"], BURST)
        print(f"\n{BURST} submissions in a burst, four at once: each waited"
              f" {self.waited() / BURST * 1e3:.1f} ms inside slurmctld for Plimsoll;"
              f" sbatch took {statistics.median(plain) * 1e3:.0f} ms without words,"
              f" {statistics.median(asked) * 1e3:.0f} ms with", file=sys.stderr)

    def test_a_burst_on_a_busy_machine_keeps_to_the_budget(self):
        settle(budget_seconds=BUDGET)
        results, _ = burst(write_job(FITS))
        self.assertAllQueued(results)
        self.assertEqual(count_decisions(decision="admit"), BURST)
        asked = counts()["plimsoll_admission_seconds_count"]
        print(f"\n{BURST} submissions at the usual budget: {count_decisions(cause='fits'):.0f}"
              f" answered in time, {asked:.0f} asked, {self.waited() / asked * 1e3:.1f} ms each",
              file=sys.stderr)
        self.assertLess(self.waited() / asked, 2 * BUDGET)

    def hold_up(self, what, **settings):
        """A burst while there is no answer: what it waited for in all."""
        settle(budget_seconds=BUDGET, **settings)
        results, _ = burst(write_job(FITS))
        self.assertAllQueued(results)
        self.assertEqual(count_decisions(cause="unreachable", decision="admit"), BURST)
        self.assertEqual(counts()["plimsoll_admission_breaker_open"], 1)
        self.assertEqual(counts()["plimsoll_admission_seconds_count"], 3)
        print(f"\n{BURST} submissions while {what}: {self.waited() * 1e3:.0f} ms in all inside"
              " slurmctld for Plimsoll", file=sys.stderr)
        self.assertLess(self.waited(), 1)

    def test_slow_jobs_keep_nobody_elses_from_being_looked_at(self):
        """The program hangs for some jobs alone: an answer for a fixed one says so."""
        slow = slurm_test.cluster.folder / "slow"
        slow.write_text("#!/bin/sh\ngrep -q global_batch_size=4096 \"$3\" && exec sleep 60\n"
                        f"exec {slurm_test.cluster.folder}/plimsoll \"$@\"\n")
        slow.chmod(0o755)
        # Half a second is slow enough to tell, and enough for the others on a busy machine.
        settle(program=slow, budget_seconds=0.5)
        script = write_job(f"{FITS} global_batch_size=4096")
        for _ in range(4):
            results, _ = burst(script, 3)
            self.assertAllQueued(results)
            self.assertEqual(counts()["plimsoll_admission_breaker_open"], 0)
        self.assertEqual(count_decisions(cause="unreachable", decision="admit"), 12)
        self.assertEqual(counts()["plimsoll_admission_seconds_count"], 12)
        self.assertGreater(self.waited(), 12 * 0.5)
        self.assertQueued(sbatch(FITS, "--hold"))
        self.assertEqual(count_decisions(cause="fits"), 1)

    def test_a_hanging_service_holds_a_burst_up_for_less_than_a_second(self):
        slurm_test.service.freeze()
        try:
            self.hold_up("the service hangs")
        finally:
            slurm_test.service.thaw()

    def test_a_hanging_program_holds_a_burst_up_for_less_than_a_second(self):
        hanging = slurm_test.cluster.folder / "hanging"
        hanging.write_text("#!/bin/sh\ntrap '' TERM INT HUP\nwhile :; do sleep 1; done\n")
        hanging.chmod(0o755)
        self.hold_up("the program hangs", program=hanging)
        self.assertEqual(self.processes_of(hanging), [])

    def processes_of(self, program):
        """What is left of a program that was killed."""
        def running():
            found = []
            for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    if str(program).encode() in path.read_bytes():
                        found.append(path.parent.name)
                except OSError:
                    pass  # it ended meanwhile
            return found
        until(lambda: not running(), f"{program} goes on")
        return running()

    def test_a_dying_service_loses_no_submission(self):
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            going_on = pool.submit(burst, write_job(FITS), 60)
            until(lambda: count_decisions(cause="fits") >= 10, "ten are answered")
            slurm_test.service.kill()
            try:
                results, _ = going_on.result()
            finally:
                slurm_test.service.start()
        self.assertAllQueued(results)
        self.assertEqual(count_decisions(), 60)
        self.assertGreaterEqual(count_decisions(cause="unreachable"), 3)


class UnreachableTest(SlurmTest):
    def setUp(self):
        super().setUp()
        slurm_test.service.kill()

    def tearDown(self):
        if slurm_test.service.process.poll() is not None:
            slurm_test.service.start()

    def test_the_policy_says_what_becomes_of_a_job(self):
        settle(breaker_failures=2)
        self.assertQueued(sbatch(FITS, "--hold"))
        for _ in range(3):  # the last two with the breaker open
            self.assertRefused(sbatch(FITS, partition="strict"), "no answer in time")
            self.assertQueued(sbatch(FITS, "--hold"))
        self.assertEqual(counts()["plimsoll_admission_breaker_open"], 1)
        self.assertEqual(decisions("enforce", "reject", "reject", "unreachable"), 3)
        self.assertRefused(sbatch(FITS, partition="enforce,strict"), "no answer in time")

    def test_it_is_asked_again_after_the_pause(self):
        settle(breaker_failures=1, breaker_seconds=0.5)
        self.assertQueued(sbatch(FITS, "--hold"))
        slurm_test.service.start()
        until(lambda: self.assertQueued(sbatch(FITS, "--hold")) and
              decisions("enforce", "admit", "admit", "fits"), "it is asked again")
        self.assertEqual(counts()["plimsoll_admission_breaker_open"], 0)

    def test_jobs_without_words_notice_nothing(self):
        settle(program="/nonexistent")
        self.assertQueued(sbatch("", "--hold"))
        self.assertEqual(counts()["plimsoll_admission_seconds_count"], 0)


class BrokenInstallationTest(SlurmTest):
    """Whatever is missing or wrong, jobs are queued, and the log says why."""

    def queue_with(self, text):
        begin = slurm_test.cluster.log.stat().st_size
        job = self.assertQueued(sbatch(FITS, "--hold"))
        self.assertNotIn("AdminComment", slurm_test.cluster.job(job))
        log = slurm_test.cluster.log.read_text()[begin:]
        self.assertIn(text, log)

    def test_no_program(self):
        settle(program="/nonexistent/plimsoll")
        self.queue_with("/nonexistent/plimsoll")

    def test_a_wrong_policy(self):
        policy = slurm_test.cluster.folder / "wrong.yaml"
        policy.write_text("rules: {mode: perhaps}\n")
        settle(policy=policy)
        self.queue_with("policy.rules.mode: perhaps; must be one of")

    def test_wrong_settings(self):
        settle(budget_seconds=-1)
        self.queue_with("budget_seconds: -1; must be above 0; the defaults hold")

    def test_what_is_no_decision(self):
        for text in ("", "{", "[]", "null", '{"decision": 1}', '{"decision": "DECISION_ADMIT"}',
                     '{"decision": "DECISION_PERHAPS", "cause": "CAUSE_FITS"}', "x" * (2 << 20)):
            program = slurm_test.cluster.folder / "babbling"
            answer = slurm_test.cluster.folder / "answer"
            answer.write_text(text)
            program.write_text(f"#!/bin/sh\ncat {answer}\n")
            program.chmod(0o755)
            settle(program=program)
            self.queue_with("no decision after")

    def test_a_resize_that_cannot_be_said(self):
        program = slurm_test.cluster.folder / "babbling"
        program.write_text(
            "#!/bin/sh\necho '{\"decision\": \"DECISION_RESIZE\", \"cause\": \"CAUSE_FITS\", "
            "\"schedulerChanges\": [{\"field\": \"priority\", \"value\": \"1\"}]}'\n")
        program.chmod(0o755)
        settle(program=program)
        self.queue_with("a resize that Slurm's request cannot say; admitted unchanged")

    def test_no_place_for_counts(self):
        settle(textfile="/nonexistent/plimsoll.prom")
        job = self.assertQueued(sbatch(FITS, "--hold"))
        self.assertIn("AdminComment", slurm_test.cluster.job(job))


if __name__ == "__main__":
    unittest.main()
