"""Recorded GPU memory of jobs, played in DCGM's place: for a live scrape, and as the
past that Prometheus would have scraped."""

import http.server
import math
import re
import threading
import time

MIB = 2 ** 20
STEP = 60  # seconds between the samples of the past

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
