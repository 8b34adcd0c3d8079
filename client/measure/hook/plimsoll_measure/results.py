"""The file that a process leaves for `plimsoll measure` to read."""

import json
import os


def write(values):
    folder = os.environ["PLIMSOLL_MEASURE_RESULTS"]
    path = os.path.join(folder, f"{os.getpid()}.json")
    with open(path + ".part", "w", encoding="utf-8") as file:
        json.dump(values, file)
    os.replace(path + ".part", path)


def refuse(reason):
    """Says why the phantom cannot run this, and ends the process."""
    write({"refused": reason})
    os._exit(2)
