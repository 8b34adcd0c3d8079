"""What deploy/systemd says, and a plimsoll-server as one of its units would run it."""

import ctypes
import errno
import os
import pathlib
import re
import subprocess

DEPLOY = pathlib.Path(__file__).resolve().parents[3] / "deploy/systemd"
SERVER = os.environ.get("PLIMSOLL_SERVER_BINARY", "")
PLIMSOLL = os.environ.get("PLIMSOLL", "")


def settings(*paths):
    """The settings of [Service] in these files: name to values, in order."""
    values = {}
    for path in paths:
        for line in (DEPLOY / path).read_text().splitlines():
            match = re.fullmatch(r"(\w+)=(.*)", line)
            if match:
                values.setdefault(match[1], []).append(match[2])
    return values


def syscall_sets():
    """systemd's own sets of system calls, by name."""
    text = subprocess.run(["systemd-analyze", "syscall-filter", "--no-pager"], check=True,
                          capture_output=True, text=True).stdout
    sets, current = {}, None
    for line in text.splitlines():
        if line.startswith("@"):
            current = sets.setdefault(line.strip(), [])
        elif line.startswith("    ") and not line.strip().startswith("#"):
            current.append(line.strip())
    return sets


def expand(name, sets):
    if not name.startswith("@"):
        return {name}
    return set().union(*(expand(member, sets) for member in sets[name]))


def allowed_syscalls(filters):
    """The calls that lines of SystemCallFilter leave."""
    sets, allowed = syscall_sets(), set()
    for line in filters:
        denies = line.startswith("~")
        for name in line.lstrip("~").split():
            calls = expand(name, sets)
            allowed = allowed - calls if denies else allowed | calls
    return allowed


def seccomp(allowed, denied_action=0x80000000):  # SCMP_ACT_KILL_PROCESS
    """Returns a function that leaves its process no calls but these."""
    library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_rule_add.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int,
                                         ctypes.c_uint]
    library.seccomp_load.argtypes = [ctypes.c_void_p]
    numbers = [library.seccomp_syscall_resolve_name(name.encode()) for name in sorted(allowed)]
    allow = 0x7FFF0000  # SCMP_ACT_ALLOW

    def load():
        context = library.seccomp_init(denied_action)
        for number in numbers:
            if number >= 0:  # else not of this architecture
                library.seccomp_rule_add(context, allow, number, 0)
        if library.seccomp_load(context) != 0:
            os._exit(errno.EPERM)

    return load


class RunningServer:
    """A server with the environment of a unit, its addresses free ones; it prints
    where it listens."""

    def __init__(self, environment, before_exec=None):
        self.process = subprocess.Popen(
            [SERVER], env=environment, preexec_fn=before_exec, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        line = self.process.stdout.readline()
        match = re.fullmatch(r"plimsoll-server: grpc (\S+) http (\S+)\n", line)
        if match is None:
            self.process.kill()
            _, err = self.process.communicate()
            raise AssertionError(f"no server: {line!r} {err!r} {self.process.returncode}")
        self.grpc, self.http = match[1].split(","), match[2].split(",")

    def stop(self):
        """Returns the exit status after SIGTERM."""
        self.process.terminate()
        self.process.communicate()
        return self.process.returncode
