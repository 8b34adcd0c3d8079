"""Submissions to a real Slurm that asks a real Plimsoll: what is queued, what is
changed, what is refused and what the user reads of it.

    PLIMSOLL=build/client/plimsoll PLIMSOLL_SERVER_BINARY=build/server/plimsoll-server \\
        python3 -m unittest slurm_test     (as root)

KEEP=<folder> keeps the cluster's files there.
"""

import concurrent.futures
import json
import os
import pathlib
import shutil
import tempfile
import unittest

from cluster import GPUS, Cluster, until
from opened import Opened
from service import Service

MODEL = "model.name=llama-3.1-8b sequence_length=4096 micro_batch_size=1 global_batch_size=16"
FITS = f"{MODEL} zero_stage=3 framework=fsdp2"
OVERSIZE = f"{MODEL} framework=ddp"
NEEDS = "needs 174.1 GiB"  # the model's own figure of it
TOO_LONG = ("model.name=llama-3.1-8b sequence_length=16384 global_batch_size=64 zero_stage=3"
            " framework=fsdp2")  # fits with recomputation
JOB_FILE = """\
model: {name: llama-3.1-8b}
training: {sequence_length: 4096, micro_batch_size: 1, global_batch_size: 16}
parallelism: {zero_stage: 3}
runtime: {framework: fsdp2}
"""
POLICY = """\
rules: {mode: enforce, gpu_types: {h100: h100-80gb-sxm}}
partitions:
  resize: {resize: allowed}
  counts: {resize: allowed, allowed_changes: [cluster.gpu_count], gpu_counts: "1..8",
           gpus_per_node: 8}
  warn: {mode: warn}
  shadow: {mode: shadow}
  off: {mode: off}
  strict: {unreachable: reject}
"""
PARTITIONS = ("enforce", "resize", "counts", "warn", "shadow", "off", "strict")
WHOLE_NODE = f"--gpus-per-node=h100:{GPUS}"
USER = "nobody"

cluster = service = None


def setUpModule():
    global cluster, service
    folder = pathlib.Path(os.environ.get("KEEP") or tempfile.mkdtemp(prefix="plimsoll-slurm-"))
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    service = Service(folder)
    cluster = Cluster(folder / "cluster", PARTITIONS, "")
    shutil.copy(os.environ["PLIMSOLL"], cluster.folder / "plimsoll")
    (cluster.folder / "policy.yaml").write_text(POLICY)
    for name, script in (("prolog", "prolog.sh"), ("epilog", "epilog.sh")):
        cluster.write_script(name, script, PLIMSOLL_TEXTFILE_DIRECTORY=cluster.textfiles)
    cluster.write_script("epilog_slurmctld", "epilog_slurmctld.sh",
                         PLIMSOLL_PROGRAM=cluster.folder / "plimsoll",
                         PLIMSOLL_SERVER=service.address,
                         SLURM_CONF=cluster.conf / "slurm.conf",
                         PLIMSOLL_TEXTFILE_DIRECTORY=cluster.textfiles,
                         PLIMSOLL_SLOTS=cluster.folder / "slots",
                         PLIMSOLL_REPORT_LOG=cluster.folder / "report.log")
    service.start()
    settle()
    cluster.start()


def tearDownModule():
    cluster.stop()
    service.stop()
    if not os.environ.get("KEEP"):
        shutil.rmtree(cluster.folder.parent)


def settle(**settings):
    """Writes slurm.lua. A machine that is busy with other tests gets time to answer,
    where time is not what is tested."""
    values = {"program": cluster.folder / "plimsoll", "policy": cluster.folder / "policy.yaml",
              "server": service.address, "budget_seconds": 10,
              "textfile": cluster.textfiles / "plimsoll_admission.prom", **settings}
    lines = [f"  {name} = {value if isinstance(value, (int, float)) else json.dumps(str(value))},"
             for name, value in values.items()]
    cluster.settings.write_text("return {\n" + "\n".join(lines) + "\n}\n")
    cluster.reload()


def write_job(words, commands="true", name="job.sh", user=None):
    """A batch script with a `#PLIMSOLL` line for each of `words`' lines."""
    path = cluster.folder / name
    directives = "".join(f"#PLIMSOLL {line}\n" for line in words.splitlines())
    text = f"#!/bin/sh\n#SBATCH --output=/dev/null\n{directives}{commands}\n"
    path.write_bytes(text.encode(errors="surrogateescape"))
    return path


