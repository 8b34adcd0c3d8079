"""What is refused before any mapping: what is not modelled, and what a row does not state."""

import re

from measured import Refused

# Ids of the catalog's GPUs, by what the rows call them.
GPUS = {
    "V100-16GB": "v100-16gb-sxm",
    "V100-32GB": "v100-32gb-sxm",
    "A100-40GB": "a100-40gb-sxm",
    "A100-80GB": "a100-80gb-sxm",
    "A800-80GB": "a800-80gb-sxm",
    "H100-SXM-80GB": "h100-80gb-sxm",
    "H100-SXM-96GB-HBM2e-500W": "h100-96gb-sxm",
    "H800-SXM-80GB": "h800-80gb-sxm",
    "H200-SXM-141GB": "h200-141gb-sxm",
    "B200-SXM": "b200-180gb",
    "GB200": "gb200-186gb",
    "B300-SXM": "b300-288gb",
    "GB300": "gb300-288gb",
    "RTX-4090": "rtx-4090-24gb",
    "RTX-A6000": "rtx-a6000-48gb",
    "MI325X": "mi325x-256gb",
}
# Words of a column, and what a row with them is refused for. What is not modelled comes first.
REFUSED = (
    ("model", r"(?i)mixtral|moonlight|deepseek|kimi|gpt oss|8x70b|nemotron_?-?3", "experts"),
    ("model", r"(?i)_a\d|-A\d+\.?\d*B", "experts"),
    ("model", r"(?i)lora", "adapters"),
    ("precision", r"nf4", "adapters"),
    ("notes", r"offload (True|Y)|\(CPU offload", "offload"),
    ("notes", r"section 'With full cpu offload'", "offload"),
    ("notes", r"ZeRO\+\+ True", "ZeRO++"),
    ("notes", r"async TP|AsyncTP", "asynchronous tensor parallelism"),
    ("notes", r"framework MegaScale|cumulative ablation step: \+", "a modified model"),
    ("notes", r"NVLink pairs \+ PCIe", "a machine whose links are mixed"),
    ("notes", r"MiCS", "groups of MiCS"),
    ("notes", r"includes restarts|GPU-hours", "the time of a whole training, restarts and all"),
    ("notes", r"optimizer-in-backward", "the optimizer's step inside backward"),
    ("notes", r"does not match GPUs", "the source's degrees do not give its GPUs"),
)
# Sources whose mappings know which experts they ran.
WITH_EXPERTS = ("smx", "fold", "mbr", "mbs")
OF_EXPERTS = "experts"
# Sources whose fp8 and context parallelism are Transformer Engine's, under Megatron.
TRANSFORMER_ENGINE = ("nemo", "nml", "mbr", "mbs", "fold")
# Columns that a source leaves empty, and its mapping knows.
KNOWN = {("bsc", "heads"), ("bsc", "layers"), ("fold", "pp")} | {
    ("bsv", column) for column in ("layers", "hidden", "heads")
} | {("card", column) for column in ("hidden", "heads", "pp")}


def refuse(row):
    """Raises where no job is made of the row, whatever its source."""
    known = row.family in WITH_EXPERTS
    if row.number("ep", 1) > 1 and not known:
        raise Refused(OF_EXPERTS)
    for column, pattern, reason in REFUSED:
        if re.search(pattern, row.text(column)) and not (known and reason == OF_EXPERTS):
            raise Refused(reason)
    narrow = re.search(r"(?i)fp[48]", row.text("precision"))
    if narrow and row.family not in TRANSFORMER_ENGINE:
        raise Refused("8-bit matrix products of others than Transformer Engine")
    if row.number("cp", 1) > 1 and row.family not in TRANSFORMER_ENGINE:
        raise Refused("context parallelism")
    if row.text("gpu") not in GPUS:
        raise Refused(f"no GPU id for {row.text('gpu')!r}")
    for column in ("layers", "hidden", "heads", "seq_len", "num_gpus", "tp", "pp", "global_batch"):
        if not row.text(column) and (row.family, column) not in KNOWN:
            raise Refused(f"the row does not state {column}")
