"""What is alive at a peak, by the line of Python that made it.

The allocator records each allocation with its stack. From what is alive at the end of a step the
record is played backwards, to the moment of most bytes.
"""

import collections
import os

ENTRIES = 2_000_000  # of one step; what is older is dropped
GROUPS = 50
NO_LINE = "the backward pass, in C++"
_HERE = os.path.dirname(os.path.abspath(__file__))


def record(torch):
    """Begins anew; what is alive keeps its stacks."""
    torch.cuda.memory._record_memory_history(
        "all", context="alloc", stacks="python", max_entries=ENTRIES, clear_history=True)


def at_peak(torch, step):
    snapshot = torch.cuda.memory._snapshot()
    blocks, most = _blocks(snapshot), []
    total = best = sum(block["size"] for block in blocks.values())
    peak = dict(blocks)
    trace = snapshot["device_traces"][0] if snapshot["device_traces"] else []
    changes = [entry for entry in trace if entry["action"] in ("alloc", "free_completed")]
    for position in range(len(changes) - 1, -1, -1):
        entry = changes[position]
        total += entry["size"] if entry["action"] == "free_completed" else -entry["size"]
        if total > best:
            best, most = total, changes[position:]
    for entry in reversed(most):
        if entry["action"] == "free_completed":
            peak[entry["addr"]] = entry
        else:
            peak.pop(entry["addr"], None)
    return _grouped(peak.values(), torch, step)


def now(torch, step):
    return _grouped(_blocks(torch.cuda.memory._snapshot()).values(), torch, step)


def _blocks(snapshot):
    """Those that are alive, as entries of the record are: bytes as they were asked for."""
    found = {}
    for segment in snapshot["segments"]:
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                found[block["address"]] = {"size": block["requested_size"], "frames": block.get("frames", [])}
    return found


def _grouped(blocks, torch, step):
    folder = os.path.dirname(torch.__file__)
    groups = collections.defaultdict(lambda: [0, 0])
    for block in blocks:
        group = groups[_lines(block.get("frames") or [], folder)]
        group[0] += block["size"]
        group[1] += 1
    largest = sorted(groups.items(), key=lambda item: (-item[1][0], item[0]))[:GROUPS]
    return {
        "step": step,
        "requested_bytes": sum(group[0] for group in groups.values()),
        "groups": [{"bytes": group[0], "count": group[1], "line": line, "within": within}
                   for (line, within), group in largest],
    }


def _lines(frames, torch_folder):
    """The innermost line that is not torch's, and the line of torch within it that allocated."""
    own = [frame for frame in frames if not frame["filename"].startswith(_HERE)
           and not frame["filename"].endswith("torch/utils/_device.py")]  # of a default device
    inner = own[0] if own else None
    outer = next((frame for frame in own if not _is_torch(frame["filename"], torch_folder)), None)
    if inner is None:
        return NO_LINE, ""
    if outer is None:
        return _place(inner), ""
    return _place(outer), "" if outer is inner else _place(inner)


def _is_torch(path, folder):
    return path.startswith((folder + os.sep, "<")) or path.endswith(f"{os.sep}contextlib.py")


def _place(frame):
    path = frame["filename"]
    marker = f"{os.sep}site-packages{os.sep}"
    if marker in path:
        path = path.rsplit(marker, 1)[1]
    else:
        path = os.path.relpath(path) if os.path.isabs(path) else path
        path = path if not path.startswith(os.pardir) else os.path.basename(path)
    return f"{path}:{frame['line']}"
