"""The pages of deploy/ followed to the letter: every command of theirs does what the
page says, on a machine that is a folder, and leaves what the next page and the
configuration need. What only a whole machine can do is compared with what the other tests
run on real programs.

    PLIMSOLL=build/client/plimsoll PLIMSOLL_SERVER_BINARY=build/server/plimsoll-server \\
        python3 -m unittest pages_test
"""

import json
import os
import re
import subprocess
import tempfile
import unittest

import yaml

from walk import DEPLOY, ROOT, Machine, block, blocks

SYSTEMD, SLURM, PROMETHEUS = (DEPLOY / name / "README.md"
                              for name in ("systemd", "slurm", "prometheus"))
PAGES = [ROOT / "README.md", *DEPLOY.rglob("*.md")]


class PagesTest(unittest.TestCase):
    """Tests of one machine."""

    @classmethod
    def setUpClass(cls):
        cls.maxDiff = None
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.machine = Machine(folder.name)
        cls.addClassCleanup(cls.machine.stop)
        cls.root = cls.machine.root

    @classmethod
    def install_server(cls):
        return cls.machine.run(block(SYSTEMD, "install -m 755 build/client/plimsoll"))

    @classmethod
    def install_slurm(cls):
        """Of all three kinds of host, on one."""
        for start in ("usermod -aG plimsoll slurm", "install -m 644 deploy/slurm/tmpfiles.conf",
                      "install -m 755 build/client/plimsoll"):
            cls.machine.run(block(SLURM, start))

    def files(self, folder):
        path = self.root / folder
        return sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())