def sbatch(words, *options, commands="true", partition="enforce", gpus=WHOLE_NODE, **more):
    return cluster.run("sbatch", "--parsable", f"--partition={partition}", gpus, *options,
                       write_job(words, commands), **more)


def folder_of_user():
    """A folder with a job file that its owner alone may read."""
    folder = pathlib.Path(tempfile.mkdtemp(dir=cluster.folder))
    (folder / "job.yaml").write_text(JOB_FILE)
    (folder / "job.yaml").chmod(0o600)
    shutil.chown(folder, USER)
    shutil.chown(folder / "job.yaml", USER)
    return folder


def counts():
    """The counts that slurmctld wrote, by series."""
    path = cluster.textfiles / "plimsoll_admission.prom"
    if not path.exists():
        return {}
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return {series: float(value) for series, value in (line.rsplit(" ", 1) for line in lines)}


def decisions(mode, decision, enforced, cause):
    return counts().get(
        f'plimsoll_admission_decisions_total{{scheduler="slurm",mode="{mode}",'
        f'decision="{decision}",enforced="{enforced}",cause="{cause}"}}', 0)


class SlurmTest(unittest.TestCase):
    def setUp(self):
        self.maxDiff = None
        settle()

    def assertQueued(self, result):
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.strip()

    def assertRefused(self, result, *texts):
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertIn("Job violates accounting/QOS policy", result.stderr)
        for text in texts:
            self.assertIn(text, result.stderr)

    def run_and_see(self, words, *options, see="env | sort", **more):
        """Submits, waits for the job's end, and returns what it printed and what Slurm
        knows of it."""
        output = cluster.folder / "seen"
        output.unlink(missing_ok=True)
        result = sbatch(words, *options, commands=f"exec >{output}\n{see}", **more)
        fields = cluster.wait_for(self.assertQueued(result))
        return result, output.read_text(), fields


