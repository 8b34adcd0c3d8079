"""Fine-tuning by trainers of others: torchtune, litgpt, PEFT, Qwen's script, and the like."""

import re

import adapters
import measured
from measured import Prediction, Refused

SETS = {
    "tune": "torchtune",
    "litgpt": "litgpt",
    "peft": "peft",
    "qwen": "qwen",
    "fsdpq": "fsdp_qlora",
    "hfgpu1": "hf_bert",
    "alst": "alst",
    "ds": "deepspeed",
    "internevo": "internevo",
}
FAMILIES = tuple(SETS)
GPUS = {
    "V100-SXM2-16GB": "v100-16gb-sxm",
    "A100-SXM4-40GB": "a100-40gb-sxm",
    "A100-SXM4-80G": "a100-80gb-sxm",
    "A100-SXM4-80GB": "a100-80gb-sxm",
    "A100": "a100-80gb-sxm",
    "H100": "h100-80gb-sxm",
    "A10G": "a10g-24gb",
    "NVIDIA L40S": "l40s-48gb",
    "A6000": "rtx-a6000-48gb",
    "RTX 4090": "rtx-4090-24gb",
    "RTX 3090 24GB": "rtx-3090-24gb",
    "RTX 4090 24GB": "rtx-4090-24gb",
    "MI300X": "mi300x-192gb",
}
# The framework and trainer of each source, by what its rows call it.
RUNTIMES = {
    "torchtune single device": {"framework": "ddp", "trainer": "torchtune"},
    "torchtune FSDP2": {"framework": "fsdp2", "trainer": "torchtune"},
    "litgpt": {"framework": "ddp", "trainer": "litgpt"},
    "litgpt (Fabric FSDP)": {"framework": "fsdp1", "trainer": "litgpt"},
    "HF transformers+PEFT plain loop": {"framework": "ddp", "trainer": "hf-trainer"},
    "HF Trainer": {"framework": "ddp", "trainer": "hf-trainer"},
    "HF Trainer + DeepSpeed ZeRO-2": {"framework": "deepspeed", "trainer": "hf-trainer"},
    "HF Trainer + DeepSpeed ZeRO-3": {"framework": "deepspeed", "trainer": "hf-trainer"},
    "FSDP1 full_shard": {"framework": "fsdp1", "trainer": "hf-trainer"},
    "DeepSpeed ZeRO-3": {"framework": "deepspeed", "trainer": "hf-trainer"},
}
# What BERT's rows hold, of a page that does not say: softmax kept its input, which ended with
# pytorch#65242 of late 2021, and zero_grad left the gradients, which ended with 2.0 (#92731).
# Qwen's table states PyTorch 2.0; litgpt's are of 2023, and of the months before its 0.5.
VERSIONS = {
    "hfgpu1": {"torch": "1.10"},
    "qwen": {"torch": "2.0"},
    "litgpt": {"litgpt": "0.4"},
}
# Words of the notes, the optimizer or the framework, and what they are refused for.
REFUSED = (
    ("notes", "generation eval", "the peak of generating text"),
    ("notes", "Baseline; cumulative", "the longest sample is not stated"),
    ("notes", "config not stated|PagedAdamW8bit", "the recipe is not stated"),
    # bitsandbytes' have bytes; torchao's step makes fp32 copies of both states beside them.
    ("optimizer", "^AdamW8bit", "whose 8-bit states they are is not stated"),
    ("framework", "InternEvo", "InternEvo"),
    ("framework", "thunder", "Thunder"),
    ("notes", "CUDA kernels loaded|model loaded|reserved_after_model_wrap", "no training"),
)


def sets_of(row):
    return [SETS[row.family]]


def features_of(row):
    return {
        "recompute": _recompute(row)["mode"],
        "compile": "yes" if row.text("compile") == "yes" else "no",
        "framework": row.text("framework"),
        "gauge": row.text("what_is_measured"),
    }


def predict(row, answer):
    rank = measured.stage_of(answer, 0)
    extra = measured.debug_extra(rank)
    expected, bound = measured.gauge(rank, _gauge(row))
    if _longest_is_first(row):
        expected = measured.moments_peak(rank, None, True)
        bound = measured.scaled_bound(rank, "allocated", expected)
    # Some rows add up all GPUs.
    times = row.number("num_gpus", 1) if "TOTAL over" in row.notes else 1
    return Prediction(times * expected, times * bound, extra, _gauge(row))


