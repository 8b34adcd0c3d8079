"""The whole path, on real programs: a job that does not fit is submitted to Slurm,
resized, runs, "uses" memory, ends and is reported; Prometheus shows used by
predicted all the while, and alerts when the job exceeds its bound. dcgm-exporter
alone is played, for there is no GPU.

    PLIMSOLL=build/client/plimsoll PLIMSOLL_SERVER_BINARY=build/server/plimsoll-server \\
        PYTHONPATH=tests/deploy/prometheus python3 -m unittest story_test     (as root)
"""

import csv
import http.server
import json
import os
import pathlib
import shutil
import tempfile
import threading
import unittest
import urllib.parse
import urllib.request

import yaml
from cluster import GPUS, Cluster, until
from service import Service
from watched_cluster import Program

DEPLOY = pathlib.Path(__file__).resolve().parents[3] / "deploy" / "prometheus"
MIB = 2 ** 20
LISTENING = r'msg="Listening on" address=(\S+)'
RATIO = "hpc_job:plimsoll_actual_per_predicted:ratio"
POLICY = """\
rules: {mode: enforce}
partitions:
  h100:
    gpu_types: {h100: h100-80gb-sxm}
    resize: allowed
    allowed_changes: [training.recompute, cluster.gpu_count]
    gpu_counts: "1..8"
    gpus_per_node: 8
"""
JOB = """\
#!/bin/sh
#SBATCH --partition=h100 --gpus-per-node=h100:2 --output=/dev/null
#PLIMSOLL resize=allowed
#PLIMSOLL job.yaml
echo "$CUDA_VISIBLE_DEVICES" >{folder}/gpus.new
mv {folder}/gpus.new {folder}/gpus
until [ -e {folder}/trained ]; do sleep 0.1; done
"""
JOB_FILE = """\
model: {name: llama-3.1-8b}
training: {sequence_length: 4096, micro_batch_size: 1, global_batch_size: 16}
parallelism: {zero_stage: 3}
runtime: {framework: fsdp2}
"""


class Dcgm:
    """Serves /metrics as dcgm-exporter does: the memory that each GPU of a job holds."""

    def __init__(self):
        self.job, self.gpus, self.used_mib = None, [], 0
        dcgm = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = dcgm.text().encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def text(self):
        if self.job is None:
            return ""
        return "".join(f'DCGM_FI_DEV_FB_USED{{gpu="{gpu}",UUID="GPU-{gpu}",Hostname="fake0",'
                       f'hpc_job="{self.job}"}} {self.used_mib}\n' for gpu in self.gpus)

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