class DecisionTest(SlurmTest):
    def test_a_job_without_words_is_not_touched(self):
        _, seen, fields = self.run_and_see("", "--comment=for the paper")
        self.assertNotIn("PLIMSOLL_PRED", seen)
        self.assertEqual(fields["Comment"], "for the paper")
        self.assertNotIn("AdminComment", fields)
        self.assertGreaterEqual(decisions("unknown", "admit", "admit", "not-asked"), 1)

    def test_a_job_that_fits_is_queued_with_its_prediction(self):
        see = (f"env | sort; cat {cluster.textfiles}/plimsoll_job_$SLURM_JOB_ID.prom;"
               f" cd {cluster.folder}/gpus; grep -x $SLURM_JOB_ID *")
        result, seen, fields = self.run_and_see(FITS, "--comment=for the paper", see=see)
        self.assertEqual(result.stderr, "")
        variables = dict(line.split("=", 1) for line in seen.splitlines() if "=" in line)
        expected, bound = (int(variables[f"PLIMSOLL_{name}_BYTES"])
                           for name in ("PREDICTED", "BOUND"))
        self.assertLess(expected, bound)
        self.assertEqual(variables["PLIMSOLL_GPU_COUNT"], "8")
        self.assertEqual(variables["PLIMSOLL_ZERO_STAGE"], "3")
        word, _, prediction = fields["AdminComment"].partition(" ")
        self.assertEqual(word, "plimsoll")
        self.assertEqual(variables["PLIMSOLL_PREDICTION"], prediction)
        device = json.loads(prediction)["device"]
        self.assertEqual(int(device["expected_bytes"]), expected)
        usable = variables["PLIMSOLL_USABLE_BYTES"]
        gpu = json.loads(prediction)["job"]["cluster"]["gpu"]
        self.assertIn(gpu, ("h100", "h100-80gb-sxm"))
        self.assertEqual(
            fields["Comment"],
            f"for the paper [plimsoll expected={expected} bound={bound} usable={usable} gpus=8"
            f" model=llama-3.1-8b gpu={gpu}]")
        self.assertEqual(decisions("enforce", "admit", "admit", "fits"), 1)
        self.check_textfile(fields["JobId"], seen, expected, bound, usable, gpu)

    def check_textfile(self, job, seen, expected, bound, usable, gpu):
        name = "plimsoll_job_predicted_gpu_memory_bytes"
        for line in (f'{name}{{hpc_job="{job}",figure="expected"}} {expected}',
                     f'{name}{{hpc_job="{job}",figure="bound"}} {bound}',
                     f'plimsoll_job_gpu_memory_usable_bytes{{hpc_job="{job}"}} {usable}',
                     f'plimsoll_job_gpu_count{{hpc_job="{job}"}} 8',
                     f'plimsoll_job_info{{hpc_job="{job}",user="root",partition="enforce",'
                     f'model="llama-3.1-8b",gpu="{gpu}"}} 1'):
            self.assertIn(line + "\n", seen)
        self.assertEqual(seen.splitlines()[-GPUS:], [f"{gpu}:{job}" for gpu in range(GPUS)])
        until(lambda: not list(cluster.textfiles.glob("plimsoll_job_*")), "the epilog removes it")
        until(lambda: not list((cluster.folder / "gpus").glob("[0-9]")), "and of its GPUs")
        end = cluster.textfiles / f"plimsoll_ended_{job}.prom"
        until(end.exists, "the controller's epilog writes how the job ended")
        self.assertIn(f'{{hpc_job="{job}",outcome="finished",state="COMPLETED"}} ', end.read_text())

    def test_an_oversize_job_is_refused_with_the_reason(self):
        result = sbatch(OVERSIZE)
        self.assertRefused(result, f"sbatch: error: Plimsoll: {NEEDS} on each GPU")
        self.assertEqual(result.stdout, "")
        self.assertEqual(decisions("enforce", "reject", "reject", "does-not-fit"), 1)

    def test_mode_warn_queues_it_and_says_why(self):
        result = sbatch(OVERSIZE, "--hold", partition="warn")
        self.assertQueued(result)
        self.assertIn(f"Plimsoll: {NEEDS} on each GPU", result.stderr)
        self.assertEqual(decisions("warn", "warn", "reject", "does-not-fit"), 1)

    def test_mode_shadow_queues_it_in_silence_and_counts(self):
        result = sbatch(OVERSIZE, "--hold", partition="shadow")
        self.assertQueued(result)
        self.assertEqual(result.stderr, "")
        self.assertEqual(decisions("shadow", "admit", "reject", "does-not-fit"), 1)

    def test_the_policy_that_is_shipped_counts_alone(self):
        settle(policy=cluster.installed / "policy.yaml")
        result = sbatch(OVERSIZE, "--hold")
        self.assertQueued(result)
        self.assertEqual(result.stderr, "")
        self.assertEqual(decisions("shadow", "admit", "reject", "bad-words"), 1)
        # An h100 may be several GPUs: which, the site says.
        told = cluster.folder / "told.yaml"
        told.write_text((cluster.installed / "policy.yaml").read_text()
                        .replace("# gpu_types", "gpu_types"))
        settle(policy=told)
        self.assertQueued(sbatch(OVERSIZE, "--hold"))
        self.assertEqual(decisions("shadow", "admit", "reject", "does-not-fit"), 1)

    def test_the_policy_that_is_shown_is_one(self):
        lines = (cluster.installed / "policy.yaml").read_text().splitlines()
        shown = cluster.folder / "shown.yaml"
        shown.write_text("\n".join(line[4:] for line in lines if line.startswith("#   ")) + "\n")
        (cluster.folder / "job.yaml").write_text(JOB_FILE)
        result = cluster.run(cluster.folder / "plimsoll", "admit", cluster.folder / "job.yaml",
                             "--policy", shown, "--partition", "h100")
        self.assertIn("mode enforce", result.stdout, result.stderr)

    def test_mode_off_looks_at_nothing(self):
        job = self.assertQueued(sbatch(OVERSIZE, "--hold", partition="off"))
        self.assertNotIn("AdminComment", cluster.job(job))
        self.assertEqual(decisions("off", "admit", "admit", "not-asked"), 1)

    def test_a_resize_changes_what_the_job_reads(self):
        result, seen, fields = self.run_and_see(f"resize=allowed {TOO_LONG}", partition="resize")
        self.assertIn("Plimsoll: resized: ", result.stderr)
        self.assertRegex(seen, "PLIMSOLL_RECOMPUTE_MODE=(selective|full)\n")
        self.assertEqual(json.loads(fields["AdminComment"].split(" ", 1)[1])["verdict"],
                         "VERDICT_FITS")
        self.assertEqual(decisions("enforce", "resize", "resize", "does-not-fit"), 1)

    def test_a_resize_changes_the_number_of_gpus(self):
        result, seen, fields = self.run_and_see(
            f"resize=allowed {FITS}", "--ntasks-per-node=2", gpus="--gpus-per-node=h100:2",
            partition="counts")
        self.assertIn("Plimsoll: resized: ", result.stderr)
        variables = dict(line.split("=", 1) for line in seen.splitlines() if "=" in line)
        count = int(variables["PLIMSOLL_GPU_COUNT"])
        self.assertGreater(count, 2)
        self.assertEqual(len(variables["CUDA_VISIBLE_DEVICES"].split(",")), count)
        self.assertEqual(variables["SLURM_GPUS_PER_NODE"], f"h100:{count}")
        self.assertEqual(variables["SLURM_NTASKS"], str(count))
        self.assertEqual(fields["TresPerNode"], f"gres:gpu:h100:{count}")

    def test_tasks_for_each_gpu_follow_a_resize(self):
        _, seen, fields = self.run_and_see(
            f"resize=allowed {FITS}", "--nodes=1", "--ntasks-per-gpu=2", gpus="--gpus=h100:2",
            partition="counts")
        variables = dict(line.split("=", 1) for line in seen.splitlines() if "=" in line)
        count = int(variables["PLIMSOLL_GPU_COUNT"])
        self.assertGreater(count, 2)
        self.assertEqual(variables["SLURM_NTASKS"], str(2 * count))
        self.assertEqual(variables["SLURM_NTASKS_PER_GPU"], "2")
        self.assertEqual(len(variables["CUDA_VISIBLE_DEVICES"].split(",")), count)
        self.assertEqual(fields["TresPerJob"], f"gres:gpu:h100:{count}")

    def test_tasks_for_each_gpu_say_how_many_gpus(self):
        words = f"{OVERSIZE} gpu=h100-80gb-sxm"
        result = sbatch(words, "--ntasks=16", gpus="--ntasks-per-gpu=2")
        self.assertRefused(result, "Plimsoll: needs")

    def test_a_resize_needs_the_jobs_leave(self):
        self.assertRefused(sbatch(TOO_LONG, partition="resize"), "#PLIMSOLL resize=allowed")

    def test_a_resize_needs_an_environment(self):
        for command in ("salloc", "srun"):
            result = cluster.run(command, "--partition=resize", WHOLE_NODE,
                                 f"--comment=plimsoll:resize=allowed {TOO_LONG}", "true")
            self.assertEqual(result.returncode, 1)
            self.assertIn("Plimsoll: needs", result.stderr)

    def test_a_dry_run_says_what_would_be(self):
        self.assertRefused(sbatch(OVERSIZE, "--test-only"), f"Plimsoll: {NEEDS}")
        result = sbatch(FITS, "--test-only")
        self.assertEqual(result.returncode, 0)
        self.assertIn("to start at", result.stderr)
        self.assertNotIn("Plimsoll", result.stderr)


