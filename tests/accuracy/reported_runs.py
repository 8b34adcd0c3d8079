"""Jobs of a site's cluster, as `plimsoll report --rows` writes them: a row carries its whole job,
and the peak of the fullest GPU over the whole run."""

import json

import measured
from measured import Prediction, Refused

FAMILIES = ("reported",)
# Below these the API has no numbers: what looks like one is text.
TEXTS = ("hf_config", "versions", "name")


def sets_of(row):
    return [f"reported {row.text('what_is_measured')}"]


def features_of(row):
    return {
        "source": row.note(r"source=([a-z-]+)"),
        "framework": row.text("framework"),
        "gpu": row.text("gpu"),
    }


def request_of(row):
    if not row.text("job"):
        raise Refused("the row has no job")
    try:
        job = _with_numbers(json.loads(row.text("job")))
    except json.JSONDecodeError:
        raise Refused("the row's job is not JSON") from None
    if job.get("cluster", {}).get("gpu"):
        job["cluster"]["gpu"] = row.text("gpu")  # the id, where the job has a cluster's own name
    return {"job": job}


def predict(row, answer):
    gauge = row.text("what_is_measured")
    rank = max(answer["ranks"], key=lambda rank: int(rank[gauge]["expected_bytes"]))
    return Prediction(*measured.gauge(rank, gauge), measured.debug_extra(rank), gauge)


def _with_numbers(value):
    """The value with the integers that ProtoJSON has as text."""
    if isinstance(value, list):
        return [_with_numbers(item) for item in value]
    if isinstance(value, dict):
        return {name: below if name in TEXTS else _with_numbers(below) for name, below in value.items()}
    if isinstance(value, str) and value.removeprefix("-").isdecimal():
        return int(value)
    return value
