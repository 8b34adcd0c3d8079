"""The units as systemd reads them, and the server under what they leave it."""

import os
import pathlib
import shutil
import socket
import stat
import subprocess
import tempfile
import unittest
import urllib.request

from units import DEPLOY, PLIMSOLL, SERVER, RunningServer, allowed_syscalls, seccomp, settings

UNITS = ["plimsoll-server.service", "plimsoll-server@1.service", "plimsoll-server@2.service"]
HOST_UNITS = pathlib.Path("/usr/lib/systemd/system")
HARDENED = "plimsoll-.service.d/hardened.conf"
JOB = ["--model", "llama-3.1-8b", "--gpu", "h100-80gb-sxm", "--gpu-count", "8", "--zero-stage", "3",
       "--sequence-length", "4096"]
MOST_EXPOSURE = "15"  # tenths, of systemd-analyze's scale from 0 to 10


def installed(folder):
    """A tree with the units as README.md installs them."""
    units = folder / "usr/lib/systemd/system"
    units.mkdir(parents=True)
    for path in DEPLOY.glob("plimsoll-*.service"):
        shutil.copy(path, units)
    shutil.copytree(DEPLOY / "plimsoll-.service.d", units / "plimsoll-.service.d")
    for kind in ("*.target", "*.slice"):
        for path in HOST_UNITS.glob(kind):
            shutil.copy(path, units)
    (folder / "usr/bin").mkdir()
    shutil.copy(SERVER, folder / "usr/bin/plimsoll-server")
    return units


def analyze(folder, *words):
    return subprocess.run(["systemd-analyze", f"--root={folder}", "--no-pager", *words],
                          capture_output=True, text=True)


class UnitsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)
        cls.units = installed(cls.root)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_systemd_has_nothing_to_say(self):
        result = analyze(self.root, "verify", *UNITS)
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_verify_would_notice_a_slip(self):
        unit = self.units / "plimsoll-slip.service"
        unit.write_text("[Service]\nExecStart=/usr/bin/plimsoll-server\nProtectHom=yes\n")
        self.addCleanup(unit.unlink)
        self.assertIn("ProtectHom", analyze(self.root, "verify", unit.name).stderr)

    def test_exposes_little(self):
        for unit in UNITS:
            result = analyze(self.root, "--offline=true", f"--threshold={MOST_EXPOSURE}",
                             "security", unit)
            self.assertEqual(result.returncode, 0, result.stdout[-2000:])
        (self.units / "open.service").write_text("[Service]\nExecStart=/usr/bin/plimsoll-server\n")
        bare = analyze(self.root, "--offline=true", f"--threshold={MOST_EXPOSURE}", "security",
                       "open.service")
        self.assertNotEqual(bare.returncode, 0, "what is not hardened is noticed")

    def test_makes_the_group(self):
        (self.root / "etc").mkdir(exist_ok=True)
        subprocess.run(["systemd-sysusers", f"--root={self.root}", str(DEPLOY / "sysusers.conf")],
                       check=True, capture_output=True)
        groups = (self.root / "etc/group").read_text()
        self.assertRegex(groups, r"(?m)^plimsoll:")
        self.assertEqual(settings(HARDENED)["Group"], ["plimsoll"])


class ServerUnderTheUnitTest(unittest.TestCase):
    """The server with the unit's environment, file mode mask and system calls; a
    call beyond these kills it."""

    def environment(self, folder):
        values = dict(line.split("=", 1) for line in settings("plimsoll-server.service")[
            "Environment"])
        self.assertIn("unix:/run/plimsoll/plimsoll.sock", values["PLIMSOLL_LISTEN"])
        values["PLIMSOLL_LISTEN"] = values["PLIMSOLL_LISTEN"].replace(
            "/run/plimsoll", folder).replace(":50051", ":0")
        values["PLIMSOLL_HTTP_LISTEN"] = values["PLIMSOLL_HTTP_LISTEN"].replace(":9464", ":0")
        return values

    def confine(self):
        hardened = settings(HARDENED)
        limit = seccomp(allowed_syscalls(hardened["SystemCallFilter"]))
        mask = int(hardened["UMask"][0], 8)

        def before_exec():
            os.umask(mask)
            limit()

        return before_exec

    def test_answers_by_its_socket_and_its_port(self):
        with tempfile.TemporaryDirectory() as folder:
            server = RunningServer(self.environment(folder), self.confine())
            try:
                mode = os.stat(f"{folder}/plimsoll.sock").st_mode
                self.assertTrue(stat.S_ISSOCK(mode))
                self.assertEqual(stat.S_IMODE(mode), 0o770, "the group may, others may not")
                for address in server.grpc:
                    subprocess.run([SERVER, "--health-check", address], check=True)
                    for command in ("estimate", "recommend"):
                        result = subprocess.run(
                            [PLIMSOLL, command, *JOB, "--server", address, "-o", "json"],
                            capture_output=True, text=True)
                        self.assertEqual(result.returncode, 0, result.stderr)
                with urllib.request.urlopen(f"http://{server.http[0]}/metrics") as page:
                    metrics = page.read().decode()
                self.assertIn("plimsoll_searches_total", metrics)
                self.assertRegex(metrics, r"process_start_time_seconds 1\d{9}")
            finally:
                self.assertEqual(server.stop(), 0)

    def test_says_when_it_serves(self):
        """A unit that others wait for: systemctl start returns when it can be asked."""
        self.assertEqual(settings(HARDENED)["Type"], ["notify"])
        with tempfile.TemporaryDirectory() as folder:
            for name in (f"{folder}/notify", f"@plimsoll-{os.getpid()}"):
                with self.subTest(name), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
                    heard.bind(name.replace("@", "\0"))
                    heard.settimeout(30)
                    server = RunningServer({**self.environment(folder), "NOTIFY_SOCKET": name},
                                           self.confine())
                    try:
                        self.assertEqual(heard.recv(100), b"READY=1")
                        subprocess.run([SERVER, "--health-check", server.grpc[0]], check=True)
                    finally:
                        self.assertEqual(server.stop(), 0)

    def test_serves_where_nobody_hears_it(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in (f"{folder}/nobody", "x" * 200):
                server = RunningServer({**self.environment(folder), "NOTIFY_SOCKET": name})
                try:
                    subprocess.run([SERVER, "--health-check", server.grpc[0]], check=True)
                finally:
                    server.process.terminate()
                    _, log = server.process.communicate()
                self.assertIn("not-notified", log)

    def test_a_call_beyond_the_filter_would_kill_it(self):
        allowed = allowed_syscalls(settings(HARDENED)["SystemCallFilter"])
        self.assertIn("accept4", allowed)
        self.assertNotIn("mount", allowed)
        with self.assertRaisesRegex(AssertionError, "no server"):
            RunningServer({"PLIMSOLL_LISTEN": "127.0.0.1:0", "PLIMSOLL_HTTP_LISTEN": "none"},
                          seccomp(allowed - {"bind"}))


if __name__ == "__main__":
    unittest.main()