class WordsTest(SlurmTest):
    """What each command brings, and what becomes of it."""

    def test_malformed_words_are_told_all_at_once(self):
        self.assertRefused(sbatch("model.name=llama-9 zero_stage=7\nno_such_field=1"),
                           "no_such_field")
        self.assertRefused(sbatch(f"{FITS} zero_stage=7"), "zero_stage: 7;")
        result = sbatch("resize=perhaps", "--hold", partition="warn")
        self.assertQueued(result)
        self.assertIn("must be resize=allowed or resize=never", result.stderr)

    def test_what_is_wrong_is_told_once(self):
        for words, wrong in ((f"{FITS} no_such_field=1", "no_such_field"),
                             (f"{FITS} zero_stage=7", "zero_stage: 7"),
                             ("missing.yaml", "missing.yaml")):
            result = sbatch(words)
            self.assertRefused(result, wrong)
            self.assertEqual(result.stderr.count(wrong), 1, result.stderr)
            result = sbatch(words, "--hold", partition="shadow")
            self.assertQueued(result)
            self.assertNotIn(wrong, result.stderr)

    def test_the_environment_goes_before_the_script(self):
        self.assertQueued(sbatch(OVERSIZE, "--hold", PLIMSOLL_JOB=FITS))
        self.assertRefused(sbatch(FITS, PLIMSOLL_JOB=OVERSIZE), NEEDS)
        self.assertRefused(sbatch(FITS, PLIMSOLL_JOB=OVERSIZE, bare=True), NEEDS)

    def test_words_get_through_whatever_export_says(self):
        for export in ("ALL", "NONE", "PATH,HOME"):
            result = sbatch("", f"--export={export}", PLIMSOLL_JOB=OVERSIZE)
            self.assertRefused(result, NEEDS)

    def test_a_comment_brings_words_and_only_with_the_mark(self):
        self.assertRefused(sbatch("", f"--comment=plimsoll:{OVERSIZE}"), NEEDS)
        self.assertQueued(sbatch("", "--hold", f"--comment={OVERSIZE}"))

    def test_salloc_and_srun_bring_words_in_the_comment(self):
        for command in ("salloc", "srun"):
            for brought in ({"PLIMSOLL_JOB": OVERSIZE}, {}):
                option = [] if brought else [f"--comment=plimsoll:{OVERSIZE}"]
                result = cluster.run(command, WHOLE_NODE, *option, "true", **brought)
                self.assertEqual(result.returncode, 1)
                self.assertIn(f"Plimsoll: {NEEDS}", result.stderr)
            result = cluster.run(command, WHOLE_NODE, "printenv", "SLURM_JOB_ID",
                                 PLIMSOLL_JOB=FITS)
            self.assertEqual(result.returncode, 0, result.stderr)
            fields = cluster.job(int(result.stdout))
            self.assertIn("[plimsoll expected=", fields["Comment"])
            self.assertTrue(fields["AdminComment"].startswith("plimsoll {"))

    def test_a_taken_comment_is_said(self):
        result = cluster.run("srun", "--comment=for the paper", WHOLE_NODE, "true",
                             PLIMSOLL_JOB=OVERSIZE)
        self.assertEqual(result.returncode, 0)
        self.assertIn("--comment is taken by a comment; srun can bring words there alone",
                      result.stderr)

    def test_words_that_are_too_long_for_a_comment_are_said(self):
        words = "".join(f" runtime.versions.library{at}=1.0" for at in range(50))
        result = cluster.run("srun", WHOLE_NODE, "true", PLIMSOLL_JOB=FITS + words)
        self.assertRegex(result.stderr, "plimsoll: the job and the files that it names are "
                         r"\d+ bytes of words, and 1024 can travel: use sbatch")

    def test_files_that_are_too_large_to_travel_are_said(self):
        versions = "".join(f"    library{at}: '1.0'\n" for at in range(5000))
        (cluster.folder / "large.yaml").write_text(f"{JOB_FILE}  versions:\n{versions}".replace(
            "runtime: {framework: fsdp2}", "runtime:\n    framework: fsdp2").replace(
            "  versions:", "    versions:").replace("    library", "        library"))
        result = sbatch("large.yaml", "--hold")
        self.assertRegex(result.stderr, "plimsoll: the job and the files that it names are "
                         r"\d+ bytes of words, and 65536 can travel: name the model")
        self.assertRefused(result, "must be at most 65536")

    def test_a_directive_that_is_not_read_is_said(self):
        result = sbatch("", "--hold", commands=f"true\n#PLIMSOLL {OVERSIZE}")
        self.assertQueued(result)
        self.assertIn("#PLIMSOLL lines after the script's first command are not read",
                      result.stderr)

    def test_a_script_from_a_pipe_is_read_once(self):
        pipe = cluster.folder / "pipe"
        os.mkfifo(pipe)
        text = write_job(OVERSIZE).read_bytes()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            writing = pool.submit(pipe.write_bytes, text)
            result = cluster.run("sbatch", WHOLE_NODE, pipe)
            writing.result()
        self.assertRefused(result, NEEDS)
        result = cluster.run("sbatch", WHOLE_NODE, input=text.decode())
        self.assertRefused(result, NEEDS)

    def test_a_step_of_a_job_is_not_a_submission(self):
        _, seen, _ = self.run_and_see(
            FITS, see=f"srun --comment='plimsoll:{OVERSIZE}' --ntasks=1 echo ran")
        self.assertEqual(seen, "ran\n")

    def test_an_inner_submission_does_not_inherit_the_words(self):
        inner = cluster.folder / "inner.sh"
        inner.write_text("#!/bin/sh\n#SBATCH --output=/dev/null\ntrue\n")
        for words, variable in (("job.yaml", ""), ("", FITS)):
            _, seen, fields = self.run_and_see(
                words, cwd=folder_of_user(), PLIMSOLL_JOB=variable,
                see=f"sbatch --parsable --hold {inner}")
            self.assertIn("AdminComment", fields)
            self.assertNotIn("AdminComment", cluster.job(int(seen)))


    def test_an_inner_submission_inherits_nothing_that_was_decided(self):
        inner, plain = cluster.folder / "inner.sh", cluster.folder / "plain.sh"
        log = cluster.folder / "inner"
        for script, words in ((inner, FITS), (plain, "")):
            script.write_text("#!/bin/sh\n#SBATCH --output=/dev/null\n"
                              + "".join(f"#PLIMSOLL {line}\n" for line in words.splitlines())
                              + f"env | grep ^PLIMSOLL_ | sort >{log}.new; mv {log}.new {log}\n")
        outer = f"{FITS} loss=chunked shard_group_size=4"
        for script, words in ((inner, FITS), (plain, "")):
            log.unlink(missing_ok=True)
            _, seen, _ = self.run_and_see(
                outer, see=f"printenv PLIMSOLL_LOSS_IMPLEMENTATION PLIMSOLL_SHARD_GROUP_SIZE; "
                f"sbatch --parsable {WHOLE_NODE} {script}", PLIMSOLL_SPEED="/s.yaml")
            chunked, size, job = seen.split()
            self.assertEqual((chunked, size), ("chunked", "4"))
            cluster.wait_for(job)
            variables = dict(line.split("=", 1) for line in log.read_text().splitlines())
            self.assertEqual(variables.pop("PLIMSOLL_SPEED"), "/s.yaml")
            if words:
                self.assertEqual(variables["PLIMSOLL_ZERO_STAGE"], "3")
                self.assertNotEqual(variables["PLIMSOLL_PREDICTION"], "")
            given = {name for name, value in variables.items() if value}
            given.discard("PLIMSOLL_SLURM_SETTINGS")
            self.assertNotIn("PLIMSOLL_LOSS_IMPLEMENTATION", given)
            self.assertNotIn("PLIMSOLL_SHARD_GROUP_SIZE", given)
            if not words:
                self.assertEqual(given, set())

    def test_an_inner_submission_of_srun_and_salloc_does_not_inherit_the_words(self):
        inner = cluster.folder / "inner.sh"
        inner.write_text("#!/bin/sh\n#SBATCH --output=/dev/null\ntrue\n")
        for command in ("salloc", "srun"):
            result = cluster.run(
                command, WHOLE_NODE, "sh", "-c",
                "printenv SLURM_JOB_ID; env | grep -c ^PLIMSOLL_JOB=; "
                f"sbatch --parsable --hold {inner}",
                PLIMSOLL_JOB=FITS, PLIMSOLL_ZERO_STAGE="1")
            self.assertEqual(result.returncode, 0, result.stderr)
            outer, count, job = result.stdout.split()
            self.assertIn("AdminComment", cluster.job(outer))
            self.assertEqual(count, "0")
            self.assertNotIn("AdminComment", cluster.job(job))

    def test_a_step_keeps_what_was_decided(self):
        _, seen, _ = self.run_and_see(FITS, see="srun --ntasks=1 printenv PLIMSOLL_ZERO_STAGE")
        self.assertEqual(seen, "3\n")


