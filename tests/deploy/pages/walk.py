"""Walks a page of deploy/ as its reader would: runs the commands of its blocks in a
checkout, on a machine that is a folder.

Absolute paths of the commands lie in that folder. What a whole machine alone can do
(systemctl, apt-get, usermod, chgrp, Slurm's and an editor) is written down instead, and checked by
the tests; `systemctl` starts plimsoll-server as its unit says."""

import os
import pathlib
import re
import shutil
import subprocess
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
# What Debian's packages bring of the machine.
FOLDERS = ("usr/bin", "usr/lib", "etc/systemd/system", "etc/default", "etc/slurm", "etc/tmpfiles.d",
           "etc/haproxy", "etc/prometheus", "etc/grafana/provisioning/dashboards",
           "etc/grafana/provisioning/datasources", "var/lib/prometheus/node-exporter",
           "run/plimsoll")
NOTED = ("systemctl", "apt-get", "usermod", "chgrp", "editor", "scontrol", "sbatch", "squeue",
         "journalctl")
PATHS = re.compile(r"(?<![\w./:-])(unix:|)/(?=(?:usr|etc|var|run)/)")
# The server as the unit has it, but at free ports and in the folder.
START = r"""
case $* in
  *'enable --now plimsoll-server')
    unit=$MACHINE/etc/systemd/system/plimsoll-server.service
    env $(sed -n 's/^Environment=//p' "$unit" |
            sed "s|/run|$MACHINE/run|;s|:50051|:0|;s|:9464|:0|") \
      "$MACHINE$(sed -n 's/^ExecStart=//p' "$unit")" >"$MACHINE/server.log" 2>&1 &
    echo $! >"$MACHINE/server.pid"
    until grep -q 'grpc' "$MACHINE/server.log"; do kill -0 $! || exit 1; done
    ;;
esac
"""


def blocks(page):
    """The blocks of code of a page: indented by four or between fences."""
    pattern = re.compile(r"^```\w*\n((?:(?!```).*\n)*)^```$"
                         r"|((?:^    .*\n)(?:^(?:    .*)?\n)*)", re.M)
    return [fenced or textwrap.dedent(indented).strip("\n") + "\n"
            for fenced, indented in pattern.findall(page.read_text())]


def block(page, start):
    """The one block of a page that has a line which begins so."""
    found = [text for text in blocks(page) if re.search(rf"^{re.escape(start)}", text, re.M)]
    assert len(found) == 1, (page, start, found)
    return found[0]


class Machine:
    """A machine that is a folder, with a checkout that was built."""

    def __init__(self, folder):
        self.root = pathlib.Path(folder) / "m"
        self.checkout = pathlib.Path(folder) / "plimsoll"
        self.programs = pathlib.Path(folder) / "bin"
        for name in FOLDERS:
            (self.root / name).mkdir(parents=True)
        self.checkout.mkdir()
        (self.checkout / "deploy").symlink_to(DEPLOY)
        for name, variable in (("client/plimsoll", "PLIMSOLL"),
                               ("server/plimsoll-server", "PLIMSOLL_SERVER_BINARY")):
            path = self.checkout / "build" / name
            path.parent.mkdir(parents=True)
            path.symlink_to(pathlib.Path(os.environ[variable]).resolve())
        self.programs.mkdir()
        for name in NOTED:
            self.write_program(name, f'echo {name} "$*" >>"$MACHINE/noted"\n'
                               + (START if name == "systemctl" else ""))
        for name in ("sysusers", "tmpfiles"):
            real = shutil.which(f"systemd-{name}")
            self.write_program(f"systemd-{name}", f'exec {real} --root="$MACHINE" "$@"\n')

    def write_program(self, name, text):
        path = self.programs / name
        path.write_text("#!/bin/bash\n" + text)
        path.chmod(0o755)

    def run(self, commands):
        """Runs them all, each of which must do. Returns what they print."""
        moved = PATHS.sub(lambda match: f"{match[1]}{self.root}/", commands)
        result = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", moved], cwd=self.checkout, capture_output=True,
            text=True, check=False, timeout=60, env={
                "PATH": f"{self.programs}:{self.root}/usr/bin:{os.environ['PATH']}:/usr/sbin",
                "MACHINE": str(self.root), "LC_ALL": "C.UTF-8"})
        assert result.returncode == 0, f"{moved}\n{result.stdout}{result.stderr}"
        return result.stdout

    def noted(self):
        """What only a whole machine can do, as it was asked for."""
        path = self.root / "noted"
        return path.read_text().splitlines() if path.exists() else []

    def stop(self):
        pid = self.root / "server.pid"
        if pid.exists():
            os.kill(int(pid.read_text()), 15)
