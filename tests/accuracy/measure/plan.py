"""From a job file to what the kit runs: pure Python, without torch or a GPU.

A job uses the API's own names. What the kit cannot run as the job says is refused with
the reason; nothing is approximated.
"""

import dataclasses
import json
import pathlib

CATALOG = pathlib.Path(__file__).resolve().parents[3] / "server" / "catalog" / "models"


class Refused(Exception):
    """A job that the kit does not run; the text is `<field>: <value>; <reason>`."""

    def __init__(self, field, value, reason):
        super().__init__(f"{field}: {value}; {reason}")


@dataclasses.dataclass(frozen=True)
class Plan:
    """All that running a job needs; every field is plain data."""

    config: dict  # a Hugging Face config.json
    head: str  # `causal` or `masked`
    micro_batch_size: int
    sequence_length: int
    micro_batch_count: int
    framework: str  # `single`, `ddp` or `fsdp2`
    world_size: int
    shard_group_size: int
    reshard_after_forward: bool
    bucket_view: bool
    parameter_dtype: str
    autocast_dtype: str  # empty: none
    mixed_dtype: str  # of FSDP2's gathered weights; empty: none
    reduce_dtype: str  # of FSDP2's reduction; empty: that of the gradients
    optimizer: str
    implementation: str
    gradient_clipping: bool
    recompute_interval: int  # 0: none; n: layers 0, n, 2n, ...
    attention: str
    environment: dict
    memory_fraction: float  # 0: unset
    torch_version: str  # as the job asks; empty: any


# Every field that a job may have, and what the kit reads of it.
FIELDS = {
    "model": {"name", "hf_config", "transformer"},
    "training": {
        "sequence_length", "micro_batch_size", "global_batch_size", "precision", "optimizer",
        "gradient_clipping", "recompute", "attention", "loss",
    },
    "training.precision": {"preset", "reduce_dtype"},
    "training.optimizer": {"name", "implementation"},
    "training.recompute": {"mode", "interval", "unit_layer_count"},
    "training.loss": {"implementation"},
    "parallelism": {
        "data_parallel_size", "zero_stage", "shard_group_size", "tensor_parallel_size",
        "pipeline_parallel_size",
    },
    "runtime": {
        "framework", "versions", "gradient_as_bucket_view", "reshard_after_forward",
        "cublas_workspace_config", "compile", "allocator",
    },
    "runtime.versions": {"torch"},
    "runtime.allocator": {
        "expandable_segments", "max_split_size_bytes", "roundup_power2_division_count",
        "garbage_collection_threshold", "memory_fraction",
    },
    "cluster": {"gpu", "gpu_memory_bytes", "gpu_count", "gpus_per_node", "reserved_for_others_bytes"},
}
MASKED_LM = {"bert", "roberta", "xlm-roberta"}
OPTIMIZERS = {
    "sgd": {"for-loop", "foreach", "fused"},
    "sgd-momentum": {"for-loop", "foreach", "fused"},
    "rmsprop": {"for-loop", "foreach"},
    "adam": {"for-loop", "foreach", "fused"},
    "adamw": {"for-loop", "foreach", "fused"},
}
# parameter dtype, autocast, FSDP2's gathered dtype, FSDP2's reduction
PRECISIONS = {
    ("single", "fp32"): ("float32", "", "", ""),
    ("single", "bf16-pure"): ("bfloat16", "", "", ""),
    ("single", "fp16-pure"): ("float16", "", "", ""),
    ("single", "bf16-autocast"): ("float32", "bfloat16", "", ""),
    ("fsdp2", "fp32"): ("float32", "", "", ""),
    ("fsdp2", "bf16-pure"): ("bfloat16", "", "", ""),
    ("fsdp2", "bf16-mixed"): ("float32", "", "bfloat16", "float32"),
}
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
MIB = 2**20


