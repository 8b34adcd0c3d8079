#!/usr/bin/env python3
"""Writes Grafana's dashboards of Plimsoll into dashboards/.

    deploy/grafana/dashboards.py            writes them
    deploy/grafana/dashboards.py --check    fails where a file is not what this writes
"""

import json
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent / "dashboards"
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
LINKS = [{"type": "dashboards", "tags": ["plimsoll"], "title": "Plimsoll", "asDropdown": False,
          "includeVars": True, "keepTime": True, "icon": "external link", "url": ""}]

# What names the servers, the scheduler's hosts, and the jobs.
SERVER = 'job=~"$job",instance=~"$instance"'
CLUSTER = 'cluster=~"$cluster"'
JOB = CLUSTER + ',hpc_job=~"$hpc_job"'
RATE = "[$__rate_interval]"
RATIO = "hpc_job:plimsoll_settled_actual_per_predicted:ratio"
DECISIONS = "plimsoll_admission_decisions_total{" + SERVER + "," + CLUSTER


def variable(name, label, source):
    """A choice of a label's values. Jobs and instances are on all that is scraped; the choice
    of all clusters also matches series without the label."""
    query = f"label_values({source}, {name})"
    return {"name": name, "label": label, "type": "query", "datasource": DATASOURCE,
            "query": {"query": query, "refId": name}, "definition": query, "refresh": 2, "sort": 3,
            "multi": True, "includeAll": True, "current": {
                "text": "All", "value": "$__all"},
            "allValue": ".+" if name in ("job", "instance") else ".*"}


def variables(*chosen):
    return [{"name": "datasource", "label": "Data source", "type": "datasource",
             "query": "prometheus", "current": {}, "regex": "", "hide": 0}, *chosen]


def panel(kind, title, description, unit, targets, width=12, height=8, **more):
    """targets: (expression, legend) each. more: defaults, options, steps (value, colour)."""
    defaults = {"unit": unit, "color": {"mode": more.get("color", "palette-classic")}}
    if kind in ("stat", "bargauge"):
        defaults.update(noValue="no data", mappings=[{"type": "special", "options": {
            "match": "nan", "result": {"text": "no data"}}}])
    defaults.update(more.get("defaults", {}))
    if "steps" in more:
        defaults["thresholds"] = {"mode": "absolute", "steps": [
            {"value": value, "color": color} for value, color in more["steps"]]}
        if kind != "timeseries":
            defaults["color"] = {"mode": "thresholds"}
    if kind == "timeseries":
        defaults["custom"] = {"fillOpacity": 8, "lineWidth": 2, "showPoints": "never",
                              "spanNulls": False, **more.get("custom", {})}
    instant = kind in ("stat", "table", "bargauge")
    return {"type": kind, "title": title, "description": description, "datasource": DATASOURCE,
            "size": (width, height), "fieldConfig": {"defaults": defaults,
                                                     "overrides": more.get("overrides", [])},
            "options": more.get("options", {}),
            "transformations": more.get("transformations", []),
            "targets": [{"refId": chr(65 + i), "datasource": DATASOURCE, "expr": expression,
                         "legendFormat": legend, "instant": instant, "range": not instant,
                         "format": "table" if kind == "table" else
                                   "heatmap" if kind == "heatmap" else "time_series"}
                        for i, (expression, legend) in enumerate(targets)]}


def stat(title, description, unit, expression, **more):
    options = {"colorMode": "value" if "steps" in more else "none", "graphMode": "none",
               "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
    return panel("stat", title, description, unit, [(expression, "")], more.pop("width", 6), 4,
                 options=options, **more)


def lines(title, description, unit, *targets, **more):
    options = {"legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull"]},
               "tooltip": {"mode": "multi", "sort": "desc"}}
    return panel("timeseries", title, description, unit, targets, options=options, **more)


