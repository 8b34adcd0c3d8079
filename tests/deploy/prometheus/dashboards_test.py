"""The dashboards as files, by the rules of Grafana's dashboard-linter: a data source
to choose, matchers on what is chosen, ranges that follow the zoom, and words and
units on every panel.

    python3 -m unittest dashboards_test
"""

import json
import pathlib
import re
import subprocess
import unittest

import yaml

GRAFANA = pathlib.Path(__file__).resolve().parents[3] / "deploy/grafana"
WITH_UNIT = ("timeseries", "stat", "bargauge", "table")
# Raw series of the servers and of admission; what is recorded has no instance left.
RAW = re.compile(r"(?<![:\w])((?:plimsoll|grpc_server|http|process)_\w+|up)(\{[^}]*\})?(?![:\w(])")
# Labels of the series below that begin like a metric.
LABELS = {"grpc_server", "http_requests"}


class DashboardsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dashboards = {path.name: json.loads(path.read_text())
                          for path in sorted(GRAFANA.glob("dashboards/*.json"))}

    def for_each_panel(self, check):
        for name, dashboard in self.dashboards.items():
            for panel in dashboard["panels"]:
                with self.subTest(name, panel=panel["title"]):
                    check(dashboard, panel)

    def test_files_are_what_the_script_writes(self):
        result = subprocess.run([GRAFANA / "dashboards.py", "--check"], capture_output=True,
                                text=True, check=False)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(len(self.dashboards), 5)

    def test_each_has_an_id_of_its_own_and_says_what_it_is(self):
        uids = [dashboard["uid"] for dashboard in self.dashboards.values()]
        self.assertEqual(len(set(uids)), len(uids))
        for name, dashboard in self.dashboards.items():
            with self.subTest(name):
                self.assertEqual(name, dashboard["uid"] + ".json")
                self.assertTrue(dashboard["description"] and dashboard["title"])
                self.assertFalse(dashboard["editable"])
                self.assertEqual(dashboard["tags"], ["plimsoll"])

    def test_the_data_source_is_chosen(self):
        for name, dashboard in self.dashboards.items():
            with self.subTest(name):
                first, *others = dashboard["templating"]["list"]
                self.assertEqual((first["name"], first["type"], first["query"], first["label"]),
                                 ("datasource", "datasource", "prometheus", "Data source"))
                for variable in others:
                    self.assertEqual(variable["datasource"]["uid"], "${datasource}")
                    self.assertTrue(variable["multi"] and variable["includeAll"])

        def check(_, panel):
            for source in (panel, *panel["targets"]):
                self.assertEqual(source["datasource"], {"type": "prometheus",
                                                        "uid": "${datasource}"})

        self.for_each_panel(check)

    def test_each_panel_has_words_a_unit_and_targets(self):
        def check(_, panel):
            self.assertTrue(panel["title"] and panel["description"].endswith("."))
            if panel["type"] in WITH_UNIT:
                self.assertTrue(panel["fieldConfig"]["defaults"]["unit"])
            references = [target["refId"] for target in panel["targets"]]
            self.assertTrue(references)
            self.assertEqual(len(set(references)), len(references))
            for target in panel["targets"]:
                self.assertTrue(target["expr"])
                if panel["type"] in ("timeseries", "bargauge"):
                    self.assertTrue(target["legendFormat"])

        self.for_each_panel(check)

    def test_raw_series_are_matched_by_what_is_chosen(self):
        seen = []

        def check(dashboard, panel):
            chosen = {variable["name"] for variable in dashboard["templating"]["list"]}
            for target in panel["targets"]:
                for metric, selector in RAW.findall(target["expr"]):
                    if metric in LABELS:
                        continue
                    seen.append(metric)
                    self.assertLessEqual({"job", "instance"}, chosen)
                    self.assertIn('job=~"$job"', selector, metric)
                    self.assertIn('instance=~"$instance"', selector, metric)

        self.for_each_panel(check)
        self.assertGreater(len(seen), 15)

    def test_what_the_linter_excuses_exists_and_has_a_reason(self):
        """And what needs the excuse, for it lacks an instance, has it."""
        panels = {(dashboard["title"], panel["title"]): panel
                  for dashboard in self.dashboards.values() for panel in dashboard["panels"]}
        rules = yaml.safe_load((GRAFANA / "dashboards/.lint").read_text())["exclusions"]
        for rule, exclusion in rules.items():
            self.assertTrue(exclusion["reason"])
            for entry in exclusion["entries"]:
                with self.subTest(rule, **entry):
                    self.assertTrue([key for key in panels if entry["dashboard"] == key[0]
                                     and entry.get("panel", key[1]) == key[1]])
        excused = [(entry["dashboard"], entry.get("panel"))
                   for entry in rules["target-instance-rule"]["entries"]]
        for (dashboard, title), panel in panels.items():
            recorded = re.search(r"\w:\w+:\w|DCGM", json.dumps(panel["targets"]))
            with self.subTest(dashboard, panel=title):
                self.assertEqual((dashboard, None) in excused or (dashboard, title) in excused,
                                 bool(recorded))

    def test_every_choice_is_used(self):
        for name, dashboard in self.dashboards.items():
            expressions = json.dumps([panel["targets"] for panel in dashboard["panels"]])
            for variable in dashboard["templating"]["list"][1:]:
                with self.subTest(name, variable=variable["name"]):
                    self.assertIn("$" + variable["name"], expressions)

    def test_ranges_follow_the_zoom(self):
        seen = []

        def check(_, panel):
            for target in panel["targets"]:
                code = re.sub(r'"[^"]*"', '""', target["expr"])
                for function, span in re.findall(r"\b(\w+)\([^()]*\[([^\]]+)\]", code):
                    allowed = ["$__rate_interval", "$__range", "$__range:1m"]
                    if function in ("rate", "irate"):
                        allowed = allowed[:1]
                    self.assertIn(span, allowed)
                    seen.append(function)

        self.for_each_panel(check)
        self.assertEqual(set(seen), {"rate", "increase", "sum_over_time", "last_over_time"})

    def test_panels_do_not_overlap(self):
        for name, dashboard in self.dashboards.items():
            taken = set()
            for panel in dashboard["panels"]:
                at = panel["gridPos"]
                cells = {(x, y) for x in range(at["x"], at["x"] + at["w"])
                         for y in range(at["y"], at["y"] + at["h"])}
                with self.subTest(name, panel=panel["title"]):
                    self.assertLessEqual(at["x"] + at["w"], 24)
                    self.assertFalse(cells & taken)
                taken |= cells
            identities = [panel["id"] for panel in dashboard["panels"]]
            self.assertEqual(len(set(identities)), len(identities))


if __name__ == "__main__":
    unittest.main()