class StoryTest(unittest.TestCase):
    def setUp(self):
        self.maxDiff = None
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="plimsoll-story-"))
        self.folder.chmod(0o755)
        self.addCleanup(shutil.rmtree, self.folder)
        self.service = Service(self.folder)
        self.service.start("--http-listen", "127.0.0.1:0", "--accept-reports")
        self.addCleanup(self.service.stop)
        self.dcgm = Dcgm()
        self.addCleanup(self.dcgm.stop)
        self.make_cluster()
        self.watch()
        self.install_scripts()
        self.cluster.start()

    def make_cluster(self):
        cluster = self.cluster = Cluster(self.folder / "cluster", ["h100"], "")
        shutil.copy(os.environ["PLIMSOLL"], cluster.folder / "plimsoll")
        (cluster.folder / "policy.yaml").write_text(POLICY)
        settings = {"program": cluster.folder / "plimsoll", "server": self.service.address,
                    "policy": cluster.folder / "policy.yaml",
                    "textfile": cluster.textfiles / "plimsoll_admission.prom"}
        cluster.settings.write_text("return {budget_seconds = 10, " + ", ".join(
            f'{name} = "{value}"' for name, value in settings.items()) + "}")
        self.addCleanup(cluster.stop)

    def install_scripts(self):
        cluster = self.cluster
        for name in ("prolog", "epilog"):
            cluster.write_script(name, f"{name}.sh", PLIMSOLL_TEXTFILE_DIRECTORY=cluster.textfiles)
        cluster.write_script("epilog_slurmctld", "epilog_slurmctld.sh",
                             PLIMSOLL_PROGRAM=cluster.folder / "plimsoll",
                             PLIMSOLL_SERVER=self.service.address,
                             PLIMSOLL_PROMETHEUS=f"http://{self.prometheus.address}",
                             PLIMSOLL_ROWS=self.folder / "rows.csv",
                             PLIMSOLL_WAIT="3s",
                             PLIMSOLL_OUT_OF_MEMORY_EXIT_CODES="76 77",
                             PLIMSOLL_TEXTFILE_DIRECTORY=cluster.textfiles,
                             PLIMSOLL_SLOTS=self.folder / "slots",
                             PLIMSOLL_REPORT_LOG=self.folder / "report.log",
                             SLURM_CONF=cluster.conf / "slurm.conf")

    def watch(self):
        """node_exporter, and Prometheus with what is deployed, but faster and here."""
        def start(name, *arguments):
            program = Program(self.folder, name, arguments, LISTENING)
            self.addCleanup(program.stop)
            return program
        node = start("node", "prometheus-node-exporter", "--web.listen-address=127.0.0.1:0",
                     "--collector.disable-defaults", "--collector.textfile",
                     f"--collector.textfile.directory={self.cluster.textfiles}")
        config = yaml.safe_load((DEPLOY / "prometheus.yaml").read_text())
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config["rule_files"] = [str(DEPLOY / name) for name in config["rule_files"]]
        targets = {"plimsoll": self.service.http_address(), "node": node.address,
                   "dcgm": self.dcgm.address}
        config["scrape_configs"] = [
            {**scrape, "static_configs": [{"targets": [targets[scrape["job_name"]]]}]}
            for scrape in config["scrape_configs"] if scrape["job_name"] in targets]
        path = self.folder / "prometheus.yaml"
        path.write_text(yaml.safe_dump(config))
        self.prometheus = start("prometheus", "prometheus", f"--config.file={path}",
                                f"--storage.tsdb.path={self.folder / 'data'}",
                                "--web.listen-address=127.0.0.1:0")

    def get(self, address, path, **parameters):
        url = f"http://{address}{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as response:
                return response.read().decode()
        except urllib.error.HTTPError:
            return ""

    def query(self, expression):
        """The one value of an expression; None where there is none."""
        answer = self.get(self.prometheus.address, "/api/v1/query", query=expression)
        result = json.loads(answer)["data"]["result"] if answer else []
        return float(result[0]["value"][1]) if result else None

    def shows(self, expression, wanted, places=2):
        until(lambda: (value := self.query(expression)) is not None
              and round(value - wanted, places) == 0, f"{expression} is {wanted}")

    def alerts(self, name):
        """The labels of those that fire."""
        alerts = json.loads(self.get(self.prometheus.address, "/api/v1/alerts"))["data"]["alerts"]
        return [alert["labels"] for alert in alerts
                if alert["labels"]["alertname"] == name and alert["state"] == "firing"]

    def test_from_a_submission_to_an_alert(self):
        job, prediction = self.submit_oversize()
        self.use_less_than_predicted(job, prediction)
        self.use_more_than_the_bound(job, prediction)
        self.end_and_report(job)

    def test_from_a_full_gpu_to_an_alert(self):
        (self.folder / "job.yaml").write_text(JOB_FILE)
        (self.folder / "job.sh").write_text(
            f"#!/bin/sh\n#SBATCH --gpus-per-node=h100:{GPUS} --output=/dev/null\n"
            "#PLIMSOLL job.yaml\nexit 77\n")
        fits = 'plimsoll_usage_outcomes_total{verdict="fits",outcome="out-of-memory"}'
        self.shows(fits, 0)
        self.dcgm.job, self.dcgm.gpus = "0", ["0"]  # another's
        result = self.cluster.run("sbatch", "--parsable", self.folder / "job.sh", cwd=self.folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.cluster.wait_for(result.stdout.strip())["JobState"], "FAILED")
        self.shows(fits, 1)
        self.shows("count(plimsoll_job_end_time_seconds"
                   '{outcome="out-of-memory",state="FAILED"})', 1)
        until(lambda: self.alerts("PlimsollOutOfMemoryAlthoughFits"), "the alert fires")

    def submit_oversize(self):
        (self.folder / "job.yaml").write_text(JOB_FILE)
        (self.folder / "job.sh").write_text(JOB.format(folder=self.folder))
        result = self.cluster.run("sbatch", "--parsable", self.folder / "job.sh", cwd=self.folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("Plimsoll: needs", result.stderr)
        self.assertIn("Plimsoll: resized: ", result.stderr)
        job = result.stdout.strip()
        gpus = until(lambda: (self.folder / "gpus").exists(), "the job runs") and (
            (self.folder / "gpus").read_text().strip().split(","))
        prediction = json.loads(self.cluster.job(job)["AdminComment"].partition(" ")[2])
        self.assertEqual(prediction["verdict"], "VERDICT_FITS")
        self.assertEqual(len(gpus), int(prediction["job"]["cluster"]["gpu_count"]))
        self.assertIn(len(gpus), range(2, GPUS + 1))
        self.dcgm.gpus = gpus
        self.shows('sum(plimsoll_admission_decisions_total{decision="resize"})', 1)
        self.shows(f'plimsoll_job_gpu_count{{hpc_job="{job}"}}', len(gpus))
        self.shows(f'plimsoll_job_info{{hpc_job="{job}",user="root",partition="h100",'
                   'model="llama-3.1-8b",gpu="h100-80gb-sxm"}', 1)
        return job, prediction

    def use(self, job, figure, share):
        self.dcgm.used_mib = int(share * int(figure)) // MIB
        self.dcgm.job = job

    def use_less_than_predicted(self, job, prediction):
        self.use(job, prediction["device"]["expected_bytes"], 0.9)
        self.shows(f'{RATIO}{{hpc_job="{job}",figure="expected"}}', 0.9)
        self.assertEqual(self.alerts("PlimsollUnderestimate"), [])

    def use_more_than_the_bound(self, job, prediction):
        self.use(job, prediction["device"]["bound_bytes"], 1.05)
        self.shows(f'{RATIO}{{hpc_job="{job}",figure="bound"}}', 1.05)
        until(lambda: [alert["hpc_job"] for alert in self.alerts("PlimsollUnderestimate")] == [job],
              "the alert fires")
        # Slurm tells the second in which a job ended: what was used in that one is not seen.
        self.shows(f'min_over_time({RATIO}{{hpc_job="{job}",figure="bound"}}[3s])', 1.05)

    def end_and_report(self, job):
        (self.folder / "trained").touch()
        self.assertEqual(self.cluster.wait_for(job)["JobState"], "COMPLETED")
        self.shows(f'count(plimsoll_job_end_time_seconds{{hpc_job="{job}",outcome="finished"}})', 1)
        self.shows('plimsoll_usage_reports_total{outcome="finished"}', 1)
        self.shows('plimsoll_usage_within_bound_total{within_bound="false"}', 1)
        self.shows('plimsoll_usage_outcomes_total{verdict="fits",outcome="finished"}', 1)
        labels = 'framework="fsdp2",gpu="h100-80gb-sxm",strategy="zero3"'
        self.shows(f"plimsoll_usage_actual_per_predicted_count{{{labels}}}", 1)
        with open(self.folder / "rows.csv", newline="") as rows:
            self.assertEqual(len(list(csv.DictReader(rows))), 1)
        until(lambda: not list(self.cluster.textfiles.glob("plimsoll_job_*")), "nothing is left")


if __name__ == "__main__":
    unittest.main()
