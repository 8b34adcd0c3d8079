"""A real Prometheus under the deployed configuration watches a real server, a real
node_exporter and recorded GPU memory: what is predicted meets what is used, alerts
fire, and every query of every dashboard and page has an answer.

    PLIMSOLL_SERVER_BINARY=build/server/plimsoll-server python3 -m unittest prometheus_test

KEEP=<folder> keeps screenshots of the pages, to be looked at.
"""

import concurrent.futures
import html
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import unittest
import urllib.request

from recorded_jobs import ENDED, MIB, RECORDED, STEP, history
from watched_cluster import DEPLOY, ROOT, WatchedCluster, wait_for

PAGES = ("plimsoll", "plimsoll-job", "plimsoll-accuracy", "plimsoll-headroom",
         "plimsoll-admission", "plimsoll-service")
PAST = 2 * 3600  # seconds of history
ROWS = RECORDED[-6:]
EXCEEDS, ENDS, STEADY = "48274", "48271", "48263"
FULL, UNKNOWN = "48255", "48259"  # that have ended: out of memory, and nobody said how
# Grafana's variables, as it would fill them in.
CHOSEN = {"$__rate_interval": "1m", "$__range": "1h", "$cluster": ".*", "$hpc_job": ".*",
          "$job": ".+", "$instance": ".+"}
# What admission decided: mode, decision, enforced, cause.
DECISIONS = [("enforce", "admit", "admit", "fits"), ("enforce", "resize", "resize", "does-not-fit"),
             ("enforce", "reject", "reject", "does-not-fit"),
             ("shadow", "admit", "reject", "does-not-fit"), ("warn", "warn", "warn", "at-risk"),
             ("off", "admit", "admit", "not-asked"), ("warn", "admit", "admit", "unreachable")]


def report(job, peak, outcome):
    gauge = {"expectedBytes": str(job.expected), "boundBytes": str(job.bound)}
    prediction = {"verdict": "VERDICT_FITS", "device": gauge, "usableBytes": str(job.usable),
                  "job": {"model": {"name": job.model}, "training": {"sequence_length": 2048},
                          "cluster": {"gpu": job.gpu, "gpu_count": job.gpu_count}}}
    return {"jobId": job.id, "prediction": prediction, "actualPeakBytes": [str(peak)],
            "gauge": "device", "source": "dcgm", "outcome": outcome}


class PrometheusTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = shutil.which("chromium")
        assert cls.browser, "chromium is missing: .ci/install.sh test installs it"
        cls.cluster = WatchedCluster(ROWS, "east")
        try:
            cls.watch(cls.cluster)
        except BaseException:
            cls.cluster.stop()
            raise

    @classmethod
    def watch(cls, cluster):
        """Fills in the past, then counts, once Prometheus has seen that all is 0."""
        now = time.time()
        cluster.backfill(history(cluster, now - PAST, now))
        cluster.backfill_rules(now - PAST, now)
        cluster.write("plimsoll_admission.prom", cluster.admission_textfile({}))
        cluster.start_prometheus()
        wait_for("each target answers", lambda: cluster.query("sum(up) == 3"))
        wait_for("the first counts", lambda: cluster.query(
            "sum(plimsoll_admission_decisions_total) == 0"))
        for decision in DECISIONS:
            cluster.decide(*decision, count=1 if "resize" in decision else 3)
        for row in ROWS:
            cluster.estimate(*row[1:5])
        job = cluster.jobs[0]
        for peak, outcome in ((job.expected, "finished"), (job.expected * 95 // 100, "finished"),
                              (job.bound + MIB, "finished"), (job.usable, "out-of-memory")):
            status, answer = cluster.call_socket("reportUsage", report(job, peak, outcome))
            assert status == 200, answer

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()

    def job(self, id_):
        return next(job for job in self.cluster.jobs if job.id == id_)

    def value(self, expression):
        result = self.cluster.query(expression)
        self.assertEqual(len(result), 1, expression)
        return result[0][1]

    def settle(self, expression):
        """Waits for a rule's first evaluation; returns its value."""
        wait_for(expression, lambda: self.cluster.query(expression))
        return self.value(expression)

    def test_the_ratio_is_what_was_used_by_what_was_predicted(self):
        """The peak lies in the past: it was recorded before Prometheus began."""
        for id_ in (STEADY, ENDS):
            job = self.job(id_)
            used = max(job.used_mib(0, now) for now in range(int(job.begin), int(time.time()), STEP))
            for figure, predicted in (("expected", job.expected), ("bound", job.bound)):
                with self.subTest(id_, figure=figure):
                    ratio = self.settle("hpc_job:plimsoll_actual_per_predicted:ratio"
                                        f'{{hpc_job="{id_}",figure="{figure}"}}')
                    self.assertAlmostEqual(ratio, used * MIB / predicted, delta=0.01)

    def test_the_distribution_is_of_settled_jobs(self):
        self.assertEqual(self.settle("cluster:plimsoll_settled_jobs:count"), len(ROWS))
        within = self.settle("cluster:plimsoll_jobs_within_tenth:ratio")
        near = [job for job in self.cluster.jobs if abs(job.factor - 1) < 0.1]
        self.assertAlmostEqual(within, len(near) / len(ROWS), delta=1 / len(ROWS) + 0.01)

    def test_headroom_adds_up(self):
        """In GPU-hours: of the history, each minute counts a sixtieth."""
        idle = self.settle("cluster:plimsoll_headroom_gpus:sum")
        held = sum(job.gpu_count for job in self.cluster.jobs)
        self.assertTrue(0 < idle < held)
        hours = self.settle("cluster:plimsoll_headroom_gpu_hours:sum1d")
        self.assertTrue(0.2 * idle < hours < 2.1 * held, hours)

    def test_admission_is_counted_by_mode_and_decision(self):
        wait_for("the later counts", lambda: self.cluster.query(
            "sum(plimsoll_admission_decisions_total) == 19"))
        wait_for("their rates", lambda: len(self.cluster.query(
            "cluster_mode_decision:plimsoll_admission_decisions:rate5m > 0")) == len(DECISIONS))
        would_reject = self.settle("cluster_mode_enforced:plimsoll_admission_decisions:rate5m"
                                   '{mode="shadow",enforced="reject"}')
        self.assertGreater(would_reject, 0)
        wait_for("three in sixteen are unreachable", lambda: abs(self.value(
            "cluster:plimsoll_admission_unreachable:ratio_increase15m") - 3 / 16) < 0.01)

    def test_the_service_is_counted(self):
        wait_for("calls", lambda: self.cluster.query(
            "sum(job_face_method:plimsoll_requests:rate5m) > 0"))
        self.assertEqual(self.value('count(plimsoll_build_info{job="plimsoll"})'), 1)
        wait_for("no errors", lambda: self.cluster.query("job:plimsoll_errors:ratio_rate5m == 0"))

    def test_reports_are_counted_and_come_over_the_socket_alone(self):
        job = self.cluster.jobs[0]
        self.assertEqual(self.cluster.call("reportUsage", report(job, 1, "finished"))[0], 403)
        wait_for("the reports", lambda: self.cluster.query(
            "sum(plimsoll_usage_reports_total) == 4"))
        self.assertEqual(self.value('sum(plimsoll_usage_outcomes_total{verdict="fits",'
                                    'outcome="out-of-memory"})'), 1)
        self.assertEqual(self.value('sum(plimsoll_usage_within_bound_total{within_bound="true"})'), 2)
        wait_for("the alert of the wrong verdict", lambda: "PlimsollOutOfMemoryAlthoughFits" in
                 {labels["alertname"] for labels in self.cluster.firing()})
        medians = wait_for("medians", lambda: self.cluster.query(
            "job_framework:plimsoll_usage_actual_per_predicted:p50"))
        self.assertTrue(0.95 <= medians[0][1] <= 1.0, medians)

    def test_the_readme_names_every_metric(self):
        readme = (DEPLOY / "README.md").read_text()
        with urllib.request.urlopen(f"http://{self.cluster.server.address}/metrics") as page:
            texts = [page.read().decode(), self.cluster.jobs[0].textfile(),
                     self.cluster.ended[0].end_textfile(),
                     self.cluster.admission_textfile(self.cluster.decisions)]
        names = re.findall(r"^# TYPE (\w+)", "".join(texts), re.MULTILINE)
        self.assertGreater(len(names), 25)
        for name in names:
            with self.subTest(name):
                self.assertTrue(f"`{name}`" in readme or name.startswith("process_"))
        for name in re.findall(r"`(plimsoll_\w+)`", readme):
            with self.subTest(name):
                self.assertIn(name, names + ["plimsoll_admission"])

    def test_an_underestimate_raises_the_alert_of_its_job_alone(self):
        def underestimates():
            return {labels["hpc_job"] for labels in self.cluster.firing()
                    if labels["alertname"] == "PlimsollUnderestimate"}

        job = self.job(EXCEEDS)
        self.assertEqual(underestimates(), set())
        job.factor *= 1.02 * job.bound / (job.factor * job.expected) / 0.88  # above it at any dip
        wait_for("the alert", lambda: underestimates() == {EXCEEDS})

    def test_a_job_that_ends_leaves_the_ratios(self):
        ratio = f'hpc_job:plimsoll_actual_per_predicted:ratio{{hpc_job="{ENDS}"}}'
        job = self.job(ENDS)
        wait_for("its ratio", lambda: self.cluster.query(ratio))
        (self.cluster.textfiles / f"plimsoll_job_{ENDS}.prom").unlink()
        wait_for("its ratio ends", lambda: not self.cluster.query(ratio))
        self.cluster.write(f"plimsoll_job_{ENDS}.prom", job.textfile())
        wait_for("its ratio again", lambda: self.cluster.query(ratio))

    def test_every_query_of_every_dashboard_has_an_answer(self):
        count = 0
        for path in sorted((ROOT / "deploy/grafana/dashboards").glob("*.json")):
            dashboard = json.loads(path.read_text())
            for panel in dashboard["panels"]:
                for target in panel["targets"]:
                    expression = target["expr"]
                    for name, value in CHOSEN.items():
                        expression = expression.replace(name, value)
                    with self.subTest(path.name, panel=panel["title"]):
                        self.assertNotIn("$", expression)
                        wait_for(expression, lambda e=expression: self.cluster.query(e))
                        count += 1
        self.assertGreater(count, 50)

    def test_what_a_dashboard_lets_choose_exists(self):
        for path in sorted((ROOT / "deploy/grafana/dashboards").glob("*.json")):
            for variable in json.loads(path.read_text())["templating"]["list"][1:]:
                series = re.match(r"label_values\((.*), (\w+)\)", variable["definition"]).group(1)
                for name, value in CHOSEN.items():
                    series = series.replace(name, value)
                with self.subTest(path.name, variable=variable["name"]):
                    self.assertTrue(self.cluster.query(series))

    def page(self, name):
        return self.cluster.get(f"/consoles/{name}.html", job=STEADY, cluster="east")

    def test_every_query_of_every_page_has_an_answer(self):
        count = 0
        for name in PAGES:
            source = (DEPLOY / "consoles" / f"{name}.html").read_text()
            # A query with a condition asks whether there is something to show at all.
            fixed = [json.loads(f'"{text}"') for text in
                     re.findall(r'query "((?:[^"\\]|\\.)*)"', source)]
            charts = [html.unescape(text) for text in
                      re.findall(r'<data [^>]*value="([^"]*)"', self.page(name))]
            for expression in charts + [text for text in fixed if not re.search(r" (>|==) ", text)]:
                with self.subTest(name):
                    wait_for(expression, lambda e=expression: self.cluster.query(e))
                    count += 1
        self.assertGreater(count, 35)

    def becomes(self, expected, look):
        """Waits for what is looked at to be so: a scrape may fail on a busy machine."""
        try:
            wait_for(expected, lambda: look() == expected)
        except AssertionError:
            self.assertEqual(look(), expected)

    def row(self, page, job):
        """The cells of a job's row, as text."""
        row = re.search(rf'<tr>\s*<td><a href="plimsoll-job.html\?job={job}.*?</tr>', page, re.S)
        cells = re.findall(r"<td[^>]*>(.*?)</td>", row[0], re.S) if row else []
        return [" ".join(re.sub("<.*?>", " ", cell).split()) for cell in cells]

    def test_running_jobs_say_whose_they_are(self):
        for page in ("plimsoll", "plimsoll-headroom"):
            self.becomes([f"{STEADY} east", "mara", "h100", "olmo-7b 8 × h100-80gb-sxm"],
                         lambda p=page: self.row(self.page(p), STEADY)[:4])

    def test_jobs_that_have_ended_stay_with_their_outcome(self):
        def ended(span):
            page = self.cluster.get("/consoles/plimsoll.html", range=span)
            return page[page.index('id="ended"'):page.index("<footer>")]

        self.becomes([row[0] for row in sorted(ENDED, key=lambda row: row[9])],
                     lambda: re.findall(r"html\?job=(\d+)", ended("1h")))
        page = ended("1h")
        cells = self.row(page, FULL)
        self.assertEqual(cells[:4], [f"{FULL} east", "jonas", "h100", "qwen3-8b 4 × h100-80gb-sxm"])
        self.assertTrue(cells[4].endswith("UTC after 50m 0s"), cells[4])
        self.assertEqual(cells[5], "out of memory failed")
        used, expected, bound = map(float, cells[7:10])
        self.assertTrue(expected < bound < used)
        self.assertEqual(cells[11], f"{100 * used / expected:.0f} %")
        self.assertEqual(self.row(page, UNKNOWN)[5], "–")
        self.assertEqual(ended("1h]) or vector(1)"), ended("6h"))

    def test_a_jobs_page_is_of_its_time(self):
        wait_for("it runs", lambda: "still runs" in self.page("plimsoll-job"))
        for job in (self.job(STEADY), *self.cluster.ended):
            page = self.cluster.get("/consoles/plimsoll-job.html", job=job.id, cluster="east")
            begin, end = map(int, re.search(r'data-begin="(\d+)" data-end="(\d+)"', page).groups())
            with self.subTest(job.id):
                self.assertAlmostEqual(begin, job.begin, delta=1)
                # Where nobody said when it ended: when it was seen last, of a past that is
                # filled in without ends at most five minutes late.
                self.assertAlmostEqual(end, min(job.end, time.time()),
                                       delta=3 if job.id != UNKNOWN else 300 + STEP)
                self.assertIn(f"user <b>{job.user}</b>", page)
                self.assertEqual("still runs" in page, job.id == STEADY)
                self.assertEqual(page.count('<b class="none">'), 0)

    def test_a_page_treats_what_it_is_asked_as_text(self):
        """Neither a script nor another query comes of a job's id in the address."""
        asked = '"} or vector(1) or x{a="<script>alert(1)</script>'
        page = self.cluster.get("/consoles/plimsoll-job.html", job=asked)
        self.assertEqual(page.count("<script>alert"), 0)
        self.assertEqual(page.count('<b class="none">no data</b>'), 5)

    def figures(self, address):
        """The pages of a Prometheus: each tile's class and text, by what it is."""
        found = {}
        for name in PAGES:
            with urllib.request.urlopen(f"http://{address}/consoles/{name}.html") as answer:
                page = answer.read().decode()
            self.assertNotRegex(page.partition("<main>")[2].partition("<script>")[0], "NaN|Inf|%!")
            self.assertEqual(re.findall('(?:src|href)="(?:/|http)', page), [])
            tiles = re.findall(
                r'<div class="tile ?(\w*)"><b[^>]*>(.*?)</b><span>(.*?)</span>', page)
            self.assertEqual(len(tiles), len(re.findall(r'<div class="tile[ "]', page)))
            found[name] = {text: (kind, value) for kind, value, text in tiles}
            self.assertGreaterEqual(len(found[name]), 4)
        return found

    def test_pages_of_a_prometheus_that_watches_nothing_yet(self):
        """Behind a prefix, as many run. No figure is made up."""
        empty = self.cluster.start_prometheus(False, "--web.external-url=http://host/prometheus")
        figures = self.figures(f"{empty.address}/prometheus")
        self.assertLessEqual({figure for page in figures.values() for figure in page.values()},
                             {("", "no data"), ("bad", "0")})

    def test_pages_of_a_cluster_that_has_done_nothing_yet(self):
        """Every counter is 0, as slurmctld begins: what is none is 0, a share of none no data."""
        idle = WatchedCluster([], None, [])
        self.addCleanup(idle.stop)
        idle.write("plimsoll_admission.prom", idle.admission_textfile({}))
        idle.player.idle = 2
        idle.start_prometheus()
        for expression in ("sum(up) == 3", "cluster:dcgm_jobs:count",
                           "cluster_cause:plimsoll_admission_decisions:rate5m"):
            wait_for(expression, lambda e=expression: idle.query(e))
        no_data = ("", "no data")
        self.becomes({
            "jobs that run on GPUs": ("", "0"), "of these predicted": ("", "0"),
            "median of used / expected": no_data, "jobs above their bound": ("good", "0"),
            "GPU-hours of idle memory in a day": no_data},
                     lambda: self.figures(idle.prometheus.address)["plimsoll"])
        figures = self.figures(idle.prometheus.address)
        self.assertEqual(figures["plimsoll-admission"], {
            "submissions in a day": ("", "0"), "of those that asked were resized": no_data,
            "of those that asked were rejected": no_data, "got no answer in time": no_data,
            "missed their budget in a day": ("", "0"),
            "added to a submission, mean of 5 minutes": no_data,
            "circuit breakers open": ("good", "0")})
        with urllib.request.urlopen(
                f"http://{idle.prometheus.address}/consoles/plimsoll-admission.html") as answer:
            self.assertEqual(answer.read().decode().count(">No submission in a day.<"), 3)
        self.assertEqual({figure for figure in figures["plimsoll-accuracy"].values()}, {no_data})
        self.assertEqual(figures["plimsoll-service"]["servers up"], ("good", "1"))

    def test_one_resize_is_one(self):
        """A counter that begins at 0 shows its first count."""
        def done(mode):
            page = self.cluster.get("/consoles/plimsoll-admission.html")
            table = re.search(r'<table id="done">.*?</table>', page, re.S)[0]
            row = re.search(rf"<td>{mode}</td>(.*?)</tr>", table, re.S)
            return row and re.findall(r">(\d+)<", row[1])

        wait_for("one resize", lambda: done("enforce") == ["3", "0", "1", "3"])
        self.assertEqual(done("unknown"), None)

    def test_pages_render_in_a_browser(self):
        keep = os.environ.get("KEEP")
        wait_for("rates", lambda: self.cluster.query("job:plimsoll_errors:ratio_rate5m >= 0"))
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            doms = dict(zip(PAGES, pool.map(self.open, PAGES)))
            if keep:
                list(pool.map(lambda name: self.open(
                    name, f"--screenshot={pathlib.Path(keep).absolute() / name}.png"), PAGES))
        charts = 0
        for name, dom in doms.items():
            with self.subTest(name):
                self.assertRegex(dom[:300], "<title>.+ · Plimsoll</title>")
                for complaint in ("Prometheus says", "No data in this range"):
                    self.assertEqual(dom.count(complaint), 0, complaint)
                here = dom.count('class="card chart"')
                self.assertEqual(dom.count('data-drawn="1"'), here)
                self.assertGreaterEqual(dom.count('class="line"'), here)
                charts += here
        self.assertEqual(charts, 8)
        self.assertEqual(len(re.findall(r">node\d+ GPU \d<", doms["plimsoll-job"])),
                         self.job(STEADY).gpu_count)
        times = re.findall(r"<time [^>]*>(.*?)</time>", doms["plimsoll"])
        self.assertGreaterEqual(len(times), len(ENDED))
        for text in times:
            self.assertRegex(text, r"^(\d\d\.\d\d\. )?\d\d:\d\d$")

    def test_each_job_has_a_bar(self):
        """As wide as what it may use."""
        self.becomes(
            sorted(round(job.usable / 2**30, 2) for job in self.cluster.jobs + self.cluster.ended),
            lambda: sorted(map(float, re.findall(
                r'<svg class="hull" [^>]*viewBox="0 0 ([\d.]+) 1"><rect class="used[^>]* '
                r'width="[\d.]+"', self.page("plimsoll")))))

    def open(self, name, *flags):
        """The page as the browser has it once its charts are drawn, without its script."""
        with tempfile.TemporaryDirectory() as profile:
            dom = subprocess.run(
                [self.browser, "--headless", "--no-sandbox", "--disable-gpu",
                 "--disable-dev-shm-usage", "--hide-scrollbars", "--window-size=1280,1150",
                 f"--user-data-dir={profile}", "--virtual-time-budget=20000",
                 *(flags or ["--dump-dom"]),
                 f"http://{self.cluster.prometheus.address}/consoles/{name}.html"
                 f"?job={STEADY}&cluster=east&range=1h"],
                capture_output=True, text=True, timeout=120, check=True).stdout
        return re.sub("<script>.*</script>", "", dom, flags=re.DOTALL)


if __name__ == "__main__":
    unittest.main()