def bars(title, description, unit, *targets, **more):
    options = {"orientation": "horizontal", "displayMode": "basic", "valueMode": "text",
               "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
    return panel("bargauge", title, description, unit, targets, options=options, **more)


def table(title, description, unit, columns, key, **more):
    """One row for each value of the label `key`; columns: (name, expression). A column
    without a name is there for its labels."""
    keep = {"Time": True}
    keep.update({"Value #" + chr(65 + i): True for i, (name, _) in enumerate(columns) if not name})
    names = {key: more.pop("key_name", key)}
    names.update({"Value #" + chr(65 + i): name for i, (name, _) in enumerate(columns) if name})
    return panel("table", title, description, unit, [(expression, "") for _, expression in columns],
                 transformations=[{"id": "merge", "options": {}},
                                  {"id": "organize", "options": {"excludeByName": keep,
                                                                 "renameByName": names}}], **more)


STACKED = {"stacking": {"mode": "normal", "group": "A"}, "fillOpacity": 40, "lineWidth": 1}
DASHED = {"matcher": {"id": "byRegexp", "options": "expected|upper bound|usable"}, "properties": [
    {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 6]}},
    {"id": "custom.fillOpacity", "value": 0}]}
PERCENT = {"matcher": {"id": "byRegexp", "options": "used / .*"}, "properties": [
    {"id": "unit", "value": "percentunit"}, {"id": "custom.cellOptions", "value": {
        "type": "gauge", "mode": "basic"}}, {"id": "min", "value": 0}, {"id": "max", "value": 1.2}]}
COUNTED = {"matcher": {"id": "byName", "options": "GPUs"},
           "properties": [{"id": "unit", "value": "short"}]}
LAST = "last_over_time(%s[$__range])"
ENDED = f"hpc_job:plimsoll_job_end_time_seconds:max{{{JOB}}}"
SEEN = f"hpc_job:plimsoll_job_seen_time_seconds:max{{{JOB}}}"
RUNS = "hpc_job:plimsoll_job_start_time_seconds:min"
MOMENT = {"matcher": {"id": "byName", "options": "ended"},
          "properties": [{"id": "unit", "value": "dateTimeAsIso"}]}
ROW = "max by (cluster, hpc_job) (%s)"


def of_jobs(query=ROW):
    """Columns of a job, under `query`; the first brings whose it is."""
    figure = "hpc_job:plimsoll_job_predicted_gpu_memory_bytes:max{" + JOB + ',figure="%s"}'
    ratio = "hpc_job:plimsoll_actual_per_predicted:ratio{" + JOB + ',figure="%s"}'
    return [
        ("", query.replace("hpc_job)", "hpc_job, user, partition, model, gpu)", 1)
         % f"hpc_job:plimsoll_job_info:max{{{JOB}}}"),
        ("GPUs", query % f"hpc_job:plimsoll_job_gpu_count:max{{{JOB}}}"),
        ("used", query % f"hpc_job:dcgm_fb_used_bytes:max1d{{{JOB}}}"),
        ("expected", query % (figure % "expected")), ("upper bound", query % (figure % "bound")),
        ("usable", query % f"hpc_job:plimsoll_job_gpu_memory_usable_bytes:max{{{JOB}}}"),
        ("used / expected", query % (ratio % "expected")),
        ("used / bound", query % (ratio % "bound"))]