class FilesTest(SlurmTest):
    """Files that words name are read by the user, never by the controller."""

    def submit(self, words, folder, **more):
        return sbatch(words, "--hold", user=USER, cwd=folder, **more)

    def test_a_users_file_is_read_by_the_user(self):
        folder = folder_of_user()
        for words, environment in (("job.yaml", ""), (f"{folder}/job.yaml", ""), ("", "job.yaml"),
                                   ("job.yaml sequence_length=2048", "")):
            job = self.assertQueued(self.submit(words, folder, PLIMSOLL_JOB=environment))
            self.assertIn('"VERDICT_FITS"', cluster.job(job)["AdminComment"])

    def test_round_the_filter_no_file_is_opened(self):
        folder = folder_of_user()
        link = folder / "link.yaml"
        link.symlink_to("/etc/shadow")
        secret = pathlib.Path(tempfile.mkdtemp(dir=cluster.folder)) / "secret.yaml"
        secret.write_text("secret: word\n")
        secret.chmod(0o600)
        with Opened(secret, folder / "job.yaml", "/etc/shadow") as opened:
            for words in (secret, folder / "job.yaml", "/etc/shadow", link, f"../{secret.name}",
                          'model.name=x {"model":{"hf_config":"/etc/shadow"}}',
                          f"model.hf_config={secret}"):
                for result in (
                        self.submit(str(words), folder, bare=True),
                        self.submit("", folder, bare=True, PLIMSOLL_JOB=str(words)),
                        self.submit("", folder, bare=True, SLURM_PLIMSOLL_JOB=str(words)),
                        sbatch("", f"--comment=plimsoll:{words}", bare=True)):
                    self.assertRefused(result)
                    self.assertNotRegex(result.stderr, "secret: word|root:")
            self.assertEqual(opened.names(), [])
            secret.read_text()
            self.assertEqual(opened.names(), [str(secret)])  # it does see

    def test_what_the_user_may_not_read_is_not_read(self):
        folder = folder_of_user()
        secret = cluster.folder / "secret.yaml"
        secret.write_text("secret: word\n")
        secret.chmod(0o600)
        result = self.submit(str(secret), folder)
        self.assertRefused(result, "secret.yaml")
        self.assertNotIn("secret: word", result.stderr)