class SystemdTest(PagesTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.answer = cls.install_server()
        cls.asked = cls.machine.noted()

    def test_the_server_is_installed_and_asked(self):
        self.assertIn("FITS", self.answer)
        for path in ("plimsoll-.service.d/hardened.conf", "plimsoll-server.service",
                     "plimsoll-server@.service"):
            self.assertEqual((self.root / "etc/systemd/system" / path).read_text(),
                             (DEPLOY / "systemd" / path).read_text())
        self.assertRegex((self.root / "etc/group").read_text(), "(?m)^plimsoll:")
        self.assertEqual(self.asked[-2:], ["systemctl daemon-reload",
                                      "systemctl enable --now plimsoll-server"])
        self.verify("plimsoll-server.service", "plimsoll-server@1.service")

    def verify(self, *units):
        """By systemd itself, with the targets that they name."""
        for name in ("network", "multi-user", "sysinit", "basic", "shutdown"):
            target = self.root / f"etc/systemd/system/{name}.target"
            target.write_text(f"[Unit]\nDescription={name}\n")
        for name in ("system", "-"):
            (self.root / f"etc/systemd/system/{name}.slice").write_text("[Slice]\n")
        result = subprocess.run(["systemd-analyze", f"--root={self.root}", "--no-pager", "verify",
                                 *units], capture_output=True, text=True, check=False)
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_the_libraries_are_those_of_the_image(self):
        """And of nothing else: what the programs load, of a machine without development files."""
        image = re.search(r"--no-install-recommends (lib.*?) &&", (ROOT / "Dockerfile").read_text(),
                          re.S)[1].replace("\\", "").split()
        for page in (SYSTEMD, SLURM):
            line = re.search(r"^    apt-get install (libgrpc.*)$", page.read_text(), re.M)[1]
            self.assertEqual(line.split(), image)

    def test_callers_from_other_hosts(self):
        self.machine.run(block(SYSTEMD, "mkdir -p /etc/systemd/system/plimsoll-server"))
        self.verify("plimsoll-server.service")
        folder = self.root / "etc/systemd/system/plimsoll-server.service.d"
        shown = (folder / "network.conf").read_text()
        self.assertEqual(shown.splitlines()[0], "[Service]")
        unit = (DEPLOY / "systemd/plimsoll-server.service").read_text()
        for name, value in re.findall(r"(PLIMSOLL_\w*LISTEN)=(\S+)", shown):
            own = re.search(rf"{name}=(\S+)", unit)[1]
            self.assertEqual(value.replace(str(self.root), ""),
                             own.replace("127.0.0.1", "0.0.0.0"))
        self.assertIn("IPAddressAllow=", shown)

    def test_settings_are_the_servers(self):
        text = subprocess.run([os.environ["PLIMSOLL_SERVER_BINARY"], "--help"], check=True,
                              capture_output=True, text=True).stdout
        known = set(re.findall(r"Env:(PLIMSOLL_\w+)", text))
        shown = re.findall(r"^(PLIMSOLL_\w+)=", block(SYSTEMD, "PLIMSOLL_MAX_SEARCH"), re.M)
        self.assertTrue(shown and set(shown) <= known, shown)

    def test_two_behind_a_balancer(self):
        self.machine.run(block(SYSTEMD, "systemctl disable --now plimsoll-server"))
        installed = self.root / "etc/haproxy/haproxy.cfg"
        checked = subprocess.run(["haproxy", "-c", "-f", str(installed)], capture_output=True,
                                 text=True, check=False)
        self.assertEqual(checked.returncode, 0, checked.stderr)


class SlurmTest(PagesTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.install_server()
        cls.install_slurm()

    def test_all_is_there(self):
        scripts = sorted(path.name for path in (DEPLOY / "slurm").glob("*.sh"))
        self.assertEqual(self.files("etc/slurm/plimsoll"), scripts)
        for name in scripts:
            self.assertTrue(os.access(self.root / "etc/slurm/plimsoll" / name, os.X_OK))
        self.assertEqual([name for name in self.files("etc/slurm") if "/" not in name],
                         ["cli_filter.lua", "job_submit.lua"])
        self.assertEqual(self.files("usr/local/share/lua/5.1/plimsoll"),
                         sorted(path.name for path in (DEPLOY / "slurm/plimsoll").glob("*.lua")))
        self.assertEqual(self.files("etc/plimsoll"), ["policy.yaml", "slurm.env"])
        self.assertTrue((self.root / "run/plimsoll-gpus").is_dir())
        self.assertEqual((self.root / "var/lib/prometheus/node-exporter").stat().st_mode & 0o7777,
                         0o2775)
        self.assertIn("usermod -aG plimsoll slurm", self.machine.noted())

    def test_slurm_conf_names_what_is_installed(self):
        """tests/deploy/slurm runs a real Slurm with these lines."""
        lines = dict(line.split("=", 1) for line in block(SLURM, "JobSubmitPlugins=").splitlines())
        self.assertEqual(lines["PrologFlags"], "Alloc")
        for name in ("Prolog", "Epilog", "EpilogSlurmctld"):
            self.assertTrue(os.access(f"{self.root}{lines[name]}", os.X_OK), lines[name])

    def test_what_a_site_has_stays(self):
        own = {path: f"own {path}\n" for path in (
            "etc/slurm/job_submit.lua", "etc/slurm/cli_filter.lua", "etc/plimsoll/policy.yaml",
            "etc/plimsoll/slurm.env")}
        own["etc/plimsoll/policy.yaml"] = "rules: {mode: warn}\n"
        for path, text in own.items():
            before = (self.root / path).read_text()
            self.addCleanup((self.root / path).write_text, before)
            (self.root / path).write_text(text)
        self.install_slurm()
        self.assertEqual({path: (self.root / path).read_text() for path in own}, own)

    def test_a_node_that_starts_again_forgets_its_jobs(self):
        folder = self.root / "var/lib/prometheus/node-exporter"
        for file in folder.iterdir():
            file.unlink()
        for name in ("plimsoll_job_7.prom", "plimsoll_admission.prom", "other.prom"):
            (folder / name).write_text("")
        self.machine.run("systemd-tmpfiles --remove plimsoll.conf")
        self.assertEqual(len(list(folder.iterdir())), 3, "it runs on")
        self.machine.run("systemd-tmpfiles --remove --boot plimsoll.conf")
        self.assertEqual(self.files("var/lib/prometheus/node-exporter"),
                         ["other.prom", "plimsoll_admission.prom"])

    def lua(self, program):
        result = subprocess.run(["lua5.1", "-e", program], capture_output=True, text=True,
                                check=False, env={"LUA_PATH": f"{DEPLOY}/slurm/?.lua;;"})
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def test_the_settings_that_are_shown_are_the_defaults(self):
        shown = self.root / "slurm.lua"
        shown.write_text(block(SLURM, "return {"))
        self.assertEqual(self.lua(f"""
            local load = require("plimsoll.settings").load
            os.getenv = function() return "/nonexistent" end
            local defaults = load()
            os.getenv = function() return "{shown}" end
            local given, wrong = load()
            assert(not wrong, wrong)
            local count = 0
            for name, value in pairs(given) do
              assert(defaults[name] == value, name)
              count = count + 1
            end
            for name in pairs(getmetatable(defaults).__index) do
              assert(rawget(given, name) ~= nil, name)
            end
            print(count > 5)"""), "true\n")

    def test_what_a_site_calls_is_there(self):
        lines = block(SLURM, "local gate =")
        self.lua(f"assert(loadstring([==[{lines}]==]))")
        for module, function in re.findall(r'require\("plimsoll\.(\w+)"\)\.(\w+)', lines):
            text = (DEPLOY / f"slurm/plimsoll/{module}.lua").read_text()
            self.assertRegex(text, rf"(?m)^function \w+\.{function}\(")

    def test_the_words_that_are_shown_are_words(self):
        script = block(SLURM, "#SBATCH --gpus-per-node")
        (self.machine.checkout / "job.yaml").write_text(
            (DEPLOY / "examples/llama-3.1-8b.yaml").read_text())
        (self.machine.checkout / "request.json").write_text(json.dumps({
            "scheduler": "slurm", "command": "sbatch", "tres_per_node": "gres:gpu:h100:8",
            "script_words": "".join(re.findall("^#PLIMSOLL.*\n", script, re.M))}))
        answer = json.loads(self.machine.run(
            "plimsoll admit --scheduler-request request.json --policy /etc/plimsoll/policy.yaml"
            " -o json"))
        self.assertEqual((answer["mode"], answer["cause"]), ("shadow", "CAUSE_FITS"))
        for name in re.findall(r"\$(PLIMSOLL_\w+)", script):
            self.assertIn(name, answer["environment"])


class PrometheusTest(PagesTest):
    def test_prometheus_is_installed(self):
        for path in (self.root / "etc/prometheus").glob("*.yml*"):
            path.unlink()
        (self.root / "etc/prometheus/prometheus.yml").write_text("own")
        self.machine.run(block(PROMETHEUS, "apt-get install prometheus"))
        installed = self.files("etc/prometheus")
        for name in ("consoles/*.html", "console_libraries/*", "rules.yaml", "alerts.yaml"):
            for path in (DEPLOY / "prometheus").glob(name):
                self.assertIn(str(path.relative_to(DEPLOY / "prometheus")), installed)
        self.assertEqual((self.root / "etc/prometheus/prometheus.yml.~1~").read_text(), "own")
        self.assertEqual(self.machine.noted()[-1], "systemctl restart prometheus")

    def test_runbooks_get_an_address(self):
        self.machine.run(block(PROMETHEUS, "apt-get install prometheus"))
        command = re.search(r"`(sed -i .*alerts.yaml)`", PROMETHEUS.read_text())[1]
        self.machine.run(command)
        rules = yaml.safe_load((self.root / "etc/prometheus/alerts.yaml").read_text())
        for group in rules["groups"]:
            for rule in group["rules"]:
                self.assertRegex(rule["annotations"]["runbook_url"],
                                 "^https://HOST/plimsoll/deploy/prometheus/runbook.md#")

    def test_grafana_finds_the_dashboards(self):
        self.machine.run(block(PROMETHEUS, "install -m 644 -D -t /var/lib/grafana"))
        provided = yaml.safe_load(
            (self.root / "etc/grafana/provisioning/dashboards/plimsoll.yaml").read_text())
        path = provided["providers"][0]["options"]["path"]
        self.assertEqual(self.files(path[1:]), sorted(
            file.name for file in (DEPLOY / "grafana/dashboards").glob("*.json")))
        source = yaml.safe_load(
            (self.root / "etc/grafana/provisioning/datasources/plimsoll.yaml").read_text())
        self.assertEqual(source["datasources"][0]["type"], "prometheus")


class NamesTest(unittest.TestCase):
    """What the pages name is there."""

    def test_files_of_the_repository(self):
        seen = 0
        for page in PAGES:
            text = "\n".join([*re.findall(r"`([^`\n]+)`", page.read_text()),
                              *blocks(page)])
            for name in re.findall(
                    r"(?<![\w/.-])((?:deploy|tests|\.ci|decisions|proto)/[\w./*@-]*\w)", text):
                with self.subTest(page=str(page.relative_to(ROOT)), name=name):
                    self.assertTrue(list(ROOT.glob(name)))
                    seen += 1
        self.assertGreater(seen, 40)

    def test_files_of_the_machine(self):
        """A path below /etc, /usr or /run that one page names is made by one of them, by a
        package, or said to be the reader's."""
        made = "".join(text for page in PAGES for text in blocks(page))
        ours = {"/etc/plimsoll/slurm.lua", "/etc/plimsoll/calibration.yaml",
                "/etc/default/plimsoll-server", "/run/plimsoll/plimsoll.sock",
                "/run/plimsoll-1/plimsoll.sock", "/run/plimsoll-2/plimsoll.sock",
                "/run/plimsoll-gpus"}
        for page in PAGES:
            for name in re.findall(r"`(/(?:etc|usr|run)/[\w./@-]*plimsoll[\w./@-]*)`",
                                   page.read_text()):
                folder, _, file = name.rpartition("/")
                with self.subTest(page=str(page.relative_to(ROOT)), name=name):
                    self.assertTrue(name in ours or name in made
                                    or (folder in made and file in made))


if __name__ == "__main__":
    unittest.main()
