"""Recorded GPU memory of jobs, played in DCGM's place: for a live scrape, and as the
past that Prometheus would have scraped."""

import http.server
import math
import pathlib
import re
import subprocess
import tempfile
import threading
import time

SLURM = pathlib.Path(__file__).resolve().parents[3] / "deploy/slurm"
MIB = 2 ** 20
STEP = 60  # seconds between the samples of the past

# Jobs of a recorded day: id, model, sequence length, GPU, GPUs, what it used by
# what was expected, for how many minutes it has run, user and partition.
RECORDED = [
    ("48213", "llama-3.1-8b", 4096, "h100-80gb-sxm", 8, 0.97, 340, "mara", "h100"),
    ("48219", "llama-3.1-8b", 2048, "h100-80gb-sxm", 8, 1.02, 310, "mara", "h100"),
    ("48220", "qwen3-8b", 2048, "h100-80gb-sxm", 4, 1.04, 290, "jonas", "h100"),
    ("48226", "llama-3.2-3b", 4096, "a100-80gb-sxm", 4, 0.94, 250, "yusuf", "a100"),
    ("48231", "gemma-2-2b", 2048, "a100-80gb-sxm", 2, 0.99, 235, "ines", "a100"),
    ("48240", "mistral-7b-v0.3", 4096, "h100-80gb-sxm", 8, 1.00, 200, "jonas", "h100"),
    ("48247", "llama-3.2-1b", 4096, "a100-40gb-sxm", 2, 1.07, 170, "wei", "a100-40"),
    ("48252", "gpt2-xl", 1024, "a100-40gb-sxm", 1, 0.91, 150, "wei", "a100-40"),
    ("48260", "qwen2.5-1.5b", 2048, "a100-40gb-sxm", 4, 1.01, 120, "ines", "a100-40"),
    ("48263", "olmo-7b", 2048, "h100-80gb-sxm", 8, 0.83, 95, "mara", "h100"),
    ("48271", "phi-3-mini", 4096, "h100-80gb-sxm", 2, 0.98, 70, "yusuf", "h100"),
    ("48274", "pythia-1b", 2048, "a100-40gb-sxm", 1, 1.03, 40, "wei", "a100-40"),
]
# Others that have ended: the same, then how many minutes ago, outcome and Slurm's state;
# of the last one nobody said how.
ENDED = [
    ("48249", "llama-3.2-1b", 4096, "a100-40gb-sxm", 2, 1.01, 100, "ines", "a100-40",
     33, "finished", "COMPLETED"),
    ("48255", "qwen3-8b", 2048, "h100-80gb-sxm", 4, 1.31, 90, "jonas", "h100",
     40, "out-of-memory", "FAILED"),
    ("48258", "gemma-2-2b", 2048, "a100-80gb-sxm", 2, 0.96, 80, "yusuf", "a100",
     52, "other", "CANCELLED"),
    ("48259", "gpt2-xl", 1024, "a100-40gb-sxm", 1, 0.99, 75, "wei", "a100-40", 46, None, None),
]


