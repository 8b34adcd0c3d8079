"""Training steps of real PyTorch and transformers on a GPU that computes nothing: `phantom` rows.

The allocator, autograd, FSDP and the optimizers are the real ones; NCCL, the CUDA context and a
GPU that lags behind its CPU are not there. So these rows are no measurements: calibrate.py makes
bounds of allocated and reserved memory of them, never of the device.
"""

import functools
import json
import pathlib

import measured
import phantom_megatron
from measured import Prediction

FAMILIES = ("phantom",)
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
MOST_OF_AN_H100 = 75e9
LIGER = "0.8"
CONFIGS = pathlib.Path(__file__).resolve().parent / "data" / "phantom"
FRAMEWORKS = {
    "none": "ddp",
    "ddp": "ddp",
    "fsdp1": "fsdp1",
    "fsdp2": "fsdp2",
    "zero0": "deepspeed",
    "zero1": "deepspeed",
    "zero2": "deepspeed",
    "zero3": "deepspeed",
}
RECOMPUTES = {"True": "full", "False": "none", "": "none"}
KERNELS = {
    "eager": "eager",
    "ScaledDotProductFlashAttention": "flash",
    "ScaledDotProductEfficientAttention": "memory-efficient",
}


def sets_of(row):
    of = "adapters " if row.text("adapter") else ""
    if row.id.startswith("phantom-opt"):
        of = "optimizers "
    elif row.id.startswith("phantom-fs"):
        of = "fsdp "
    elif row.text("engine"):
        of = "engine "
    if row.text("quantization"):
        of = "quantized "
    if row.text("preference"):
        of = "preference "
    if any(_config(row.text("config")).get(name) for name in EXPERTS):
        of = "experts "
    if _config(row.text("config")).get("kv_lora_rank"):
        of = "latent "
    if row.text("trainer"):
        of = "trainers "
    if row.text("offload"):
        of = "offload "
    if row.text("kept_back"):
        of = "kept back " if row.text("kept_back") == "True" else "dealt "
    if row.text("cp"):
        of = f"context {of}"
    for prefix, name in (("phantom-ft-", "tuning"), ("phantom-gkd-", "distillation"),
                         ("phantom-titan-", "torchtitan"),
                         ("phantom-ln-", "linear"), ("phantom-ex-", "experts"),
                         ("phantom-ss-", "state space"), ("phantom-lg-", "liger"),
                         ("phantom-ad-", "adapters"), ("phantom-pt-", "tuners"),
                         ("phantom-fz-", "frozen"),
                         ("phantom-half-", "half"), ("phantom-tn-", "torchtune"),
                         ("phantom-na-", "automodel"),
                         ("phantom-st-", "optimizers"),
                         ("phantom-mb-", "mamba"), ("phantom-mg-", "megatron"),
                         ("phantom-mf-", "megatron fsdp")):
        if row.id.startswith(prefix):
            of = f"{name} {of}"
    return [f"phantom {of}{row.text('what_is_measured')}"]


def features_of(row):
    names = ("torch", "config", "wrapper", "units", "precision", "optimizer", "checkpointing")
    return {name: row.text(name) for name in names}


def request_of(row):
    if row.text("wrapper") == "megatron":
        return phantom_megatron.request_of(row, _config(row.text("config")))
    return {"job": {**_model(row), **_training(row), **_placement(row), "runtime": _runtime(row)}}


