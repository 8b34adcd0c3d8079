"""A cluster to watch: a real plimsoll-server, node_exporter and Prometheus with
the configuration of deploy/prometheus, and a player of recorded GPU memory in
DCGM's place. Each listens on a free port and is stopped at the end.

    PLIMSOLL_SERVER_BINARY=build/server/plimsoll-server python3 watched_cluster.py

serves it, with six hours of history, until it is interrupted.
"""

import http.client
import http.server
import json
import math
import os
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import urllib.parse
import urllib.request

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy/prometheus"
DEADLINE = 40  # seconds that anything may take to happen
MIB = 2 ** 20
HISTORY = 6 * 3600
STEP = 60  # seconds between the samples of the history

# Jobs of a recorded day: id, model, sequence length, GPU, GPUs, what it used by
# what was expected, and for how many minutes it has run.
RECORDED = [
    ("48213", "llama-3.1-8b", 4096, "h100-80gb-sxm", 8, 0.97, 340),
    ("48219", "llama-3.1-8b", 2048, "h100-80gb-sxm", 8, 1.02, 310),
    ("48220", "qwen3-8b", 2048, "h100-80gb-sxm", 4, 1.04, 290),
    ("48226", "llama-3.2-3b", 4096, "a100-80gb-sxm", 4, 0.94, 250),
    ("48231", "gemma-2-2b", 2048, "a100-80gb-sxm", 2, 0.99, 235),
    ("48240", "mistral-7b-v0.3", 4096, "h100-80gb-sxm", 8, 1.00, 200),
    ("48247", "llama-3.2-1b", 4096, "a100-40gb-sxm", 2, 1.07, 170),
    ("48252", "gpt2-xl", 1024, "a100-40gb-sxm", 1, 0.91, 150),
    ("48260", "qwen2.5-1.5b", 2048, "a100-40gb-sxm", 4, 1.01, 120),
    ("48263", "olmo-7b", 2048, "h100-80gb-sxm", 8, 0.83, 95),
    ("48271", "phi-3-mini", 4096, "h100-80gb-sxm", 2, 0.98, 70),
    ("48274", "pythia-1b", 2048, "a100-40gb-sxm", 1, 1.03, 40),
]


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
        self.address = wait_for(f"{name} listens", lambda: self._find(listening))

    def _find(self, listening):
        text = self.log.read_text(errors="replace")
        assert self.process.poll() is None, text
        found = re.search(listening, text)
        return found and found.group(1)

    def stop(self):
        self.process.terminate()
        self.process.wait(DEADLINE)


class Job:
    """A job that was predicted by the server and plays its recorded memory."""

    def __init__(self, row, answer, first_gpu):
        self.id, self.model, _, self.gpu, self.gpu_count, self.factor, minutes = row
        device = answer["ranks"][int(answer["limitingRank"])]["device"]
        self.expected = int(device["expectedBytes"])
        self.bound = int(device["boundBytes"])
        self.usable = int(answer["usableBytes"])
        self.first_gpu = first_gpu
        self.begin = time.time() - 60 * minutes

    def used_mib(self, index, now):
        """Of one GPU: a load, then steps; each GPU a little below the first."""
        age = max(0.0, now - self.begin)
        peak = self.factor * self.expected * (1 - 0.015 * index)
        dip = 0.12 * (1 + math.sin(now / 70 + index)) / 2 if age > 600 else 0
        return int(peak * min(1.0, 0.25 + age / 800) * (1 - dip)) // MIB

    def textfile(self):
        """What the prolog writes for node_exporter."""
        lines = []
        for name, text, values in (
            ("predicted_gpu_memory_bytes", "Predicted memory of the fullest GPU.",
             {',figure="expected"': self.expected, ',figure="bound"': self.bound}),
            ("gpu_memory_usable_bytes", "Memory that the job may use on each GPU.",
             {"": self.usable}),
            ("gpu_count", "GPUs of the job.", {"": self.gpu_count}),
        ):
            lines += [f"# HELP plimsoll_job_{name} {text}", f"# TYPE plimsoll_job_{name} gauge"]
            lines += [f'plimsoll_job_{name}{{hpc_job="{self.id}"{figure}}} {value}'
                      for figure, value in values.items()]
        return "\n".join(lines) + "\n"


