"""Rows of phantom.py's sets as a real GPU ran them, by phantom/card.py: `card` rows.

Torch's collectives are its `fake` backend's where there is more than one rank, so NCCL's own memory
is missing; of allocated and reserved memory nothing is. `phantom_value` is what a phantom of the
same versions held.
"""

import phantom

FAMILIES = ("card",)

features_of = phantom.features_of
request_of = phantom.request_of
predict = phantom.predict


def sets_of(row):
    return [f"card {row.text('what_is_measured')}"]