def jobs():
    return dashboard("plimsoll-jobs", "Plimsoll / Jobs: predicted against actual",
                     "The peak of each running job against what it was admitted with.", variables(
        variable("cluster", "Cluster", "hpc_job:dcgm_fb_used_bytes:max"),
        variable("hpc_job", "Job", f"hpc_job:dcgm_fb_used_bytes:max{{{CLUSTER}}}")), [
        stat("Running jobs", "Jobs that DCGM sees on GPUs.", "short",
             f"sum(cluster:dcgm_jobs:count{{{CLUSTER}}})"),
        stat("Predicted jobs", "Running jobs that have a prediction and a measured peak.", "short",
             f'count(hpc_job:plimsoll_actual_per_predicted:ratio{{{CLUSTER},figure="bound"}})'),
        stat("Above their upper bound", "Running jobs that used more than the bound that they were "
             "admitted with.", "short", f'sum(hpc_job:plimsoll_actual_per_predicted:ratio{{{CLUSTER}'
             ',figure="bound"} > bool 1)', steps=[(None, "green"), (1, "red")]),
        stat("Used / expected", "Median over the running jobs, once they have settled.",
             "percentunit", f'quantile(0.5, {RATIO}{{{CLUSTER},figure="expected"}})'),
        table("Running jobs", "The fullest GPU of each, nearest to its bound first.", "bytes",
              of_jobs(), "hpc_job", key_name="job", width=24, height=11,
              overrides=[PERCENT, COUNTED], steps=[(None, "blue"), (1, "red")],
              options={"sortBy": [{"displayName": "used / bound", "desc": True}]}),
        table("Jobs that have ended", "In the chosen time, the latest first. The outcome is what "
              "the controller's epilog says of it.", "bytes", [
                  ("ended", f"1000 * (max by (cluster, hpc_job, outcome, state) ({LAST % ENDED})"
                   f" or on (cluster, hpc_job) ({ROW % (LAST % SEEN)} < time() - 180))"
                   f" unless on (cluster, hpc_job) {RUNS}"),
                  *of_jobs(f"{ROW % LAST} unless on (cluster, hpc_job) {RUNS}")],
              "hpc_job", key_name="job", width=24, height=9,
              overrides=[PERCENT, COUNTED, MOMENT], steps=[(None, "blue"), (1, "red")],
              options={"sortBy": [{"displayName": "ended", "desc": True}]}),
        lines("Memory of each GPU", "What DCGM shows of the chosen jobs, under the lines they were "
              "admitted with.", "bytes",
              ("max by (hpc_job, hostname, gpu) "
               f"(DCGM_FI_DEV_FB_USED{{{JOB},hpc_job!=\"\"}}) * 1048576",
               "{{hpc_job}} {{hostname}} GPU {{gpu}}"),
              ("max by (hpc_job) (hpc_job:plimsoll_job_predicted_gpu_memory_bytes:max"
               f'{{{JOB},figure="expected"}})', "{{hpc_job}} expected"),
              ("max by (hpc_job) (hpc_job:plimsoll_job_predicted_gpu_memory_bytes:max"
               f'{{{JOB},figure="bound"}})', "{{hpc_job}} upper bound"),
              ("max by (hpc_job) (hpc_job:plimsoll_job_gpu_memory_usable_bytes:max"
               f"{{{JOB}}})", "{{hpc_job}} usable"),
              width=24, height=10, overrides=[DASHED], defaults={"min": 0}),
    ])


