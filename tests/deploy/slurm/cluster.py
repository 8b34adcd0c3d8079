"""A Slurm cluster of one machine, with GPUs that are devices of nothing: real
slurmctld, slurmd and commands from Debian's packages, on free ports, in a folder of
its own. Without munge, so for tests alone. Needs root."""

import os
import pathlib
import pwd
import re
import shutil
import signal
import socket
import subprocess
import time

DEPLOY = pathlib.Path(__file__).resolve().parents[3] / "deploy" / "slurm"
DEADLINE = 60  # seconds that anything may take
GPUS = 8

SLURM_CONF = """\
ClusterName=plimsoll
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
AuthType=auth/none
CredType=cred/none
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmctldDebug=verbose
SwitchType=switch/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
GresTypes=gpu
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
KillWait=1
InactiveLimit=0
SlurmdParameters=config_overrides
{deployed}
NodeName=DEFAULT CPUs=32 RealMemory=1000 Gres=gpu:h100:{gpus}
NodeName=fake0 NodeHostname={host} NodeAddr=127.0.0.1 Port={node_port}
"""


def deployed(folder):
    """The lines of slurm.conf that the page of deploy/slurm names, with its scripts in a
    folder."""
    lines = re.search(r"^    JobSubmitPlugins=.*\n(?:    .*\n)+", (DEPLOY / "README.md").read_text(),
                      re.M)[0]
    lines, moved = re.subn(r"=/etc/slurm/plimsoll/(\w+)\.sh$", rf"={folder}/\1", lines,
                           flags=re.M)
    assert moved == 3, lines
    return [line.strip() for line in lines.splitlines()]


def until(condition, what):
    """Waits for a condition, and returns what it returned."""
    deadline = time.monotonic() + DEADLINE
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.01)


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Cluster:
    """One controller and one node. `partitions` are names, the first the default;
    `settings` is the text of slurm.lua."""

    def __init__(self, folder, partitions, settings):
        if os.geteuid() != 0:
            raise PermissionError("slurmctld and slurmd of this test need root: run it by sudo")
        self.folder = pathlib.Path(folder)
        self.conf = self.folder / "conf"
        self.textfiles = self.folder / "textfiles"
        self.settings = self.folder / "settings.lua"
        self.log = self.folder / "slurmctld.log"
        self.processes = []
        self.loaded = int(time.time()) - 100000
        for path in (self.conf, self.textfiles, self.folder / "state", self.folder / "spool"):
            path.mkdir(parents=True)
        self.folder.chmod(0o755)
        self._write_configuration(partitions)
        self.settings.write_text(settings)

    def _write_configuration(self, partitions):
        host = socket.gethostname().split(".")[0]
        controller_port, node_port = free_ports(2)
        lines = [f"PartitionName={name} Nodes=fake0 MaxTime=60 OverSubscribe=FORCE:64"
                 f" Default={'YES' if at == 0 else 'NO'}" for at, name in enumerate(partitions)]
        # `conf` is what sites have; `bare` is a user's who went round cli_filter.
        plugins = deployed(self.folder)
        for name, own in (("conf", plugins), ("bare", [
                line for line in plugins if not line.startswith("CliFilterPlugins=")])):
            folder = self.folder / name
            folder.mkdir(exist_ok=True)
            (folder / "slurm.conf").write_text(SLURM_CONF.format(
                host=host, controller_port=controller_port, node_port=node_port,
                deployed="\n".join(own), folder=self.folder, gpus=GPUS) + "\n".join(lines) + "\n")
            devices = self.folder / "gpu"
            (folder / "gres.conf").write_text(
                "AutoDetect=off\n"
                f"Name=gpu Type=h100 Flags=nvidia_gpu_env File={devices}[0-{GPUS - 1}]\n")
        for at in range(GPUS):
            (self.folder / f"gpu{at}").symlink_to("/dev/null")
        # As installed: where users may read it, whatever they may of this repository.
        self.installed = self.folder / "installed"
        shutil.copytree(DEPLOY, self.installed)
        for name in ("job_submit.lua", "cli_filter.lua"):
            shutil.copy(DEPLOY / name, self.conf / name)

    def write_script(self, name, program, **variables):
        """Makes one of Slurm's own scripts: a program of deploy/slurm with its settings."""
        variables.setdefault("PLIMSOLL_GPU_DIRECTORY", self.folder / "gpus")
        assignments = "".join(f"export {key}='{value}'\n" for key, value in variables.items())
        script = self.folder / name
        script.write_text(f"#!/bin/sh\n{assignments}exec {self.installed / program}\n")
        script.chmod(0o755)

    def environment(self, **more):
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "KEEP") if name in os.environ}
        return {**kept, "LC_ALL": "C.UTF-8", "SLURM_CONF": str(self.conf / "slurm.conf"),
                "PLIMSOLL_SLURM_SETTINGS": str(self.settings),
                "LUA_PATH": f"{self.installed}/?.lua;;", **more}

    def start(self):
        self.reload()
        conf = str(self.conf / "slurm.conf")
        self._spawn("slurmctld", "-D", "-i", "-f", conf)
        self._spawn("slurmd", "-D", "-N", "fake0", "-f", conf)
        until(lambda: "idle" in self.run("sinfo", "-h", "-o", "%t").stdout, "no idle node")

    def _spawn(self, *command):
        with (self.folder / f"{command[0]}.out").open("w") as output:
            self.processes.append(subprocess.Popen(
                ["/usr/sbin/" + command[0], *command[1:]], stdout=output, stderr=output,
                env=self.environment()))

    def stop(self):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(DEADLINE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes = []

    def reload(self):
        """Makes slurmctld load its script anew, with the next submission: by the seconds
        of the file's time."""
        self.loaded += 10
        os.utime(self.conf / "job_submit.lua", (self.loaded, self.loaded))

    def run(self, *command, bare=False, user=None, input=None, cwd=None, **variables):
        """Runs one of Slurm's commands, as a user (root), round cli_filter (`bare`)."""
        environment = self.environment(**variables)
        if bare:
            environment["SLURM_CONF"] = str(self.folder / "bare" / "slurm.conf")
        return subprocess.run(
            [str(word) for word in command], capture_output=True, text=True, errors="replace",
            input=input, cwd=cwd or self.folder, timeout=DEADLINE, user=user, env=environment,
            group=pwd.getpwnam(user).pw_gid if user else None,
            extra_groups=[] if user else None)

    def job(self, job_id):
        """What the controller knows of a job, by field."""
        text = self.run("scontrol", "show", "job", str(job_id)).stdout
        fields = {}
        for line in text.splitlines():
            for start in ("Comment=", "AdminComment="):
                if line.strip().startswith(start):
                    fields[start[:-1]] = line.strip()[len(start):]
            for word in line.split():
                name, _, value = word.partition("=")
                fields.setdefault(name, value)
        return fields

    def wait_for(self, job_id):
        """Waits for the end of a job, and returns what is known of it."""
        def ended():
            fields = self.job(job_id)
            return fields if fields.get("JobState") in (
                "COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT") else None
        return until(ended, f"job {job_id} goes on")
