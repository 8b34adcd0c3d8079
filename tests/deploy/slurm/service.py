"""A real plimsoll-server on a unix socket, that can be stopped, frozen and killed."""

import os
import re
import signal
import subprocess

from cluster import DEADLINE, until


class Service:
    def __init__(self, folder):
        self.socket = folder / "plimsoll.sock"
        self.address = f"unix:{self.socket}"
        self.output = folder / "plimsoll-server.log"
        self.process = None

    def start(self, *options):
        with self.output.open("a") as output:
            self.process = subprocess.Popen(
                [os.environ["PLIMSOLL_SERVER_BINARY"], "--listen", self.address,
                 "--drain-delay-ms", "0", *(options or ("--http-listen", "none"))],
                stdout=output, stderr=output)
        until(self._healthy, "the server serves")
        self.socket.chmod(0o666)

    def _healthy(self):
        return subprocess.run([os.environ["PLIMSOLL_SERVER_BINARY"], "--health-check",
                               self.address], capture_output=True).returncode == 0

    def http_address(self):
        return re.search(r"http.* (127\.0\.0\.1:\d+)", self.output.read_text())[1]

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            self.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self.kill()
