"""A cluster to watch: a real plimsoll-server, node_exporter and Prometheus with
the configuration of deploy/prometheus, and a player of recorded GPU memory in
DCGM's place. Each listens on a free port and is stopped at the end.

    PLIMSOLL_SERVER_BINARY=build/server/plimsoll-server python3 watched_cluster.py

serves it, with six hours of history, until it is interrupted.
"""

import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.parse
import urllib.request

import yaml

from recorded_jobs import ENDED, RECORDED, STEP, Job, Player, history

ROOT = pathlib.Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy/prometheus"
DEADLINE = 40  # seconds that anything may take to happen
HISTORY = 6 * 3600
# What admission decides again and again: mode, decision, enforced, cause.
DECISIONS = {("enforce", "admit", "admit", "fits"): 6,
             ("enforce", "resize", "resize", "does-not-fit"): 2,
             ("enforce", "reject", "reject", "does-not-fit"): 1,
             ("shadow", "admit", "reject", "does-not-fit"): 2,
             ("warn", "warn", "warn", "at-risk"): 1}


def wait_for(what, condition, seconds=DEADLINE):
    """Returns the condition's value once it is true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        threading.Event().wait(0.1)
    raise AssertionError(f"{what}: not within {seconds} s")


class Program:
    """A program that runs, and says in its log where it listens."""

    def __init__(self, folder, name, arguments, listening):
        self.log = folder / f"{name}.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([str(a) for a in arguments], stdout=log, stderr=log)
        try:
            self.address = wait_for(f"{name} listens", lambda: self._find(listening))
        except BaseException:
            self.stop()
            raise

    def _find(self, listening):
        text = self.log.read_text(errors="replace")
        assert self.process.poll() is None, text
        found = re.search(listening, text)
        return found and found.group(1)

    def stop(self):
        self.process.terminate()
        self.process.wait(DEADLINE)


class WatchedCluster:
    def __init__(self, recorded=RECORDED, name=None, ended=ENDED):
        """recorded: jobs that run, ended: jobs of the past alone. name: the label `cluster`
        of nodes and GPUs, where there is one."""
        self.labels = {"cluster": name} if name else {}
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)
        self.textfiles = self.folder / "textfiles"
        self.textfiles.mkdir()
        self.socket = self.folder / "plimsoll.sock"
        self.programs = []
        self.decisions = {}
        self.player = self.prometheus = None
        try:
            self._begin(recorded, ended)
        except BaseException:
            self.stop()
            raise

    def _begin(self, recorded, ended):
        self.server = self.start_server()
        self.node = self._start("node", [
            "prometheus-node-exporter", "--web.listen-address=127.0.0.1:0",
            "--collector.disable-defaults", "--collector.textfile",
            f"--collector.textfile.directory={self.textfiles}"],
            r'msg="Listening on" address=(\S+)')
        self.jobs, self.ended, first_gpu = [], [], 0
        for row in (*recorded, *ended):
            job = Job(row, self.estimate(*row[1:5]), first_gpu)
            (self.ended if row in ended else self.jobs).append(job)
            first_gpu += row[4]
        for job in self.jobs:
            self.write(f"plimsoll_job_{job.id}.prom", job.textfile())
        self.player = Player(self.jobs)

    def _start(self, name, arguments, listening):
        self.programs.append(Program(self.folder, name, arguments, listening))
        return self.programs[-1]

    def start_server(self):
        return self._start("server", [
            os.environ["PLIMSOLL_SERVER_BINARY"], "--listen", f"unix:{self.folder / 'grpc.sock'}",
            "--http-listen", f"127.0.0.1:0,unix:{self.socket}", "--drain-delay-ms", "0",
            "--accept-reports"],
            r"http.* (127\.0\.0\.1:\d+)")

    def start_prometheus(self, watching=True, *flags):
        """The configuration that is deployed, but for the targets and the pace; or one
        that watches nothing yet."""
        config = yaml.safe_load((DEPLOY / "prometheus.yaml").read_text())
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config["rule_files"] = [str(DEPLOY / name) for name in config["rule_files"]]
        targets = {"plimsoll": self.server.address, "node": self.node.address,
                   "dcgm": self.player.address}
        for scrape in config["scrape_configs"]:
            if scrape["job_name"] in targets:
                scrape["static_configs"] = [{
                    "targets": [targets[scrape["job_name"]]],
                    "labels": {} if scrape["job_name"] == "plimsoll" else self.labels}]
        config["scrape_configs"] = [scrape for scrape in config["scrape_configs"]
                                    if watching and scrape["job_name"] in targets]
        name = "prometheus" if watching else "empty"
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(config))
        data = self.folder / ("data" if watching else "empty")
        started = self._start(name, [
            "prometheus", f"--config.file={path}", f"--storage.tsdb.path={data}", *flags,
            "--web.listen-address=127.0.0.1:0", f"--web.console.templates={DEPLOY / 'consoles'}",
            f"--web.console.libraries={DEPLOY / 'console_libraries'}"],
            r'msg="Listening on" address=(\S+)')
        wait_for("Prometheus is ready", lambda: b"is ready to receive" in started.log.read_bytes())
        if watching:
            self.prometheus = started
        return started

    def stop_prometheus(self):
        self.prometheus.stop()
        self.programs.remove(self.prometheus)

    def write(self, name, text):
        """Into node_exporter's folder, as a prolog does: whole or not at all."""
        unfinished = self.textfiles / (name + ".new")
        unfinished.write_text(text)
        unfinished.rename(self.textfiles / name)

    def decide(self, mode, decision, enforced, cause, count=1):
        """Counts decisions as job_submit.lua does."""
        key = (mode, decision, enforced, cause)
        self.decisions[key] = self.decisions.get(key, 0) + count
        self.write("plimsoll_admission.prom", self.admission_textfile(self.decisions))

    @staticmethod
    def admission_textfile(decisions):
        """What slurmctld writes when it begins, with these counts in their places."""
        text = subprocess.run(
            ["lua5.1", "-e", 'io.write(require("plimsoll.counters").new():text(false))'],
            check=True, capture_output=True, text=True,
            env={"LUA_PATH": f"{ROOT}/deploy/slurm/?.lua;;"}).stdout
        total = sum(decisions.values())
        values = {f'plimsoll_admission_decisions_total{{scheduler="slurm",mode="{mode}",'
                  f'decision="{decision}",enforced="{enforced}",cause="{cause}"}}': count
                  for (mode, decision, enforced, cause), count in decisions.items()}
        values.update({"plimsoll_admission_seconds_sum": f"{0.012 * total:.3f}",
                       "plimsoll_admission_seconds_count": total})
        for series, value in values.items():
            text, found = re.subn(rf"^{re.escape(series)} .*$", f"{series} {value}", text,
                                  flags=re.M)
            assert found == 1, series
        return text

    def call(self, method, body):
        """One call of the JSON twin; returns status and answer."""
        connection = http.client.HTTPConnection(self.server.address, timeout=DEADLINE)
        return self._post(connection, method, body)

    def call_socket(self, method, body):
        """The same over the unix socket."""
        connection = http.client.HTTPConnection("localhost", timeout=DEADLINE)
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.sock.connect(str(self.socket))
        return self._post(connection, method, body)

    @staticmethod
    def _post(connection, method, body):
        connection.request("POST", f"/v1:{method}", json.dumps(body))
        response = connection.getresponse()
        answer = json.loads(response.read())
        connection.close()
        return response.status, answer

    def estimate(self, model, sequence_length, gpu, gpu_count):
        status, answer = self.call("estimateMemory", {"job": {
            "model": {"name": model},
            "training": {"sequence_length": sequence_length},
            "parallelism": {"zero_stage": 3 if gpu_count > 1 else 0},
            "runtime": {"framework": "fsdp2" if gpu_count > 1 else "ddp"},
            "cluster": {"gpu": gpu, "gpu_count": gpu_count}}})
        assert status == 200, answer
        return answer

    def get(self, path, **parameters):
        query = "?" + urllib.parse.urlencode(parameters) if parameters else ""
        with urllib.request.urlopen(f"http://{self.prometheus.address}{path}{query}",
                                    timeout=DEADLINE) as response:
            return response.read().decode()

    def query(self, expression):
        """Returns [(labels, value)]."""
        answer = json.loads(self.get("/api/v1/query", query=expression))
        result = answer["data"]["result"]
        if answer["data"]["resultType"] == "scalar":
            return [({}, float(result[1]))]
        return [(row["metric"], float(row["value"][1])) for row in result]

    def firing(self):
        alerts = json.loads(self.get("/api/v1/alerts"))["data"]["alerts"]
        return [alert["labels"] for alert in alerts if alert["state"] == "firing"]

    def backfill(self, text):
        """Makes blocks of samples in OpenMetrics' text format."""
        path = self.folder / "history.txt"
        path.write_text(text)
        self._promtool("tsdb", "create-blocks-from", "openmetrics", path, self.folder / "data")

    def backfill_rules(self, begin, end):
        """Makes blocks of what the rules on jobs would have recorded. Each level of rules
        needs the one below."""
        # promtool gives up at a first block that is shorter than a step; blocks begin at
        # every second hour.
        if begin % 7200 > 7200 - 2 * STEP:
            begin += 2 * STEP
        rules = yaml.safe_load((DEPLOY / "rules.yaml").read_text())
        rules["groups"] = [group for group in rules["groups"]
                           if group["name"] in ("plimsoll-jobs", "plimsoll-clusters")]
        path = self.folder / "rules.yaml"
        path.write_text(yaml.safe_dump(rules))
        for _ in range(5):
            self.start_prometheus()
            blocks = self.folder / "blocks"
            self._promtool("tsdb", "create-blocks-from", "rules", f"--start={int(begin)}",
                           f"--end={int(end)}", f"--url=http://{self.prometheus.address}",
                           f"--output-dir={blocks}", f"--eval-interval={STEP}s",
                           path)
            self.stop_prometheus()
            for block in blocks.glob("0*"):
                shutil.move(str(block), self.folder / "data")

    @staticmethod
    def _promtool(*arguments):
        result = subprocess.run(["promtool", *map(str, arguments)], capture_output=True,
                                text=True, check=False)
        assert result.returncode == 0, result.stdout + result.stderr

    def stop(self):
        for program in reversed(self.programs):
            program.stop()
        if self.player:
            self.player.stop()
        self.temporary.cleanup()


def interrupt(*_):
    raise KeyboardInterrupt


def main():
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, interrupt)
    cluster = WatchedCluster()
    try:
        end = time.time()
        cluster.backfill(history(cluster, end - HISTORY, end))
        cluster.backfill_rules(end - HISTORY, end)
        cluster.write("plimsoll_admission.prom", cluster.admission_textfile({}))
        cluster.start_prometheus()
        print(f"http://{cluster.prometheus.address}/consoles/plimsoll.html", flush=True)
        for _ in iter(int, 1):  # until interrupted
            for row in RECORDED:
                cluster.estimate(*row[1:5])
            for decision, count in DECISIONS.items():
                cluster.decide(*decision, count)
            threading.Event().wait(2)
    except KeyboardInterrupt:
        pass
    finally:
        cluster.stop()


if __name__ == "__main__":
    main()