def plan_of(job, catalog=CATALOG):
    """The plan of a job; raises Refused."""
    _check_fields(job)
    training, parallelism = job.get("training", {}), job.get("parallelism", {})
    runtime = job.get("runtime", {})
    framework, world = _framework(parallelism, runtime, job.get("cluster", {}))
    config = _config(job.get("model", {}), catalog)
    micro_batch = training.get("micro_batch_size", 1)
    parameter, autocast, mixed, reduce = _precision(training.get("precision", {}), framework)
    optimizer, implementation = _optimizer(training.get("optimizer", {}), framework)
    _check_loss(training.get("loss", {}))
    return Plan(
        config=config,
        head="masked" if config["model_type"] in MASKED_LM else "causal",
        micro_batch_size=micro_batch,
        sequence_length=_required(training, "training.sequence_length"),
        micro_batch_count=_micro_batches(training, micro_batch, world),
        framework=framework,
        world_size=world,
        shard_group_size=_shard_group(parallelism, framework, world),
        reshard_after_forward=_reshards(parallelism, runtime, framework),
        bucket_view=bool(runtime.get("gradient_as_bucket_view", False)),
        parameter_dtype=parameter,
        autocast_dtype=autocast,
        mixed_dtype=mixed,
        reduce_dtype=reduce,
        optimizer=optimizer,
        implementation=implementation,
        gradient_clipping=training.get("gradient_clipping", True),
        recompute_interval=_recompute_interval(training.get("recompute", {})),
        attention=_attention(training.get("attention", "auto")),
        environment=_environment(runtime),
        memory_fraction=runtime.get("allocator", {}).get("memory_fraction", 0.0),
        torch_version=str(runtime.get("versions", {}).get("torch", "")),
    )


def _check_fields(job):
    """Refuses what the kit would otherwise ignore."""
    for name in job:
        if name not in ("model", "training", "parallelism", "runtime", "cluster"):
            raise Refused(name, "set", "the kit knows no such field")
    for path, known in FIELDS.items():
        section = job
        for name in path.split("."):
            section = section.get(name, {})
        if not isinstance(section, dict):
            raise Refused(path, section, "must be a section")
        for name in section:
            if name not in known:
                raise Refused(f"{path}.{name}", "set", "the kit does not run it")


def _required(section, path):
    value = section.get(path.rpartition(".")[2])
    if value is None:
        raise Refused(path, "absent", "must be given")
    return value


def _framework(parallelism, runtime, cluster):
    """(`single`, `ddp` or `fsdp2`, ranks); one rank of DDP is a plain module."""
    for name in ("tensor_parallel_size", "pipeline_parallel_size"):
        if parallelism.get(name, 1) != 1:
            value = parallelism[name]
            raise Refused(f"parallelism.{name}", value, "the kit runs one rank of data parallelism")
    world = parallelism.get("data_parallel_size", cluster.get("gpu_count", 1))
    if cluster.get("gpu_count", world) != world:
        raise Refused("cluster.gpu_count", cluster["gpu_count"], f"the ranks are {world}")
    stage = parallelism.get("zero_stage")
    name = runtime.get("framework", "fsdp2" if stage == 3 else "ddp")
    if runtime.get("compile", False):
        raise Refused("runtime.compile", "true", "the kit runs eager modules")
    if name == "fsdp2":
        if stage not in (None, 2, 3):
            raise Refused("parallelism.zero_stage", stage, "fsdp2 is 2 or 3")
        return "fsdp2", world
    if name != "ddp":
        raise Refused("runtime.framework", name, "the kit runs ddp and fsdp2")
    if stage not in (None, 0):
        raise Refused("parallelism.zero_stage", stage, "ddp shards nothing")
    return ("single" if world == 1 else "ddp"), world


def _shard_group(parallelism, framework, world):
    group = parallelism.get("shard_group_size", world)
    if framework != "fsdp2" and group != world:
        raise Refused("parallelism.shard_group_size", group, "ddp shards nothing")
    if world % group:
        raise Refused("parallelism.shard_group_size", group, f"must divide {world} ranks")
    return group


def _reshards(parallelism, runtime, framework):
    asked = runtime.get("reshard_after_forward")
    if framework != "fsdp2":
        if asked is not None:
            raise Refused("runtime.reshard_after_forward", asked, "ddp does not have it")
        return False
    return parallelism.get("zero_stage", 3) == 3 if asked is None else asked