def accuracy():
    quantile = "cluster_figure:plimsoll_actual_per_predicted:quantile"
    return dashboard("plimsoll-accuracy", "Plimsoll / Accuracy",
                     "How what jobs use is spread around what was predicted.", variables(
        variable("cluster", "Cluster", "hpc_job:dcgm_fb_used_bytes:max"),
        variable("job", "Job", "plimsoll_build_info"),
        variable("instance", "Instance", 'plimsoll_build_info{job=~"$job"}')), [
        stat("Median of used / expected", "Over the running jobs, once they have settled.",
             "percentunit", f'quantile(0.5, {RATIO}{{{CLUSTER},figure="expected"}})'),
        stat("Within a tenth", "Share of the running jobs that use 90 to 110 % of what was "
             "expected.", "percentunit", f"avg(cluster:plimsoll_jobs_within_tenth:ratio{{{CLUSTER}}})"),
        stat("Above the bound", "Share of the running jobs; one in a hundred is as promised.",
             "percentunit", f"avg(cluster:plimsoll_jobs_above_bound:ratio{{{CLUSTER}}})",
             steps=[(None, "green"), (0.02, "orange"), (0.05, "red")]),
        stat("Reports under the bound", "Of the jobs that finished and reported in seven days.",
             "percentunit", 'avg(job:plimsoll_usage_within_bound:ratio_increase7d{job=~"$job"})'),
        lines("Used / expected over the running jobs", "Half of the jobs lie under the median, nine "
              "in ten between the other two. Above 100 % is an underestimate.", "percentunit",
              (f'max({quantile}{{{CLUSTER},figure="expected",quantile="0.95"}})', "95th percentile"),
              (f'avg({quantile}{{{CLUSTER},figure="expected",quantile="0.5"}})', "median"),
              (f'min({quantile}{{{CLUSTER},figure="expected",quantile="0.05"}})', "5th percentile"),
              width=24, height=10, custom={"thresholdsStyle": {"mode": "line"}},
              steps=[(None, "green"), (1, "red")]),
        panel("heatmap", "Reports by used / expected", "Each finished job that reported, in the "
              "histogram's buckets.", "short", [
                  ("sum by (le) (increase(plimsoll_usage_actual_per_predicted_bucket"
                   f"{{{SERVER}}}{RATE}))", "{{le}}")],
              options={"calculate": False, "yAxis": {"unit": "percentunit"}}),
        bars("Median by framework", "Of the jobs that reported since the servers began.",
             "percentunit", ('max by (framework) (job_framework:plimsoll_usage_actual_per_predicted:'
                             'p50{job=~"$job"})', "{{framework}}"),
             steps=[(None, "blue"), (1.1, "orange")]),
        bars("How jobs ended, by verdict", "Reports of seven days. A job that fits and runs out of "
             "memory is a wrong answer.", "short",
             ("sum by (verdict, outcome) (job_verdict_outcome:plimsoll_usage_outcomes:increase7d"
              '{job=~"$job"})', "{{verdict}}: {{outcome}}"), width=24),
    ])


def headroom():
    idle = f"cluster:plimsoll_headroom_gpus:sum{{{CLUSTER}}}"
    return dashboard("plimsoll-headroom", "Plimsoll / Headroom",
                     "Memory that jobs have and do not use, in whole GPUs.", variables(
        variable("cluster", "Cluster", "hpc_job:dcgm_fb_used_bytes:max")), [
        stat("Idle now", "Half of the memory of two GPUs is one GPU.", "short", f"sum({idle})"),
        stat("Share idle", "Of the memory of the predicted jobs.", "percentunit",
             f"avg(cluster:plimsoll_headroom_gpus:ratio{{{CLUSTER}}})"),
        stat("GPU-hours in a day", "Idle memory of the last 24 hours.", "short",
             f"sum(cluster:plimsoll_headroom_gpu_hours:sum1d{{{CLUSTER}}})"),
        stat("GPU-hours in the chosen time", "Idle memory over what the dashboard shows.", "short",
             f"sum(sum_over_time({idle}[$__range:1m])) / 60"),
        lines("Idle memory, in GPUs", "Against the GPUs that the predicted jobs hold.", "short",
              (f"sum({idle} / cluster:plimsoll_headroom_gpus:ratio{{{CLUSTER}}})", "GPUs held"),
              (f"sum({idle})", "idle"), width=24, defaults={"min": 0}),
        bars("Where it is", "The jobs that leave the most: candidates for fewer GPUs, a longer "
             "sequence or a larger micro-batch.", "short",
             (f"topk(15, hpc_job:plimsoll_headroom_gpus:sum{{{CLUSTER}}})",
              "{{cluster}} {{hpc_job}}"), width=24, height=12),
    ])


