"""Measured rows, as the CSV files have them, and what every mapping shares."""

import csv
import dataclasses
import pathlib
import re

GIB = 2**30
# What a row's `unit` is worth in bytes. "MB" of Megatron's report_memory is 2^20.
UNITS = {"B": 1, "MiB": 2**20, "MB": 2**20, "GiB": GIB, "GB": 10**9}
# nvidia-smi prints MiB, and people drop the last three digits: a card of 81,251 MiB is full at "80 GB".
NVIDIA_SMI_GB = 1000 * 2**20


class Refused(Exception):
    """A row of which no job is made; the text says why, in words that group."""


class Row:
    """One line of a CSV file. Unknown and absent columns read as empty."""

    def __init__(self, columns):
        self._columns = {k: (v or "").strip() for k, v in columns.items() if isinstance(k, str)}

    def text(self, column):
        return self._columns.get(column, "")

    def columns(self):
        return dict(self._columns)

    @property
    def id(self):
        return self.text("id")

    @property
    def family(self):
        """The source that the id names: `uspres` of `uspres-0001`."""
        return self.id.partition("-")[0]

    @property
    def notes(self):
        return self.text("notes")

    def number(self, column, default=None):
        """The integer that a column begins with; refuses where there is none."""
        found = re.match(r"\d+", self.text(column))
        if found:
            return int(found.group())
        if default is None:
            raise Refused(f"the row does not state {column}")
        return default

    def note(self, pattern, default=None):
        """The first group of `pattern` in the notes, or `default`."""
        found = re.search(pattern, self.notes)
        return found.group(1) if found else default

    def ran_out_of_memory(self):
        return self.text("what_is_measured") == "OOM"

    def measured_bytes(self):
        unit = self.text("unit")
        if unit not in UNITS:
            raise Refused(f"unknown unit {unit!r}")
        try:
            value = float(self.text("measured_value"))
        except ValueError:
            raise Refused("the row has no measured value") from None
        if value <= 0:
            raise Refused("the row has no measured value")
        smi = unit == "GB" and self.text("what_is_measured") == "nvidia_smi"
        return value * (NVIDIA_SMI_GB if smi else UNITS[unit])


def read_folder(folder):
    """All rows of a folder's CSV files, by file name; of its `memory` and `oom` folders where it
    has them."""
    folder = pathlib.Path(folder)
    files = [path for name in ("", "memory/", "oom/") for path in sorted(folder.glob(f"{name}*.csv"))]
    return {str(path.relative_to(folder)): _read(path) for path in files}


def _read(path):
    with open(path, newline="", encoding="utf-8") as lines:
        rows = csv.DictReader(lines)
        return [row for columns in rows for row in _rows(columns)]


def _rows(columns):
    """The rows of a line: one, but for SimuMax's points on B200, which have columns of their
    own and three figures a line: the most loaded rank's gauges, and the least loaded's."""
    if "case" not in columns:
        return [Row(columns)]
    degrees = dict(re.findall(r"(tp|cp|pp|ep|dp)(\d+)", columns["case"]))
    common = {
        **degrees,
        "model": columns["model"],
        "layers": columns["layers"],
        "seq_len": columns["seq"],
        "micro_batch": columns["mbs"],
        "grad_accum": columns["microbatches"],
        "gpu": "B200",
        "framework": "Megatron-Core",
        "precision": "bf16",
        "zero_stage": "1",
        "unit": "MiB",
    }
    figures = (
        ("allocated", "max", "max_rank_alloc_mb"),
        ("allocated", "min", "min_rank_alloc_mb"),
        ("reserved", "max", "max_rank_reserved_mb"),
    )
    return [
        Row(
            {
                **common,
                "id": f"b200-{columns['case']}:{stage}_{what}",
                "what_is_measured": what,
                "measured_value": columns[column],
                "notes": f"stage={stage}",
            }
        )
        for what, stage, column in figures
    ]


