"""A site's own runs, as measure/measure.py writes them: a row carries its whole job."""

import json

import measured
from measured import Prediction, Refused

FAMILIES = ("measured",)
# What a gauge is called in the answer's moments, at a step's peak and at its end.
PEAKS = {"allocated": "peak_allocated_bytes", "reserved": "peak_reserved_bytes"}
ENDS = {"allocated": "current_allocated_bytes", "reserved": "current_reserved_bytes"}


def sets_of(row):
    return [f"measured {row.text('what_is_measured')}"]


def features_of(row):
    return {"moment": _moment(row), "framework": row.text("framework"), "gpu": row.text("gpu")}


def request_of(row):
    if not row.text("job"):
        raise Refused("the row has no job")
    try:
        return {"job": json.loads(row.text("job"))}
    except json.JSONDecodeError:
        raise Refused("the row's job is not JSON") from None


def predict(row, answer):
    rank = measured.stage_of(answer, 0)
    extra = measured.debug_extra(rank)
    gauge = row.text("what_is_measured")
    if gauge == "device":
        return Prediction(*measured.gauge(rank, gauge), extra, gauge)
    moment = _moment(row)
    if moment == "end of step":
        expected = measured.moments_peak(rank, {"PHASE_END_OF_STEP"}, False, ENDS[gauge])
    else:
        expected = measured.moments_peak(rank, None, moment == "first step", PEAKS[gauge])
    return Prediction(expected, measured.scaled_bound(rank, gauge, expected), extra, gauge)


def _moment(row):
    return row.note(r"moment=([a-z ]+)")
