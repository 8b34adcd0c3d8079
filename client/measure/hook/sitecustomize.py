"""Loaded by every Python of `plimsoll measure`, before anything else: PYTHONPATH begins here.

Hands over to the sitecustomize that the user has, if any, then to plimsoll_measure.
"""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _load_own_of_the_user():
    others = [path for path in sys.path if os.path.abspath(path or os.curdir) != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


_load_own_of_the_user()
if os.environ.get("PLIMSOLL_MEASURE_RESULTS"):
    import plimsoll_measure

    plimsoll_measure.install()
