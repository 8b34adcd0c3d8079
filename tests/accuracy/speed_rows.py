"""Rows of measured speed: which of a run's figures is taken, and the step time that it states.

A run's figures (tokens/s, step time, TFLOP/s, MFU) are one measurement. TFLOP/s count what
their source counts: with recomputation (`hardware`) or without (`model`).
"""

import pathlib

import measured
from measured import Refused

# The most direct figure of a run first.
METRICS = ("tokens_per_s_per_gpu", "step_s", "tflops_per_gpu", "mfu", "hfu")
# What describes a figure, not the run.
OF_THE_FIGURE = ("id", "metric", "value")
# Dense 16-bit TFLOP/s that an MFU of 16-bit training is a share of. Source: data sheets, as in
# server/catalog/gpus.yaml.
PEAK_TERAFLOPS = {"V100": 125, "A100": 312, "A800": 312, "H100": 989, "H200": 989, "B200": 2250}
# Sources whose TFLOP/s count recomputation: Narayanan et al. 2021, eq. 3.
HARDWARE = ("sc21", "sc21z", "bsc", "bsv", "bs1", "mlm20", "dsaz", "misc")
# Sources whose TFLOP/s or MFU do not: Korthikanti et al. 2022, appendix A.
MODEL = ("kor", "mgs", "mlm24", "nem4")
# Sources whose MFU counts what Megatron's own formula does, of any decoder.
MEGATRON = ("fold",)


def read_folder(folder):
    """All rows of a folder's CSV files, by file name; of its `throughput` folder where it has
    one."""
    folder = pathlib.Path(folder)
    inner = folder / "throughput"
    return measured.read_folder(inner if inner.is_dir() else folder)


def one_figure_each(rows):
    """(rows that stand for their run, ids of the other figures of runs). A row that stands for
    its run knows the other figures, as columns named after their metrics."""
    runs = {}
    for row in rows:
        runs.setdefault(_run_of(row), {}).setdefault(row.text("metric"), []).append(row)
    kept, others = [], []
    for row in rows:
        figures = runs[_run_of(row)]
        if row.text("metric") != min(figures, key=_preference):
            others.append(row.id)
            continue
        more = {name: found[0].text("value") for name, found in figures.items()}
        kept.append(measured.Row({**more, **row.columns()}))
    return kept, set(others)


def _preference(metric):
    return METRICS.index(metric) if metric in METRICS else len(METRICS)


def _run_of(row):
    return tuple(v for name, v in sorted(row.columns().items()) if name not in OF_THE_FIGURE)


def step_seconds(row, job):
    """The measured time of one optimizer step of `job`, seconds."""
    value = _value(row)
    metric = row.text("metric")
    tokens = job["training"]["global_batch_size"] * job["training"]["sequence_length"]
    gpus = row.number("num_gpus")
    whole = row.note(r"; T/s (\d+);")
    if whole:  # llm-foundry's tables print all GPUs' tokens/s beside rounded TFLOP/s
        return tokens / float(whole)
    if metric == "tokens_per_s_per_gpu":
        return tokens / (value * gpus)
    if metric == "step_s":
        _check_flops(row, job, value)
        return value
    if metric == "tflops_per_gpu":
        return step_flops(row, job) / (value * 1e12 * gpus)
    if metric == "mfu":
        return step_flops(row, job) / (value / 100 * _peak(row) * 1e12 * gpus)
    raise Refused(f"metric {metric!r}")


def _check_flops(row, job, seconds):
    """Refuses a run whose TFLOP/s and step time are of another network than the row says."""
    if row.family not in HARDWARE or not row.text("tflops_per_gpu"):
        return
    done = float(row.text("tflops_per_gpu")) * 1e12 * row.number("num_gpus") * seconds
    needed = hardware_flops(job["model"]["transformer"], job["training"])
    if not 0.5 < done / needed < 2:
        raise Refused("its step time and its TFLOP/s are not of one run")


def _value(row):
    try:
        value = float(row.text("value"))
    except ValueError:
        value = 0
    if value <= 0:
        raise Refused("the row has no measured value")
    return value


def _peak(row):
    for name, peak in PEAK_TERAFLOPS.items():
        if row.text("gpu").startswith(name):
            return peak
    raise Refused(f"an MFU of a GPU without a rate: {row.text('gpu')!r}")


def step_flops(row, job):
    """FLOPs of one step as the row's source counts them: of a GPT (4 h wide, all heads), or of a
    decoder whose layers all have experts."""
    shape = job["model"]["transformer"]
    if row.family in MEGATRON:
        return decoder_flops(shape, job["training"])
    if shape["ffn_size"] != 4 * shape["hidden_size"] or shape.get("gated_mlp"):
        raise Refused("TFLOP/s of a network that the source's formula is not for")
    mfu = row.text("metric") == "mfu"
    if row.family in HARDWARE and not mfu:
        return hardware_flops(shape, job["training"])
    if row.family in MODEL or mfu:
        return model_flops(shape, job["training"])
    raise Refused("TFLOP/s whose formula is not known")


def hardware_flops(shape, training):
    """96 B s l h^2 (1 + s/6h + V/16lh): four passes, the head three times."""
    size, layers, hidden, vocab, length = _sizes(shape, training)
    return 96 * size * length * layers * hidden**2 * (
        1 + length / (6 * hidden) + vocab / (16 * layers * hidden)
    )


def model_flops(shape, training):
    """72 B s l h^2 (1 + s/6h + V/12lh): three passes."""
    size, layers, hidden, vocab, length = _sizes(shape, training)
    return 72 * size * length * layers * hidden**2 * (
        1 + length / (6 * hidden) + vocab / (12 * layers * hidden)
    )


def decoder_flops(shape, training):
    """Three passes over the weights that a token passes, gated, in every layer, and over scores of
    all tokens, which later versions halve. Source: Megatron-LM core 0.10,
    megatron/training/training.py, num_floating_point_operations."""
    if shape.get("dense_layer_count") or not shape.get("gated_mlp") or "head_size" in shape:
        raise Refused("TFLOP/s of a network that the source's formula is not for")
    size, layers, hidden, vocab, length = _sizes(shape, training)
    groups = shape["kv_head_count"] / shape["head_count"]
    width = shape["expert_ffn_size"] * shape["active_expert_count"]
    width += shape.get("shared_expert_ffn_size", 0)
    attention = 2 * hidden**2 * (1 + groups) + 2 * hidden * length
    return 6 * size * length * (layers * (attention + 3 * hidden * width) + hidden * vocab)


def _sizes(shape, training):
    return (
        training["global_batch_size"],
        shape["layer_count"],
        shape["hidden_size"],
        shape["vocab_size"],
        training["sequence_length"],
    )