def predict(row, answer):
    ranks_of_stage = row.number("world") * row.number("tp") // row.number("pp", 1)
    rank = measured.stage_of(answer, row.number("rank", 0) // ranks_of_stage)
    gauge = row.text("what_is_measured")
    return Prediction(*measured.gauge(rank, gauge), measured.debug_extra(rank), gauge)


@functools.cache
def _config(name):
    return json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8"))


def _model(row):
    config = dict(_config(row.text("config")))
    layers = row.number("layers", 0)
    if layers:
        config["num_hidden_layers"] = layers
        for name in ("layer_types", "layers_block_type"):
            if name in config:
                config[name] = config[name][:layers]
    return {"model": {"hf_config": config}}


def _training(row):
    sequences = row.number("micro_batch")
    precision = {"preset": row.text("precision")}
    if row.text("precision") == "bf16-mixed":
        precision["reduce_dtype"] = row.text("reduce") or "fp32"
    told = _engine(row)
    if "accumulate" in told:
        precision["gradient_accumulation_dtype"] = told["accumulate"]
    if "reduce" in told:
        precision["reduce_dtype"] = told["reduce"]
    # `paged`, `in-backward`, or `rank=128 of=attention+mlp`
    *forms, name = row.text("optimizer").split()
    optimizer = {"name": name, **_projection(form for form in forms if "=" in form),
                 **{form.replace("-", "_"): True for form in forms if "=" not in form}}
    if row.text("implementation"):
        optimizer["implementation"] = row.text("implementation")
    training = {
        "sequence_length": row.number("sequence"),
        "micro_batch_size": sequences,
        "global_batch_size": sequences * row.number("accumulate") * row.number("world")
        // row.number("cp", 1),
        "precision": precision,
        "optimizer": optimizer,
        "gradient_clipping": row.text("clip") == "True",
        "recompute": {"mode": row.text("recompute") or RECOMPUTES[row.text("checkpointing")]},
    }
    if row.text("adapter"):
        training["adapter"] = _adapter(row.text("adapter"))
        if row.text("wrapper").startswith("fsdp"):
            precision["reduce_dtype"] = row.text("reduce") or "fp32"
    if row.text("quantization"):
        training["quantization"], precision["parameter_dtype"] = _quantization(row)
    if row.text("preference").startswith("gkd"):
        training["distillation"] = _distillation(row.text("preference"))
    elif row.text("preference"):
        training["preference"] = _preference(row.text("preference"))
    if row.text("trained"):
        training["trained"] = _trained(row.text("trained"))
    if row.text("liger") == "own" and row.text("trainer") != "trl":  # whose head is its own
        training["loss"] = {"implementation": "plain"}
    if row.text("loss"):
        training["loss"] = {"implementation": row.text("loss")}
    if row.text("linear"):
        training["linear_attention"] = row.text("linear")
    latent = _config(row.text("config")).get("kv_lora_rank")
    if row.text("kernel") in KERNELS:
        training["attention"] = KERNELS[row.text("kernel")]
    elif latent and row.text("gpu") == "" and not row.text("trainer").startswith("torchtitan"):
        # cuDNN, which a GPU has, is off on phantoms
        training["attention"] = "memory-efficient"
    return {"training": training}


def _adapter(text):
    """`lora r=16 targets=q_proj+v_proj dropout=0.05 dtype=fp32`, `ia3 targets=k_proj+down_proj
    feedforward=down_proj dtype=fp32` or `prefix-tuning tokens=20 encoder=512 dtype=fp32`, as PEFT
    was told."""
    method, *said = text.split()
    values = dict(word.split("=") for word in said)
    if "tokens" in values:
        return _virtual_tokens(method, values)
    if method == "ia3":
        inputs = values["feedforward"].split("+")
        return {
            "method": method,
            "target_modules": values["targets"].split("+"),
            **({} if inputs == ["none"] else {"feedforward_modules": inputs}),
            "adapter_dtype": values["dtype"],
        }
    return {
        "method": method,
        "rank": int(values["r"]),
        "target_modules": values["targets"].split("+"),
        "dropout": float(values["dropout"]),
        "adapter_dtype": values["dtype"],
    }


def _projection(words):
    """`rank=128 of=attention+mlp`: which gradients are projected, and to what."""
    said = dict(word.split("=") for word in words)
    if not said:
        return {}
    return {"rank": int(said["rank"]), "target_modules": said["of"].split("+")}


def _virtual_tokens(method, values):
    """The width of what encodes them, or none."""
    adapter = {
        "method": method,
        "virtual_token_count": int(values["tokens"]),
        "adapter_dtype": values["dtype"],
    }
    if values["encoder"] != "none":
        adapter["encoder_hidden_size"] = int(values["encoder"])
        if method == "prefix-tuning":
            adapter["prefix_projection"] = True
    return adapter


def _trained(text):
    """`attention+mlp last=2`: parts, and the last so many layers."""
    parts, _, last = text.partition(" last=")
    return {"modules": parts.split("+"), **({"layer_count": int(last)} if last else {})}


def _preference(text):
    """`dpo reference=model`; a method that compares with nothing says none."""
    method, *said = text.split()
    return {"method": method, **dict(word.split("=") for word in said)}


def _distillation(text):
    """`gkd teacher=qwen3-4b beta=0.5`."""
    values = dict(word.split("=") for word in text.split()[1:])
    return {"teacher": values["teacher"], "jsd_beta": float(values["beta"])}


def _quantization(row):
    """`nf4 double=True compute=bf16 rest=fp32`: what is not quantized is in `rest`."""
    form, *said = row.text("quantization").split()
    values = dict(word.split("=") for word in said)
    if form == "int8":
        return {"format": form}, values["rest"]
    quantization = {
        "format": form,
        "double_quantization": values["double"] == "True",
        "compute_dtype": values["compute"],
    }
    return quantization, values["rest"]


def _placement(row):
    tensor = row.number("tp")
    stages = {"fsdp1": 3, "fsdp2": 3, "zero1": 1, "zero2": 2, "zero3": 3}
    stage = stages.get(row.text("wrapper"), 0)
    # The phantom's GPU has what a row takes.
    gpu = "h100-80gb-sxm" if row.number("measured_value") < MOST_OF_AN_H100 else "b200-180gb"
    if row.text("trainer").startswith("torchtitan"):  # on a Hopper GPU another package attends
        gpu = "a100-80gb-sxm"
    spread = {"expert_parallel_size": row.number("ep")} if row.number("ep", 1) > 1 else {}
    return {
        "parallelism": {"zero_stage": stage, "tensor_parallel_size": tensor, **spread,
                        **_contexts(row)},
        "cluster": {"gpu": gpu, "gpu_count": row.number("world") * tensor},
    }


def _contexts(row):
    """Ranks that split sequences, by torch's words."""
    if row.number("cp", 1) == 1:
        return {}
    method = {"allgather": "all-gather", "alltoall": "ring"}[row.text("method")]
    return {"context_parallel_size": row.number("cp"), "context_parallel_method": method}


def _runtime(row):
    """Units `root`: one group of embedding, norm and head, as accelerate makes it."""
    wrapper = row.text("wrapper")
    runtime = {"framework": FRAMEWORKS[wrapper], "versions": {"torch": row.text("torch")}}
    if wrapper == "fsdp2" and row.text("reshard"):
        runtime["reshard_after_forward"] = row.text("reshard") == "True"
    offload = row.text("offload")  # of FSDP2 True; of DeepSpeed optimizer, or that and parameters
    if offload in ("True", "parameters"):
        runtime["offload_parameters"] = True
    if offload == "activations":
        runtime["offload_activations"] = True
    if offload in ("optimizer", "parameters"):
        runtime["offload_optimizer"] = True
    if row.text("trainer"):
        trainer, _, version = row.text("trainer").partition(" ")
        runtime["trainer"] = trainer
        if version:
            runtime["versions"][trainer] = version
    elif wrapper.startswith("fsdp") and row.text("units") == "root":
        runtime["trainer"] = "hf-trainer"
        runtime["versions"]["hf-trainer"] = "5.11"  # later ones have groups of their own
    if row.text("optimizer").startswith(("onebit-", "zero-one-")):
        runtime["versions"]["deepspeed"] = "0.18"
    if row.text("linear"):
        runtime["versions"]["transformers"] = row.text("transformers").rpartition(".")[0]
    if row.text("liger"):
        runtime["liger_kernel"] = True
        runtime["versions"]["liger-kernel"] = LIGER
    if row.text("bucket_view") == "True":
        runtime["gradient_as_bucket_view"] = True
    told = _engine(row)
    wide = wrapper == "zero1" and told.get("accumulate") == "fp32"
    if wrapper == "zero0" or wide:  # engines without buckets, whatever they are told
        return runtime
    if "bucket" in told:
        runtime["reduce_bucket_element_count"] = int(told["bucket"])
    if "overlap" in told:
        runtime["overlap_communication"] = told["overlap"] == "True"
    return runtime


def _engine(row):
    """`bucket=4194304 overlap=True accumulate=fp32 reduce=fp32`: what DeepSpeed was told, or not."""
    return dict(word.split("=") for word in row.text("engine").split())