def _micro_batches(training, micro_batch, world):
    whole = training.get("global_batch_size", micro_batch * world)
    count, left = divmod(whole, micro_batch * world)
    if left or not count:
        raise Refused(
            "training.global_batch_size", whole, f"must be a multiple of {micro_batch * world}"
        )
    return count


def _precision(section, framework):
    preset = section.get("preset", "bf16-mixed")
    runs = PRECISIONS.get(("fsdp2" if framework == "fsdp2" else "single", preset))
    if runs is None:
        shown = "fsdp2" if framework == "fsdp2" else "ddp"
        raise Refused("training.precision.preset", preset, f"plain {shown} has no such loop")
    reduce = section.get("reduce_dtype")
    if reduce is None:
        return runs
    if framework != "fsdp2" or reduce not in DTYPES:
        raise Refused("training.precision.reduce_dtype", reduce, "only fsdp2, as fp32, bf16, fp16")
    return runs[:3] + (DTYPES[reduce],)


def _optimizer(section, framework):
    name = section.get("name", "adamw")
    if name not in OPTIMIZERS:
        raise Refused("training.optimizer.name", name, "the kit runs " + ", ".join(OPTIMIZERS))
    default = "fused" if framework == "fsdp2" else "foreach"
    implementation = section.get("implementation", default)
    if implementation not in OPTIMIZERS[name]:
        raise Refused("training.optimizer.implementation", implementation, f"torch's {name} has none")
    return name, implementation


def _recompute_interval(section):
    mode = section.get("mode", "none")
    if section.get("unit_layer_count", 1) != 1:
        raise Refused(
            "training.recompute.unit_layer_count", section["unit_layer_count"], "the kit runs 1"
        )
    if mode == "every-nth":
        return _required(section, "training.recompute.interval")
    if mode not in ("none", "full"):
        raise Refused("training.recompute.mode", mode, "the kit runs none, full and every-nth")
    return 1 if mode == "full" else 0


def _attention(name):
    if name not in ("auto", "eager", "flash", "cudnn", "memory-efficient"):
        raise Refused("training.attention", name, "the kit knows no such kernel")
    return name


def _check_loss(section):
    name = section.get("implementation", "plain")
    if name != "plain":
        raise Refused("training.loss.implementation", name, "the kit runs plain")


def _environment(runtime):
    """The variables that the run needs before torch is imported."""
    allocator = runtime.get("allocator", {})
    settings = []
    if "expandable_segments" in allocator:
        settings.append(f"expandable_segments:{allocator['expandable_segments']}")
    if "max_split_size_bytes" in allocator:
        size, left = divmod(allocator["max_split_size_bytes"], MIB)
        if left:
            raise Refused(
                "runtime.allocator.max_split_size_bytes",
                allocator["max_split_size_bytes"],
                "torch takes whole MiB",
            )
        settings.append(f"max_split_size_mb:{size}")
    divisions = allocator.get("roundup_power2_division_count", [])
    if len(divisions) == 1:
        settings.append(f"roundup_power2_divisions:{divisions[0]}")
    elif divisions:
        raise Refused(
            "runtime.allocator.roundup_power2_division_count", divisions, "the kit takes one number"
        )
    if "garbage_collection_threshold" in allocator:
        threshold = allocator["garbage_collection_threshold"]
        settings.append(f"garbage_collection_threshold:{threshold}")
    found = {"PYTORCH_ALLOC_CONF": ",".join(settings)} if settings else {}
    if "PYTORCH_ALLOC_CONF" in found:  # the name that torch had before 2.9
        found["PYTORCH_CUDA_ALLOC_CONF"] = found["PYTORCH_ALLOC_CONF"]
    if "cublas_workspace_config" in runtime:
        found["CUBLAS_WORKSPACE_CONFIG"] = runtime["cublas_workspace_config"]
    return found