@dataclasses.dataclass
class Prediction:
    """What an answer says about a row, bytes; `extra` is for debugging alone, `gauge` is the one
    that the row measured, or a part of."""

    expected: float
    bound: float
    extra: dict
    gauge: str


def stage_of(answer, stage):
    """The class of ranks that a pipeline stage belongs to; -1 is the last stage."""
    ranks = answer["ranks"]
    if stage < 0:
        return ranks[-1]
    below = [rank for rank in ranks if int(rank["pipeline_stage"]) <= stage]
    return below[-1]


def gauge(rank, name):
    return int(rank[name]["expected_bytes"]), int(rank[name]["bound_bytes"])


def moments_peak(rank, phases, first_step, field="peak_allocated_bytes"):
    """The highest `field` over some phases (all where `phases` is None) of one step."""
    moments = [m for m in rank["moments"] if bool(m["first_step"]) == first_step]
    found = [int(m[field]) for m in moments if phases is None or m["phase"] in phases]
    if not found:
        raise KeyError("moments")
    return max(found)


def scaled_bound(rank, name, expected):
    """The bound of a figure that is a part of a gauge: by the gauge's own ratio."""
    whole, bound = gauge(rank, name)
    return expected * bound / whole if whole else 0


def debug_extra(rank):
    """Figures that help to find where an error comes from."""
    return {
        "predicted_parameters": int(rank["parameter_count"]),
        "predicted_layers": int(rank["layer_count"]),
        "in_flight": int(rank["in_flight_count"]),
        "peak_phase": rank["peak_phase"],
        "predicted_end_of_step": moments_peak(
            rank, {"PHASE_END_OF_STEP"}, False, "current_allocated_bytes"
        ),
        "predicted_first_step_peak": moments_peak(rank, None, True),
    }


def parallelism(row, zero_stage, **more):
    return {
        "data_parallel_size": row.number("dp", 1),
        "tensor_parallel_size": row.number("tp", 1),
        "pipeline_parallel_size": row.number("pp", 1),
        "zero_stage": zero_stage,
        **more,
    }


def global_batch(row, micro_batches=None):
    """`micro_batches` is for rows that do not state theirs."""
    micro_batches = row.number("grad_accum", micro_batches)
    return row.number("dp", 1) * row.number("micro_batch") * micro_batches


def common_features(row, zero_stage):
    """The features that every set is broken down by."""
    tensor, pipeline = row.number("tp", 1), row.number("pp", 1)
    return {
        "zero stage": str(zero_stage),
        "tensor parallel": "1" if tensor == 1 else "above 1",
        "pipeline parallel": "1" if pipeline == 1 else "above 1",
    }


# GPT-2's block as Megatron trains it.
GPT2_BLOCK = {
    "activation": "gelu",
    "gated_mlp": False,
    "norm": "layer-norm",
    "qkv_bias": True,
    "attention_output_bias": True,
    "mlp_bias": True,
    "tied_embeddings": True,
    "position_embedding": "learned",
    "hidden_dropout": 0.1,
    "attention_dropout": 0.1,
}


def decoder(row, **more):
    """A Llama-like decoder of the row's columns; Qwen 3's norms and head width by its name."""
    heads = row.number("heads")
    model = {
        "hidden_size": row.number("hidden"),
        "layer_count": row.number("layers"),
        "head_count": heads,
        "kv_head_count": row.number("kv_heads", heads),
        "ffn_size": row.number("ffn"),
        "vocab_size": row.number("vocab"),
        "activation": "silu",
        "gated_mlp": True,
        "norm": "rms-norm",
        "position_embedding": "rotary",
        "tied_embeddings": bool(re.search(r"3\.2[ -]?[13]B", row.text("model"))),
    }
    if "Qwen3" in row.text("model"):
        model.update({"qk_norm": "per-head", "head_size": 128})
    return {**model, **more}
