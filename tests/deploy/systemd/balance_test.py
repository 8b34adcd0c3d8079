"""Two real servers behind a real HAProxy with deploy/systemd/haproxy.cfg: both are
asked, and stopping one or killing it costs no caller an answer."""

import pathlib
import re
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.request

from units import DEPLOY, PLIMSOLL, RunningServer, settings

JOB = ["--model", "llama-3.2-1b", "--gpu", "h100-80gb-sxm", "--sequence-length", "2048",
       "--detail", "summary"]
DEADLINE = 30  # seconds that anything may take to happen


def wait_for(condition, what):
    deadline = time.monotonic() + DEADLINE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"never happened: {what}")
        threading.Event().wait(0.05)


def environment(instance, grpc=":0", http=":0"):
    """Of plimsoll-server@.service, on other ports."""
    values = dict(line.replace("%i", str(instance)).split("=", 1)
                  for line in settings("plimsoll-server@.service")["Environment"])
    listen = values["PLIMSOLL_LISTEN"].split(",")[0]
    values["PLIMSOLL_LISTEN"] = listen.replace(f":5005{instance}", grpc)
    values["PLIMSOLL_HTTP_LISTEN"] = values["PLIMSOLL_HTTP_LISTEN"].replace(f":946{instance}", http)
    return values


class BalanceTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.servers = {i: RunningServer(environment(i)) for i in (1, 2)}
        self.addCleanup(lambda: [server.process.kill() or server.process.communicate()
                                 for server in self.servers.values()])
        folder = pathlib.Path(self.folder.name)
        self.address = f"unix:{folder}/grpc.sock"
        text = (DEPLOY / "haproxy.cfg").read_text()
        replaced = {"127.0.0.1:50050": f"unix@{folder}/grpc.sock",
                    "127.0.0.1:9460": f"unix@{folder}/http.sock"}
        for i, server in self.servers.items():
            replaced[f"127.0.0.1:5005{i}"] = server.grpc[0]
            replaced[f"127.0.0.1:946{i}"] = server.http[0]
            replaced[f"h1 port 946{i}"] = "h1 port " + server.http[0].split(":")[1]
        for old, new in replaced.items():
            self.assertEqual(text.count(old), 1, old)
            text = text.replace(old, new)
        (folder / "haproxy.cfg").write_text(text)
        self.log = open(folder / "log", "w+")
        self.addCleanup(self.log.close)
        balancer = subprocess.Popen(["haproxy", "-f", str(folder / "haproxy.cfg")],
                                    stdout=self.log, stderr=self.log)
        self.addCleanup(lambda: balancer.kill() or balancer.wait())
        wait_for(lambda: self.ask() == 0, "the balancer answers")

    def ask(self):
        return subprocess.run([PLIMSOLL, "estimate", *JOB, "--server", self.address, "-o", "json"],
                              capture_output=True).returncode

    def answered(self, i):
        url = f"http://{self.servers[i].http[0]}/metrics"
        with urllib.request.urlopen(url) as page:
            text = page.read().decode()
        return int(re.search(r'grpc_server_handled_total\{grpc_code="OK",'
                             r'grpc_method="EstimateMemory"[^}]*\} (\d+)', text)[1])

    def test_both_are_asked(self):
        self.assertEqual([self.ask() for _ in range(10)], [0] * 10)
        self.assertGreater(self.answered(1), 2)
        self.assertGreater(self.answered(2), 2)

    def test_stopping_one_costs_no_answer(self):
        stopping = threading.Thread(target=lambda: statuses.append(self.servers[1].stop()))
        statuses, answers = [], []
        stopping.start()
        while stopping.is_alive() or len(answers) < 10:
            answers.append(self.ask())
        stopping.join()
        self.assertEqual(statuses, [0])
        self.assertEqual(answers, [0] * len(answers))

    def test_a_killed_one_is_left_and_taken_back(self):
        grpc, http = (address.rsplit(":", 1)[1] for address in
                      (self.servers[1].grpc[0], self.servers[1].http[0]))
        self.servers[1].process.kill()
        self.servers[1].process.communicate()
        self.assertEqual([self.ask() for _ in range(10)], [0] * 10, "at once: a refused "
                         "connection goes to the other")
        self.servers[1] = RunningServer(environment(1, ":" + grpc, ":" + http))
        wait_for(lambda: self.ask() == 0 and self.answered(1) > 0, "it is asked again")


if __name__ == "__main__":
    unittest.main()
