"""The rules and alerts as files: promtool accepts them, each is unit-tested, each
alert leads to a page that says what to do.

    python3 -m unittest rules_test
"""

import pathlib
import re
import subprocess
import unittest

import yaml

HERE = pathlib.Path(__file__).resolve().parent
DEPLOY = HERE.parents[2] / "deploy"
PROMETHEUS = DEPLOY / "prometheus"
RECORDED = re.compile(r"\b[a-z_0-9]+:[a-z_0-9]+:[a-z_0-9]+\b")


def read_rules(name):
    groups = yaml.safe_load((PROMETHEUS / name).read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def promtool(*arguments):
    return subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True,
                          check=False)


class RulesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.records = [rule["record"] for rule in read_rules("rules.yaml")]
        cls.alerts = read_rules("alerts.yaml")

    def test_promtool_accepts_the_configuration(self):
        result = promtool("check", "config", PROMETHEUS / "prometheus.yaml")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn(f"{len(self.alerts)} rules found", result.stdout)

    def test_each_rule_computes_what_its_test_expects(self):
        for name in ("rules_test.yaml", "alerts_test.yaml"):
            result = promtool("test", "rules", HERE / name)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_each_rule_has_a_test(self):
        tests = yaml.safe_load((HERE / "rules_test.yaml").read_text())["tests"]
        tested = {name for test in tests for case in test["promql_expr_test"]
                  if case["exp_samples"] for name in RECORDED.findall(case["expr"])}
        self.assertEqual(set(self.records) - tested, set())

    def test_each_alert_is_tested_where_it_fires_and_where_not(self):
        tests = yaml.safe_load((HERE / "alerts_test.yaml").read_text())["tests"]
        cases = [case for test in tests for case in test["alert_rule_test"]]
        for alert in self.alerts:
            with self.subTest(alert["alert"]):
                own = [bool(case["exp_alerts"]) for case in cases
                       if case["alertname"] == alert["alert"]]
                self.assertEqual(set(own), {True, False})

    def test_each_alert_says_how_bad_it_is_and_where_to_read_on(self):
        runbook = (PROMETHEUS / "runbook.md").read_text()
        sections = {title: body for title, body in
                    re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", runbook, re.MULTILINE | re.DOTALL)}
        for alert in self.alerts:
            name = alert["alert"]
            with self.subTest(name):
                self.assertRegex(name, "^Plimsoll[A-Z]")
                self.assertIn(alert["labels"]["severity"], ("critical", "warning", "info"))
                self.assertEqual(set(alert["annotations"]),
                                 {"summary", "description", "runbook_url"})
                self.assertEqual(alert["annotations"]["runbook_url"],
                                 "deploy/prometheus/runbook.md#" + name.lower())
                for part in ("**Meaning.**", "**Impact.**", "**What to do.**"):
                    self.assertIn(part, sections.get(name, ""))
        self.assertEqual(set(sections), {alert["alert"] for alert in self.alerts})

    def test_what_is_read_is_recorded(self):
        """Alerts, pages and dashboards name no recorded series that nothing records."""
        files = [PROMETHEUS / "alerts.yaml", *PROMETHEUS.glob("console*/*"),
                 *DEPLOY.glob("grafana/dashboards/*.json")]
        self.assertGreater(len(files), 10)
        for file in files:
            with self.subTest(file.name):
                self.assertEqual(set(RECORDED.findall(file.read_text())) - set(self.records), set())

    def test_names_are_level_metric_operations(self):
        for rule in read_rules("rules.yaml"):
            with self.subTest(rule["record"]):
                self.assertRegex(rule["record"], f"^{RECORDED.pattern}$")


if __name__ == "__main__":
    unittest.main()