def admission():
    asked = DECISIONS + ',cause!="not-asked"}'

    def made(by):
        """Decisions a minute, of the kinds that there were in the chosen time."""
        return (f"60 * sum by ({by}) (rate({DECISIONS}}}{RATE}))"
                f" and sum by ({by}) (increase({DECISIONS}}}[$__range])) > 0")

    return dashboard("plimsoll-admission", "Plimsoll / Admission",
                     "What was done with submissions, and what mode enforce would have done.",
                     variables(
        variable("cluster", "Cluster", "plimsoll_admission_decisions_total"),
        variable("job", "Job", "plimsoll_admission_decisions_total"),
        variable("instance", "Instance", 'plimsoll_admission_decisions_total{job=~"$job"}')), [
        stat("Submissions", "In the chosen time.", "short",
             f"sum(increase({DECISIONS}}}[$__range]))", width=5),
        stat("Decided without an answer", "Of the submissions that asked, in a quarter of an hour.",
             "percentunit",
             f"max(cluster:plimsoll_admission_unreachable:ratio_increase15m{{{CLUSTER}}})", width=5,
             steps=[(None, "green"), (0.01, "orange"), (0.05, "red")]),
        stat("Budget missed", "Submissions of the chosen time that were not judged, or whose search "
             "was cut short, within their budget.", "short",
             f"sum(increase(plimsoll_admission_budget_missed_total{{{SERVER},{CLUSTER}}}[$__range]))",
             width=5, steps=[(None, "green"), (1, "orange")]),
        stat("Added to a submission", "Mean of five minutes; the budget is 100 ms.", "s",
             f"max(cluster:plimsoll_admission_seconds:mean5m{{{CLUSTER}}})", width=5,
             steps=[(None, "green"), (0.05, "orange"), (0.1, "red")]),
        stat("Breakers open", "Schedulers that have stopped asking, after failures in a row.",
             "short", f"sum(plimsoll_admission_breaker_open{{{SERVER},{CLUSTER}}})", width=4,
             steps=[(None, "green"), (1, "red")]),
        lines("Decisions by mode", "What was done with submissions, a minute.", "short",
              (made("mode, decision"), "{{mode}}: {{decision}}"),
              custom=STACKED),
        lines("What mode enforce would do", "The same submissions. Look here before a partition is "
              "moved to enforce.", "short",
              (made("mode, enforced"), "{{mode}}: {{enforced}}"),
              custom=STACKED),
        bars("Why", "What the decisions of the chosen time rest on.", "short",
             (f"sum by (cause) (increase({DECISIONS}}}[$__range])) > 0", "{{cause}}")),
        lines("Rejected, resized, warned", "Shares of the submissions that asked.", "percentunit",
              (f"sum by (decision) (rate({asked}{RATE})) / on () group_left () "
               f"(sum(rate({asked}{RATE})) > 0)", "{{decision}}")),
    ])