class Job:
    """A job that was predicted by the server and plays its recorded memory."""

    def __init__(self, row, answer, first_gpu):
        (self.id, self.model, _, self.gpu, self.gpu_count, self.factor, minutes, self.user,
         self.partition, *ended) = row
        device = answer["ranks"][int(answer["limitingRank"])]["device"]
        self.expected = int(device["expectedBytes"])
        self.bound = int(device["boundBytes"])
        self.usable = int(answer["usableBytes"])
        self.first_gpu = first_gpu
        self.begin = time.time() - 60 * minutes
        self.end = time.time() - 60 * ended[0] if ended else math.inf
        self.outcome, self.state = ended[1:] if ended else (None, None)

    def used_mib(self, index, now):
        """Of one GPU: a load, then steps; each GPU a little below the first."""
        age = max(0.0, now - self.begin)
        peak = min(self.factor * self.expected, self.usable) * (1 - 0.015 * index)
        dip = 0.12 * (1 + math.sin(now / 70 + index)) / 2 if age > 600 else 0
        return int(peak * min(1.0, 0.25 + age / 800) * (1 - dip)) // MIB

    def textfile(self):
        """What the prolog writes for node_exporter; it began when this job did."""
        mark = (f"[plimsoll expected={self.expected} bound={self.bound} usable={self.usable}"
                f" gpus={self.gpu_count} model={self.model} gpu={self.gpu}]")
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([SLURM / "prolog.sh"], check=True, env={
                "PLIMSOLL_TEXTFILE_DIRECTORY": folder, "SLURM_JOB_ID": self.id,
                "SLURM_JOB_COMMENT": mark, "SLURM_JOB_USER": self.user,
                "SLURM_JOB_PARTITION": self.partition})
            text = (pathlib.Path(folder) / f"plimsoll_job_{self.id}.prom").read_text()
        return re.sub(r"(start_time_seconds{.*}) .*", rf"\1 {self.begin:.0f}", text)

    def end_textfile(self):
        """What the controller's epilog writes."""
        name = "plimsoll_job_end_time_seconds"
        return (f'# TYPE {name} gauge\n{name}{{hpc_job="{self.id}",outcome="{self.outcome}",'
                f'state="{self.state}"}} {self.end:.0f}\n')


class Player:
    """Serves /metrics as dcgm-exporter does, from recorded jobs."""

    def __init__(self, jobs):
        self.jobs = jobs
        self.idle = 0  # GPUs without a job
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

    def series(self, now, host="Hostname", jobs=None):
        for job in jobs or self.jobs:
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
        lines += [f'{used}{{gpu="{gpu}",Hostname="idle"}} 0' for gpu in range(self.idle)]
        lines += [f"# HELP {free} Framebuffer memory free (in MiB).", f"# TYPE {free} gauge"]
        lines += [f"{free}{{{labels}}} {whole - mib}" for labels, mib, whole in self.series(now)]
        return "\n".join(lines) + "\n"

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


def history(cluster, begin, end):
    """The past of the jobs and of admission, as Prometheus would have scraped it."""
    more = "".join(f',{label}="{value}"' for label, value in cluster.labels.items())
    node, dcgm = (f'job="{job}",instance="{address}"{more}' for job, address in
                  (("node", cluster.node.address), ("dcgm", cluster.player.address)))
    jobs = cluster.jobs + cluster.ended
    moments = {job.id: [now for now in range(int(begin), int(end), STEP)
                        if job.begin <= now < job.end] for job in jobs}
    lines = ["# TYPE DCGM_FI_DEV_FB_USED gauge"]
    for job in jobs:
        for now in moments[job.id]:
            for labels, mib, _ in cluster.player.series(now, "hostname", [job]):
                lines.append(f"DCGM_FI_DEV_FB_USED{{{labels},{dcgm}}} {mib} {now}")
    texts = {job.id: job.textfile() for job in jobs}
    for name in re.findall(r"^# TYPE (\w+)", texts[jobs[0].id], re.MULTILINE):
        lines.append(f"# TYPE {name} gauge")
        for job in jobs:
            for series, value in re.findall(rf"^({name}{{.*}}) (\d+)$", texts[job.id],
                                            re.MULTILINE):
                lines += [f"{series[:-1]},{node}}} {value} {now}" for now in moments[job.id]]
    lines.append("# TYPE plimsoll_job_end_time_seconds gauge")
    for job in cluster.ended:
        series, _, value = job.end_textfile().splitlines()[-1].rpartition(" ")
        lines += [f"{series[:-1]},{node}}} {value} {now}"
                  for now in range(int(job.end), int(job.end) + 600, STEP) if job.outcome]
    return "\n".join(lines) + "\n# EOF\n"