def request_of(row):
    _refuse(row)
    runtime = dict(RUNTIMES[row.text("framework")])
    versions = dict(VERSIONS.get(row.family, {}))
    if runtime.get("trainer") == "hf-trainer":  # all rows are of 2025 and before
        versions["hf-trainer"] = "4.50"
    if runtime.get("trainer") == "torchtune":  # README's tables, from November 2024 on
        versions["torchtune"] = "0.4"
    if versions:
        runtime["versions"] = versions
    if row.text("compile") == "yes":
        runtime["compile"] = True
    if _offloads_parameters(row):
        runtime["offload_parameters"] = True
    if _offloads_layers(row):
        runtime["offload_activations"] = True
    runtime |= adapters.runtime_of(row)
    training = {
        "sequence_length": row.number("seq_len"),
        "micro_batch_size": row.number("micro_batch"),
        "global_batch_size": row.number("dp", 1)
        * row.number("micro_batch")
        * (1 if _longest_is_first(row) else row.number("grad_accum", 1)),
        "precision": {"preset": _preset(row, runtime["framework"])},
        "optimizer": _optimizer(row),
        "recompute": _recompute(row),
        "loss": {
            "implementation": "chunked-cross-entropy" if "chunked CE" in row.notes else "plain"
        },
    }
    if row.text("attention") == "eager":
        training["attention"] = "eager"
    training |= adapters.sections_of(row)
    job = {
        "model": adapters.model_of(row, _architecture(row)),
        "training": training,
        "parallelism": measured.parallelism(row, _zero_stage(row, runtime["framework"])),
        "runtime": runtime,
        "cluster": {"gpu": GPUS[row.text("gpu")]},
    }
    return {"job": job}


def _refuse(row):
    if row.text("offload") and not _offloads_parameters(row) and not _offloads_layers(row):
        raise Refused(f"offload of {row.text('offload')}")
    for column, words, reason in REFUSED:
        if re.search(words, row.text(column)):
            raise Refused(reason)
    if row.number("ep", 1) > 1:
        raise Refused("experts")
    if row.text("framework") not in RUNTIMES:
        raise Refused(f"framework {row.text('framework')!r}")
    if row.text("gpu") not in GPUS:
        raise Refused(f"no GPU id for {row.text('gpu')!r}")


def _offloads_parameters(row):
    """FSDP1's CPUOffload, which is of gradients and states too."""
    return row.text("framework").startswith("FSDP1") and row.text("offload").startswith("params")


def _offloads_layers(row):
    return row.text("framework").startswith("torchtune") and row.text("offload") == "activations"


def _optimizer(row):
    name = "adamw-8bit" if "8bit" in row.text("optimizer") else "adamw"
    if "optimizer_in_bwd" not in row.text("optimizer"):
        return {"name": name}
    return {"name": name, "implementation": "fused", "in_backward": True}


def _longest_is_first(row):
    """litgpt's adapters of 2023: the script takes the longest sample first, so that the peak is the
    first micro-batch's (finetune/lora.py, train, `longest_seq_ix if iter_num == 0`)."""
    return row.family == "litgpt" and row.text("peft") and ".yaml" not in row.notes


def _preset(row, framework):
    if row.text("precision") == "fp32":
        return "fp32"
    if row.text("precision").startswith("fp16 AMP"):
        return "fp16-autocast"
    return "bf16-mixed" if framework == "deepspeed" else "bf16-pure"


def _zero_stage(row, framework):
    stated = re.search(r"ZeRO-(\d)", row.text("framework"))
    return int(stated.group(1)) if stated else 3 if framework.startswith("fsdp") else 0


def _recompute(row):
    """litgpt's scripts wrap each block for recomputation where they run FSDP (finetune/full.py,
    activation_checkpointing_policy); their rows do not say it."""
    said = row.text("recompute")
    if not said and row.text("framework") == "litgpt (Fabric FSDP)":
        said = "full"
    return {"mode": "full" if said.startswith("full") else "none"}


def _gauge(row):
    """Qwen's table does not name its gauge: its constant of 1.65 GB over three sizes of
    model is that of a process, so it is what nvidia-smi shows."""
    what = row.text("what_is_measured")
    return {"nvidia_smi": "device", "unknown": "device"}.get(what, what)


def _architecture(row):
    """What differs from Llama's, by the model's name."""
    name = row.text("model").lower()
    if name.startswith("bert"):
        return {
            "activation": "gelu",
            "gated_mlp": False,
            "norm": "layer-norm",
            "norm_placement": "post",
            "position_embedding": "learned",
            "position_count": 512,
            "token_type_count": 2,
            "qkv_bias": True,
            "attention_output_bias": True,
            "mlp_bias": True,
            "hidden_dropout": 0.1,
            "attention_dropout": 0.1,
            "head": "sequence-classification",
        }
    if name.startswith("gemma"):
        return {"activation": "gelu-tanh", "head_size": 256, "tied_embeddings": True}
    if name.startswith("phi-2"):
        return {
            "activation": "gelu-tanh",
            "gated_mlp": False,
            "norm": "layer-norm",
            "norm_placement": "parallel",
            "qkv_bias": True,
            "attention_output_bias": True,
            "mlp_bias": True,
        }
    return {"qkv_bias": True} if name.startswith("qwen-") else {}