def service():
    rpc = f'{SERVER},grpc_service="plimsoll.v1.PlannerService"'
    http = f'{SERVER},handler=~"/v1:.+"'
    return dashboard("plimsoll-service", "Plimsoll / Service",
                     "The servers that answer: how many calls, how fast, how many failed.", variables(
        variable("job", "Job", "plimsoll_build_info"),
        variable("instance", "Instance", 'plimsoll_build_info{job=~"$job"}')), [
        stat("Servers up", "Targets of the job that answer.", "short", f"sum(up{{{SERVER}}})"),
        stat("Failed", "Share of the calls of five minutes that failed by the server's fault.",
             "percentunit", 'max(job:plimsoll_errors:ratio_rate5m{job=~"$job"})',
             steps=[(None, "green"), (0.01, "orange"), (0.05, "red")]),
        stat("99th percentile of an estimate", "A scheduler waits 100 ms.", "s",
             'max(job_face_method:plimsoll_request_seconds:p99_rate5m{job=~"$job",'
             'method=~"[Ee]stimateMemory"})',
             steps=[(None, "green"), (0.05, "orange"), (0.1, "red")]),
        stat("Refused for load", "Calls and searches a second.", "reqps",
             'sum(job:plimsoll_requests_shed:rate5m{job=~"$job"})',
             steps=[(None, "green"), (0.001, "orange")]),
        lines("Calls over gRPC", "By method and status code.", "reqps",
              (f"sum by (grpc_method, grpc_code) (rate(grpc_server_handled_total{{{rpc}}}{RATE})) > 0"
               f" or sum(rate(grpc_server_handled_total{{{rpc}}}{RATE}))",
               "{{grpc_method}} {{grpc_code}}")),
        lines("Calls over HTTP", "By method and status code; pages and probes are left out.", "reqps",
              (f"sum by (handler, code) (rate(http_requests_total{{{http}}}{RATE})) > 0"
               f" or sum(rate(http_requests_total{{{http}}}{RATE}))", "{{handler}} {{code}}")),
        lines("Time to answer, 99th percentile", "By face and method.", "s",
              ('max by (face, method) (job_face_method:plimsoll_request_seconds:p99_rate5m'
               '{job=~"$job"})', "{{face}} {{method}}"),
              custom={"thresholdsStyle": {"mode": "line"}}, steps=[(None, "green"), (0.1, "red")]),
        panel("heatmap", "Time to answer an estimate over HTTP", "All servers together.", "short", [
            ("sum by (le) (increase(http_request_duration_seconds_bucket"
             f'{{{SERVER},handler="/v1:estimateMemory"}}{RATE}))', "{{le}}")],
              options={"calculate": False, "yAxis": {"unit": "s"}}),
        lines("Verdicts", "Jobs estimated a second; those of batches count one by one.", "reqps",
              (f"sum by (verdict) (rate(plimsoll_estimates_total{{{SERVER}}}{RATE}))", "{{verdict}}"),
              custom=STACKED),
        lines("Searches", "By how they ended.", "reqps",
              (f"sum by (outcome) (rate(plimsoll_searches_total{{{SERVER}}}{RATE}))", "{{outcome}}"),
              custom=STACKED),
        lines("In flight", "Calls being answered, searches running and waiting.", "short",
              (f"sum(plimsoll_inflight_requests{{{SERVER}}})", "calls"),
              (f"sum by (state) (plimsoll_searches_in_progress{{{SERVER}}})", "searches {{state}}")),
        lines("Resident memory", "Of each server.", "bytes",
              (f"process_resident_memory_bytes{{{SERVER}}}", "{{instance}}"), defaults={"min": 0}),
        table("Versions", "What runs where. Two estimators side by side answer differently.", "short",
              [("up", "max by (instance, version, estimator_version) "
                f"(plimsoll_build_info{{{SERVER}}})")],
              "instance", width=24, height=6),
    ])


def dashboard(uid, title, description, chosen, panels):
    """Panels flow from left to right in rows of 24 columns."""
    x = y = tallest = 0
    for number, one in enumerate(panels, 1):
        width, height = one.pop("size")
        if x + width > 24:
            x, y, tallest = 0, y + tallest, 0
        one.update(id=number, gridPos={"x": x, "y": y, "w": width, "h": height})
        x, tallest = x + width, max(tallest, height)
    return {"uid": uid, "title": title, "description": description, "tags": ["plimsoll"],
            "schemaVersion": 39, "version": 1, "editable": False, "graphTooltip": 1,
            "timezone": "browser", "time": {"from": "now-6h", "to": "now"}, "refresh": "1m",
            "links": LINKS, "annotations": {"list": []}, "templating": {"list": chosen},
            "panels": panels}


def main():
    check = sys.argv[1:] == ["--check"]
    stale = []
    for content in (jobs(), accuracy(), headroom(), admission(), service()):
        path = FOLDER / (content["uid"] + ".json")
        text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        if not check:
            FOLDER.mkdir(exist_ok=True)
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(path.name)
    if stale:
        sys.exit("not as dashboards.py writes them: " + ", ".join(stale))


if __name__ == "__main__":
    main()