class Player:
    """Serves /metrics as dcgm-exporter does, from recorded jobs."""

    def __init__(self, jobs):
        self.jobs = jobs
        player = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = player.text(time.time()).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = "127.0.0.1:%d" % self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def series(self, now, host="Hostname"):
        for job in self.jobs:
            for index in range(job.gpu_count):
                gpu = job.first_gpu + index
                yield (f'gpu="{gpu % 8}",UUID="GPU-{gpu:08x}",pci_bus_id="00000000:{gpu % 8:02X}:00.0",'
                       f'device="nvidia{gpu % 8}",modelName="NVIDIA {job.gpu}",'
                       f'{host}="node{gpu // 8}",DCGM_FI_DRIVER_VERSION="550.54.15",'
                       f'hpc_job="{job.id}"', job.used_mib(index, now), job.usable // MIB)

    def text(self, now):
        used = "DCGM_FI_DEV_FB_USED"
        free = "DCGM_FI_DEV_FB_FREE"
        lines = [f"# HELP {used} Framebuffer memory used (in MiB).", f"# TYPE {used} gauge"]
        lines += [f"{used}{{{labels}}} {mib}" for labels, mib, _ in self.series(now)]
        lines += [f"# HELP {free} Framebuffer memory free (in MiB).", f"# TYPE {free} gauge"]
        lines += [f"{free}{{{labels}}} {whole - mib}" for labels, mib, whole in self.series(now)]
        return "\n".join(lines) + "\n"

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


class WatchedCluster:
    def __init__(self, recorded=RECORDED, name=None):
        """name: the label `cluster` of nodes and GPUs, where there is one."""
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
            self._begin(recorded)
        except BaseException:
            self.stop()
            raise

    def _begin(self, recorded):
        self.server = self.start_server()
        self.node = self._start("node", [
            "prometheus-node-exporter", "--web.listen-address=127.0.0.1:0",
            "--collector.disable-defaults", "--collector.textfile",
            f"--collector.textfile.directory={self.textfiles}"],
            r'msg="Listening on" address=(\S+)')
        self.jobs, first_gpu = [], 0
        for row in recorded:
            self.jobs.append(Job(row, self.estimate(*row[1:5]), first_gpu))
            first_gpu += row[4]
            self.write(f"plimsoll_job_{row[0]}.prom", self.jobs[-1].textfile())
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
        total = sum(decisions.values())
        lines = ["# TYPE plimsoll_admission_decisions_total counter"]
        for (mode, decision, enforced, cause), value in decisions.items():
            lines.append(
                f'plimsoll_admission_decisions_total{{scheduler="slurm",mode="{mode}",'
                f'decision="{decision}",enforced="{enforced}",cause="{cause}"}} {value}')
        lines += ["# TYPE plimsoll_admission_seconds summary",
                  f"plimsoll_admission_seconds_sum {0.012 * total:.3f}",
                  f"plimsoll_admission_seconds_count {total}",
                  "# TYPE plimsoll_admission_breaker_open gauge",
                  "plimsoll_admission_breaker_open 0"]
        return "\n".join(lines) + "\n"

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


def history(cluster, begin, end):
    """The past of the jobs and of admission, as Prometheus would have scraped it."""
    more = "".join(f',{label}="{value}"' for label, value in cluster.labels.items())
    node, dcgm = (f'job="{job}",instance="{address}"{more}' for job, address in
                  (("node", cluster.node.address), ("dcgm", cluster.player.address)))
    moments = range(int(begin), int(end), STEP)
    lines = ["# TYPE DCGM_FI_DEV_FB_USED gauge"]
    for now in moments:
        for labels, mib, _ in cluster.player.series(now, "hostname"):
            id_ = re.search(r'hpc_job="(\d+)"', labels).group(1)
            if next(job for job in cluster.jobs if job.id == id_).begin <= now:
                lines.append(f"DCGM_FI_DEV_FB_USED{{{labels},{dcgm}}} {mib} {now}")
    for name in ("predicted_gpu_memory_bytes", "gpu_memory_usable_bytes", "gpu_count"):
        lines.append(f"# TYPE plimsoll_job_{name} gauge")
        for job in cluster.jobs:
            for series, value in re.findall(rf"^(plimsoll_job_{name}{{.*}}) (\d+)$",
                                            job.textfile(), re.MULTILINE):
                lines += [f"{series[:-1]},{node}}} {value} {now}" for now in moments
                          if now >= job.begin]
    return "\n".join(lines) + "\n# EOF\n"


def main():
    cluster = WatchedCluster()
    try:
        end = time.time()
        cluster.backfill(history(cluster, end - HISTORY, end))
        cluster.backfill_rules(end - HISTORY, end)
        cluster.start_prometheus()
        print(f"http://{cluster.prometheus.address}/consoles/plimsoll.html", flush=True)
        for _ in iter(int, 1):  # until interrupted
            for row in RECORDED:
                cluster.estimate(*row[1:5])
            cluster.decide("enforce", "admit", "admit", "fits", 6)
            cluster.decide("enforce", "resize", "resize", "does-not-fit", 2)
            cluster.decide("enforce", "reject", "reject", "does-not-fit")
            cluster.decide("shadow", "admit", "reject", "does-not-fit", 2)
            cluster.decide("warn", "warn", "warn", "at-risk")
            threading.Event().wait(2)
    except KeyboardInterrupt:
        pass
    finally:
        cluster.stop()


if __name__ == "__main__":
    main()
