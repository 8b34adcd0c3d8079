"""Rows of phantom.py's sets as a real GPU ran them, by phantom/card.py: `card` rows.

Torch's collectives are its `fake` backend's where there is more than one rank, so NCCL's own memory
is missing; of allocated and reserved memory nothing is. `phantom_value` is what a phantom of the
same versions held.
"""

import phantom

FAMILIES = ("card",)

features_of = phantom.features_of
predict = phantom.predict


def request_of(row):
    request = phantom.request_of(row)
    request["job"]["cluster"]["gpu"] = row.text("gpu")
    return request


def sets_of(row):
    return [f"card {row.text('what_is_measured')}"]