def _config(model, catalog):
    if len(model) != 1:
        raise Refused("model", sorted(model), "one source is required")
    (source, value), = model.items()
    if source == "name":
        path = catalog / f"{value}.json"
        if not path.is_file():
            raise Refused("model.name", value, "the catalog has no such model")
        value = json.loads(path.read_text(encoding="utf-8"))
    elif source == "transformer":
        value = _llama(value)
    if "model_type" not in value:
        raise Refused("model.hf_config", "no model_type", "transformers needs it")
    return value


# What a Llama of transformers is; a spelled-out architecture that says so runs as one.
LLAMA = {
    "activation": "silu",
    "gated_mlp": True,
    "norm": "rms-norm",
    "norm_placement": "pre",
    "qk_norm": "none",
    "position_embedding": "rotary",
    "hidden_dropout": 0,
    "attention_dropout": 0,
    "token_type_count": 0,
    "masked_lm_head": False,
    "sentence_head": False,
    "head": "language-model",
}
LLAMA_SIZES = {
    "hidden_size": "hidden_size",
    "layer_count": "num_hidden_layers",
    "head_count": "num_attention_heads",
    "kv_head_count": "num_key_value_heads",
    "head_size": "head_dim",
    "ffn_size": "intermediate_size",
    "vocab_size": "vocab_size",
    "tied_embeddings": "tie_word_embeddings",
    "mlp_bias": "mlp_bias",
}


def _llama(spec):
    """A spelled-out decoder as a Llama's config.json, where it is one."""
    if not spec.get("gated_mlp", False):
        raise Refused("model.transformer.gated_mlp", "false", "the kit runs Llama's shape alone")
    for name, value in LLAMA.items():
        if spec.get(name, value) != value:
            raise Refused(f"model.transformer.{name}", spec[name], f"Llama's is {value}")
    if spec.get("qkv_bias", False) != spec.get("attention_output_bias", False):
        raise Refused("model.transformer.qkv_bias", spec.get("qkv_bias", False), "Llama has all or none")
    known = {*LLAMA, *LLAMA_SIZES, "qkv_bias", "attention_output_bias"}
    for name in spec:
        if name not in known:
            raise Refused(f"model.transformer.{name}", spec[name], "Llama has none")
    config = {theirs: spec[ours] for ours, theirs in LLAMA_SIZES.items() if ours in spec}
    for ours in ("hidden_size", "layer_count", "head_count", "vocab_size"):
        _required(spec, f"model.transformer.{ours}")
    config.setdefault("num_key_value_heads", config["num_attention_heads"])
    config.setdefault("intermediate_size", 4 * config["hidden_size"])
    config.setdefault("tie_word_embeddings", False)
    config["attention_bias"] = spec.get("qkv_bias", False)
    return {"model_type": "llama", **config}


def _read_yaml(text):
    """PyYAML comes with transformers; a machine without a GPU may lack it."""
    import yaml  # pylint: disable=import-outside-toplevel

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError("no YAML: " + " ".join(str(error).split())) from None


def read_job(path):
    """The job of a YAML or JSON file, a path under model.hf_config replaced by what it holds."""
    path = pathlib.Path(path)
    text = path.read_text(encoding="utf-8")
    job = json.loads(text) if path.suffix == ".json" else _read_yaml(text)
    if not isinstance(job, dict):
        raise ValueError("no job: a mapping of fields is wanted")
    model = job.get("model", {})
    if isinstance(model.get("hf_config"), str):
        beside = path.parent / model["hf_config"]
        model["hf_config"] = json.loads(beside.read_text(encoding="utf-8"))
    return job


def read_gpus():
    return _read_yaml((CATALOG.parent / "gpus.yaml").read_text(encoding="utf-8"))


def gpu_of(name, gpus):
    """The catalog's id of a GPU that torch or nvidia-smi calls `name`, or None."""
    spelled = name.lower().replace(" ", "-")
    for gpu, facts in gpus.items():
        aliases = [gpu, *facts.get("aliases", [])]
        if spelled in (alias.lower().replace(" ", "-") for alias in aliases):
            return gpu
    return None