class HostileTest(SlurmTest):
    """Words are text until they are parsed: they reach no shell, and break nothing."""

    WORDS = (
        "'; touch {mark}; '", '"; touch {mark}; "', "$(touch {mark})", "`touch {mark}`",
        "model.name=$(touch${{IFS}}{mark})", "a=b\\\n; touch {mark}", "| touch {mark} |",
        "{{\"model\": $(touch {mark})", "--policy=/dev/null", "-o table", "model.name=%s%n%d",
        "\udcff\udcfe\udc80", "model.name=\udcc3(", "\x1b[31mred", "model.name=\x07\x08",
        "resize=allowed resize=allowed", "=", "a=" * 1000, "{{" * 5000, "[" * 5000,
        "model.name=" + "x" * 60000, "\u202e\u2028",
    )

    def test_hostile_words_are_refused_and_do_nothing(self):
        mark = cluster.folder / "mark"
        for words in self.WORDS:
            words = words.format(mark=mark)
            for result in (sbatch(words.replace("\n", "\n#PLIMSOLL "), bare=True),
                           sbatch("", bare=True, PLIMSOLL_JOB=words), sbatch(words)):
                self.assertRefused(result, "Plimsoll: ")
                self.assertNotRegex(result.stderr, "[\x00-\x08\x0b-\x1f\x7f]")
        self.assertFalse(mark.exists())

    def test_a_megabyte_is_refused_for_its_length(self):
        self.assertRefused(sbatch("x" * 1024 * 1024, bare=True), "must be at most 65536")
        self.assertRefused(sbatch("\n".join(["a=1"] * 50000), bare=True), "must be at most 65536")
        self.assertRefused(sbatch("\udcff" * 1024 * 1024, bare=True), "must be at most 65536")
        endless = "#" * 1024 * 1024 + "\n" * 1024 * 1024
        self.assertRefused(sbatch(FITS, commands=endless, bare=True), "must be at most 65536")
        self.assertQueued(sbatch(FITS, "--hold", commands="true\n" + endless))

    def test_other_fields_are_as_hostile(self):
        mark = cluster.folder / "mark"
        for option in (f"--partition=enforce,$(touch {mark})", f"--job-name='; touch {mark} #"):
            cluster.run("sbatch", option, WHOLE_NODE, write_job(FITS))
        self.assertFalse(mark.exists())
        self.assertQueued(sbatch(FITS, "--hold"))  # it goes on

    def test_nobody_forges_a_prediction(self):
        forged = "[plimsoll expected=1 bound=2 usable=3 gpus=4]"
        see = f"ls {cluster.textfiles}"
        _, seen, fields = self.run_and_see("", f"--comment={forged}", see=see)
        self.assertEqual(fields["Comment"], forged.replace("[", "("))
        self.assertNotIn("plimsoll_job_", seen)

    def test_a_changed_comment_keeps_the_prediction(self):
        job = self.assertQueued(sbatch(FITS, "--hold", "--comment=old"))
        mark = cluster.job(job)["Comment"][len("old "):]
        self.assertTrue(mark.startswith("[plimsoll expected="), mark)
        forged = mark.replace("expected=", "expected=9")
        cluster.run("scontrol", "update", f"JobId={job}", f"Comment=new {forged}")
        self.assertEqual(cluster.job(job)["Comment"], f"new ({forged[1:]} {mark}")


if __name__ == "__main__":
    unittest.main()
