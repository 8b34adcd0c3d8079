"""Jobs of the rows of measured speed: one mapping for each source.

What the memory sets know of a source (its network, its framework, how layers are dealt) is
used again here. A row of which no job is made is refused with its reason.
"""

import re

import bigscience_tables
import measured
import megatron_runs
import nanotron
import phantom
import torchtitan
from measured import Refused
from speed_refusals import GPUS, refuse

# Published tables that do not state the micro-batch: one sequence is taken, and recomputation
# and interleaving are as the row says, or the framework's usual. They are sets of their own.
MICRO_BATCH_TAKEN = ("mgs", "mlm24", "nem4", "lla3", "fold")
ADAM = {"name": "adam", "implementation": "fused"}
ADAMW = {"name": "adamw"}
FULL = {"mode": "full", "unit_layer_count": 1}
NONE = {"mode": "none"}
SELECTIVE = {"mode": "selective", "modules": ["core-attention"]}
FP16, BF16 = {"preset": "fp16-mixed"}, {"preset": "bf16-mixed"}
# Megatron-LM of 2021; later ones, with sequence parallelism, are Megatron-Core's ancestors.
MEGATRON_LM = {"framework": "megatron-lm", "versions": {"megatron-lm": "2.4"}}
MEGATRON_CORE = {"framework": "megatron-core"}
MEGATRON_DEEPSPEED = {"framework": "megatron-deepspeed", "vocab_size_divisor": 128}
# GPT-2's vocabulary as Megatron pads it: what its papers and vTrain use.
GPT2_VOCAB = 51200
# Layers, width and heads of the GPT-2s that BigScience's tables name by size alone: those of the
# logs of the same runs (data/bigscience_logs.csv).
BIGSCIENCE_SHAPES = {
    "GPT2-18B": (40, 6144, 32),
    "GPT2-30B": (48, 7168, 32),
    "GPT2-52B": (64, 8192, 32),
    "GPT2-65B": (64, 9216, 32),
    "GPT2-116B": (64, 12288, 32),
    "GPT2-206B": (64, 16384, 32),
}


def request_of(row):
    """The job of a row, as {"job": ...}."""
    refuse(row)
    if row.family not in SOURCES:
        raise Refused("a source that no mapping is for")
    job = SOURCES[row.family](row)
    degrees = job["parallelism"]
    ranks = row.number("tp") * row.number("pp", 1) * degrees.get("context_parallel_size", 1)
    if degrees["data_parallel_size"] * ranks != row.number("num_gpus"):
        raise Refused("the source's degrees do not give its GPUs")
    return {"job": job}


def _job(row, model, training, runtime, parallelism, **cluster):
    """A job of the row's batch, degrees and GPU, and of what its source adds."""
    size = row.number("micro_batch", 1 if row.family in MICRO_BATCH_TAKEN else None)
    batch = row.number("global_batch")
    if batch % (size * _data_parallel(row)):
        raise Refused("the global batch is no multiple of the micro-batches")
    return {
        "model": {"transformer": model},
        "training": {
            "sequence_length": row.number("seq_len"),
            "micro_batch_size": size,
            "global_batch_size": batch,
            **training,
        },
        "parallelism": {
            "data_parallel_size": _data_parallel(row),
            "tensor_parallel_size": row.number("tp"),
            "pipeline_parallel_size": row.number("pp"),
            **_interleaved(row),
            **_contexts(row),
            **parallelism,
        },
        "runtime": runtime,
        "cluster": {"gpu": GPUS[row.text("gpu")], **cluster},
    }


def _data_parallel(row):
    ranks = row.number("tp") * row.number("pp") * row.number("cp", 1)
    return row.number("dp", row.number("num_gpus") // ranks)


def _interleaved(row):
    if row.number("vp", 1) == 1 or row.number("pp") == 1:
        return {}
    return {"pipeline_schedule": "interleaved-1f1b", "virtual_pipeline_size": row.number("vp")}


def _contexts(row):
    """Rings, Transformer Engine's default (cp_comm_type p2p)."""
    if row.number("cp", 1) == 1:
        return {}
    return {"context_parallel_size": row.number("cp"), "context_parallel_method": "ring"}


def _zero_stage(row):
    return row.number("zero_stage", 0)


def _recompute(row):
    return FULL if row.text("recompute") == "full" else NONE


def _as_memory_row(row, **columns):
    """The row with the memory sets' columns, for their mappings."""
    steps = row.number("global_batch") // (row.number("micro_batch") * _data_parallel(row))
    return measured.Row({**row.columns(), "grad_accum": str(steps), **columns})


def _gpt(row, vocab, **more):
    """GPT-2's block, learned positions, the embedding tied to the head."""
    hidden = row.number("hidden")
    return {
        "hidden_size": hidden,
        "layer_count": row.number("layers"),
        "head_count": row.number("heads"),
        "kv_head_count": row.number("kv_heads", row.number("heads")),
        "ffn_size": row.number("ffn", 4 * hidden),
        "vocab_size": row.number("vocab", vocab),
        "position_count": row.number("seq_len"),
        **measured.GPT2_BLOCK,
        **more,
    }


def _nanotron(row):
    return nanotron.request_of(_as_memory_row(row, gpu="H100 80GB"))["job"]


def _vtrain(row, precision=FP16):
    training = {
        "precision": precision,
        "optimizer": ADAM,
        "recompute": _recompute(row),
        "attention": "eager",
    }
    degrees = {"zero_stage": _zero_stage(row), "sequence_parallel": False}
    return _job(row, _gpt(row, GPT2_VOCAB), training, MEGATRON_DEEPSPEED, degrees)


def _mosaicml(row):
    """llm-foundry: FSDP with Triton's flash attention, layers without biases. Mixed precision
    `PURE` reduces in bf16, `DEFAULT` in fp32."""
    plain = ("qkv_bias", "attention_output_bias", "mlp_bias")
    no_dropout = {"hidden_dropout": 0, "attention_dropout": 0}
    model = _gpt(row, None, **dict.fromkeys(plain, False), **no_dropout)
    reduce = "bf16" if "MP mode PURE" in row.notes else "fp32"
    training = {
        "precision": {**BF16, "reduce_dtype": reduce},
        "optimizer": ADAMW,
        "recompute": _recompute(row),
        "attention": "flash",
    }
    return _job(row, model, training, {"framework": "fsdp1"}, {"zero_stage": _zero_stage(row)})


def _megatron_b200(row):
    cut = re.sub(r"-cut\d+L$", "", row.text("model")).lower().replace("deepseek-v", "deepseekv")
    like = _as_memory_row(row, id=f"b200-{row.id}", model=cut, gpu="B200", sequence_parallel="")
    return megatron_runs.request_of(like)["job"]


def _bigscience(row):
    """Jean Zay: eight A100 or four V100 in a node, and four Omni-Path adapters of 100 Gb/s."""
    if _zero_stage(row) > 1:
        raise Refused("DeepSpeed's ZeRO 2 and 3 under Megatron")
    row = _bigscience_shape(row)
    vocab = {"250000": "250k", "": "50257"}.get(row.text("vocab"), row.text("vocab"))
    like = _as_memory_row(
        row, framework="Megatron-DeepSpeed", gpu="A100 80GB", precision="bf16", vocab=vocab
    )
    training = {
        "precision": {"preset": "bf16-optimizer"} if row.text("precision") == "bf16" else FP16,
        "optimizer": ADAM,
        "recompute": _recompute(row),
        "attention": "eager",
    }
    degrees = {
        "zero_stage": _zero_stage(row),
        "sequence_parallel": False,
        "pipeline_layout": bigscience_tables.layout(like),
    }
    model = bigscience_tables.request_of(like)["job"]["model"]["transformer"]
    gpus = 4 if row.text("gpu").startswith("V100") else 8
    node = {"gpus_per_node": gpus, "network_bytes_per_second": 4 * 12_500_000_000 // gpus}
    return _job(row, model, training, MEGATRON_DEEPSPEED, degrees, **node)


def _bigscience_shape(row):
    shape = {}
    if not row.text("hidden") and row.text("model") in BIGSCIENCE_SHAPES:
        layers, hidden, heads = BIGSCIENCE_SHAPES[row.text("model")]
        shape = {"layers": layers, "hidden": hidden, "heads": heads, "ffn": 4 * hidden}
    elif not row.text("layers"):
        shape = {"layers": _layers(row)}
    return measured.Row({**row.columns(), **{name: str(value) for name, value in shape.items()}})


def _layers(row):
    """Of tables that tweaked the number of layers without stating it: TFLOP/s and step time are
    of one count of FLOPs, 8 x 12 l h^2 a token."""
    rate, seconds = row.text("tflops_per_gpu"), row.text("step_s")
    if not rate or not seconds:
        raise Refused("the row does not state layers")
    flops = float(rate) * 1e12 * row.number("num_gpus") * float(seconds)
    tokens = row.number("global_batch") * row.number("seq_len")
    layers = flops / (8 * tokens * 12 * row.number("hidden") ** 2)
    if abs(layers - round(layers)) > 0.1:
        raise Refused("the row does not state layers")
    return round(layers)


def _torchtitan(row):
    like = _as_memory_row(
        row,
        gpu=row.text("gpu").replace("A100-80GB", "A100 80GB"),
        framework="torchtitan FSDP2",
        source_url_or_repo_path=row.text("source"),
        compile="yes" if "compile" in row.notes else "no",
    )
    job = torchtitan.request_of(like)["job"]
    if "selective layer" in row.notes:  # its default then: every other layer
        job["training"]["recompute"] = {"mode": "every-nth", "interval": 2}
    return job


def _gpt3(row):
    """Megatron-LM of 2020 and 2021, and SC21's ZeRO-3."""
    training = {
        "precision": FP16,
        "optimizer": ADAM,
        "recompute": _recompute(row),
        "attention": "eager",
    }
    runtime = {"framework": "deepspeed"} if _zero_stage(row) == 3 else MEGATRON_LM
    degrees = {"zero_stage": _zero_stage(row)}
    dgx2 = "DGX-2" in row.notes and row.number("num_gpus") >= 16
    node = {"gpus_per_node": 16} if dgx2 else {}
    return _job(row, _gpt(row, GPT2_VOCAB), training, runtime, degrees, **node)


def _megatron(row):
    """Megatron-LM from 2022 on: sequence parallelism, and a distributed optimizer where the row
    shards. On A100 attention is run again where the row does not say; flash attention, on H100,
    has nothing to gain from it."""
    h100 = row.text("gpu").startswith("H100")
    unsaid = NONE if h100 else SELECTIVE
    training = {
        "precision": BF16 if row.text("precision") == "bf16" else FP16,
        "optimizer": ADAM,
        "recompute": {"full": FULL, "none": NONE}.get(row.text("recompute"), unsaid),
        "attention": "flash" if h100 else "eager",
    }
    split = row.text("sequence_parallel") != "no" and row.number("tp") > 1
    degrees = {"zero_stage": min(_zero_stage(row), 1), "sequence_parallel": split}
    runtime = MEGATRON_CORE if split or degrees["zero_stage"] else MEGATRON_LM
    model = _nemotron4(row) if row.family == "nem4" else _gpt(row, GPT2_VOCAB)
    return _job(row, model, training, runtime, degrees)


def _nemotron4(row):
    model = _gpt(row, None, activation="relu2", position_embedding="rotary")
    del model["position_count"]
    plain = ("qkv_bias", "attention_output_bias", "mlp_bias", "tied_embeddings")
    return {**model, **dict.fromkeys(plain, False), "hidden_dropout": 0, "attention_dropout": 0}


# Recipes of Transformer Engine, by the words of the rows. NeMo 24's "FP8" is its recipes' default,
# the delayed one; Megatron Bridge's is current scaling, with fp8 weights (its performance recipes).
FP8_RECIPES = {"fp8-cs": "tensorwise", "mxfp8": "mxfp8", "fp8-mx": "mxfp8"}


def _fp8(row, plain, **more):
    """The precision of a row whose layers multiply in fp8, or not."""
    words = row.text("precision").lower()
    if "nvfp4" in words:
        return {"preset": "fp4-mixed"}
    if "fp8" not in words:
        return BF16
    if "not in table" in words:
        raise Refused("the row does not state precision")
    return {"preset": "fp8-mixed", "fp8_recipe": FP8_RECIPES.get(words, plain), **more}


def _nemo(row):
    """NVIDIA NeMo's published tables: a distributed optimizer, and nothing run again where the row
    does not say; selective recomputation on A100, where attention is eager."""
    if "LoRA" in row.text("model"):
        raise Refused("adapters")
    h100 = row.text("gpu").startswith("H100")
    training = {
        "precision": _fp8(row, "delayed"),
        "optimizer": ADAM,
        "recompute": FULL if row.text("recompute") == "full" else (NONE if h100 else SELECTIVE),
        "attention": "flash" if h100 else "eager",
    }
    split = row.number("tp") > 1 and row.text("sequence_parallel") != "no"
    degrees = {"zero_stage": 1, "sequence_parallel": split}
    return _job(row, _nemo_model(row), training, MEGATRON_CORE, degrees)


def _nemo_model(row):
    name = row.text("model")
    if name.startswith("Nemotron"):
        return _nemotron4(row)
    return _gpt(row, GPT2_VOCAB) if name.startswith("GPT") else measured.decoder(row)


# Models of Megatron Bridge's tables, by what their names begin with.
ROUTED = {
    "Qwen3-30B-A3B": {"expert_count": 128, "active_expert_count": 8, "expert_ffn_size": 768,
                      "ffn_size": 6144},
    "Qwen3_235B_a22B": {"expert_count": 128, "active_expert_count": 8, "expert_ffn_size": 1536,
                        "ffn_size": 12288},
    "DeepSeekV3": {**megatron_runs.DEEPSEEK_V3, "dense_layer_count": 3},
    "Kimi_K2": {**megatron_runs.DEEPSEEK_V3, "head_count": 64, "expert_count": 384,
                "dense_layer_count": 1},
    "Moonlight": megatron_runs.MOONLIGHT,
}  # fmt: skip


def _routed(row):
    """Experts of a row: all-to-all stands for what a newer dispatcher sends."""
    found = (more for name, more in ROUTED.items() if row.text("model").startswith(name))
    experts = next(found, None)
    if experts is None:
        raise Refused("experts with biases, or beside state-space layers")
    if "EP overlap on" in row.notes or "tuned" in row.notes or "search run" in row.notes:
        raise Refused("layers of two micro-batches in turns")
    moonlight = row.text("model").startswith("Moonlight")
    modules = row.text("recompute").partition("selective:")[2]
    training = {
        "precision": {
            **_fp8(row, "tensorwise", fp8_parameters=True),
            **(megatron_runs.IN_16_BITS if moonlight else {}),
        },
        "optimizer": ADAM,
        "recompute": _modules(modules) if modules else NONE,
        "mtp_layer_count": int("w/ MTP" in row.text("model")),
    }
    split = {
        "zero_stage": 1,
        "sequence_parallel": row.number("tp") > 1,
        "expert_parallel_size": row.number("ep"),
        "expert_tensor_parallel_size": 1,
        "token_dispatcher": "all-to-all",
    }
    chunks = row.number("pp") * row.number("vp", 1)
    layout = next((of for name, of in LAYOUTS.items() if row.text("model").startswith(name)), None)
    if layout is not None and row.number("layers") % chunks > 0:
        split["pipeline_layout"] = layout(row.number("layers"), chunks)
    model = megatron_runs.decoder(row, experts)
    runtime = {**MEGATRON_CORE, "grouped_gemm": True}
    if moonlight:
        runtime["versions"] = {"megatron-core": "0.18"}
    return _job(row, model, training, runtime, split)


def _modules(names):
    again = [megatron_runs.AGAIN[name] for name in names.split("+")]
    return {"mode": "selective", "modules": again}


def _deepseek_layout(layers, chunks):
    """As many layers each as 64 would be, the rest beside the loss. Source: Megatron-Bridge,
    recipes/deepseek/deepseek_v3.py, set_deepseek_v3_pipeline_model_parallel_layout."""
    width = -(-layers // chunks)
    return [width] * (chunks - 1) + [layers - width * (chunks - 1)]


def _even_layout(layers, chunks):
    """The embedding counts as a layer, and the loss. Source: Megatron-Bridge, recipes/qwen,
    qwen3_235b_a22b_pretrain_config (account_for_embedding_in_pipeline_split, account_for_loss_...)."""
    width = (layers + 2) // chunks
    return [width - 1] + [width] * (chunks - 2) + [width - 1]


LAYOUTS = {
    "DeepSeekV3": _deepseek_layout,
    "Kimi_K2": _deepseek_layout,
    "Qwen3_235B": _even_layout,
}


def _bridge(row):
    """Megatron Bridge's published tables."""
    if _zero_stage(row) == 3:
        raise Refused("Megatron-FSDP")
    if row.number("ep", 1) > 1 or any(row.text("model").startswith(name) for name in ROUTED):
        return _routed(row)
    modules = row.text("recompute").partition("selective:")[2]
    training = {
        "precision": _fp8(row, "tensorwise", fp8_parameters=True),
        "optimizer": ADAM,
        "recompute": (
            _modules(modules) if modules else (FULL if row.text("recompute") == "full" else NONE)
        ),
        "attention": "flash",
    }
    degrees = {"zero_stage": 1, "sequence_parallel": row.number("tp") > 1}
    return _job(row, measured.decoder(row), training, MEGATRON_CORE, degrees)


# The experts of MoE Parallel Folding's models: of all, of each token, and the width of one. Its
# fine-grained Mixtral has eight of an eighth for each (G8T8); Qwen 2's shared expert is without the
# gate that Megatron-Core has not. Source: arXiv 2504.14960, section 4.1 and table 2.
FOLDED = {
    "Mixtral-8x22B": {"expert_count": 8, "active_expert_count": 2, "expert_ffn_size": 16384},
    "Mixtral-8x22B-G8T8": {"expert_count": 64, "active_expert_count": 8, "expert_ffn_size": 2048},
    "Qwen2-57B-A14B": {"expert_count": 64, "active_expert_count": 8, "expert_ffn_size": 2560,
                       "shared_expert_ffn_size": 20480},
    "Llama3-8x70B": {"expert_count": 8, "active_expert_count": 2, "expert_ffn_size": 28672},
}  # fmt: skip


def _folded(row):
    """MoE Parallel Folding: one sequence at once, as many tokens for each expert (capacity factor
    1); experts' matrices whole where the layouts are folded, else split as attention's are. Its
    FSDP is Megatron's own."""
    method = row.note(r"method ([^;]+);")
    if "FSDP" in method:
        raise Refused("Megatron-FSDP")
    if not row.text("pp"):  # a row that splits its matrices, and no layers
        row = measured.Row({**row.columns(), "pp": "1"})
    experts = FOLDED[row.text("model")]
    tensor = row.number("tp")
    training = {"precision": _fp8(row, "delayed"), "optimizer": ADAM, "attention": "flash"}
    split = {
        "zero_stage": 1,
        "sequence_parallel": tensor > 1,
        "expert_parallel_size": row.number("ep"),
        "expert_tensor_parallel_size": 1 if "Folding" in method else tensor,
        "token_dispatcher": "all-to-all",
    }
    ffn = row.text("ffn") or str(experts["expert_ffn_size"])
    model = {**measured.decoder(measured.Row({**row.columns(), "ffn": ffn})), **experts}
    return _job(row, model, training, {**MEGATRON_CORE, "grouped_gemm": True}, split)


def _llama3(row):
    training = {"precision": BF16, "optimizer": ADAMW, "attention": "flash"}
    degrees = {"zero_stage": 1, "sequence_parallel": row.number("tp") > 1}
    return _job(row, measured.decoder(row), training, MEGATRON_CORE, degrees)


def _mt_nlg(row):
    if not row.text("model").startswith("MT-NLG"):
        raise Refused("the configuration is not stated")
    return _vtrain(row, precision={"preset": "bf16-optimizer"})


def _fsdp1(row):
    """fms-fsdp. HSDP shards in a node and replicates across nodes."""
    training = {
        "precision": BF16,
        "optimizer": ADAMW,
        "recompute": _recompute(row),
        "attention": "flash",
    }
    groups = {"shard_group_size": 8} if row.notes.startswith("HSDP") else {}
    degrees = {"zero_stage": 3, **groups}
    return _job(row, measured.decoder(row), training, {"framework": "fsdp1"}, degrees)


def _deepspeed(row):
    training = {
        "precision": BF16,
        "optimizer": ADAMW,
        "recompute": _recompute(row),
        "attention": "flash",
    }
    runtime = {"framework": "deepspeed", "trainer": "hf-trainer"}
    return _job(row, measured.decoder(row), training, runtime, {"zero_stage": _zero_stage(row)})


def _torchtune(row):
    """The steps of its README, each on top of the one before: packed samples, compilation, a
    chunked loss, recomputation."""
    chunked, checkpointed = "+ Chunked Cross Entropy", "+ Activation Checkpointing"
    steps = ("+ Packed Dataset", "+ Compile", chunked, checkpointed)
    step = row.note(r'cumulative step "([^"]+)"', "")
    if step not in steps:
        raise Refused("the recipe is not stated")
    later = steps.index(step) >= 2
    training = {
        "precision": {"preset": "bf16-pure"},
        "optimizer": ADAMW,
        "recompute": _recompute(row),
        "loss": {"implementation": "chunked-cross-entropy" if later else "plain"},
    }
    runtime = {"framework": "ddp", "trainer": "torchtune", "compile": step != steps[0]}
    return _job(row, measured.decoder(row), training, runtime, {"zero_stage": 0})


def _card(row):
    """A job of the phantom's rows on a real GPU of its own, phantom/card.py."""
    job = phantom.request_of(measured.Row({**row.columns(), "measured_value": "0"}))["job"]
    degrees = {"data_parallel_size": row.number("num_gpus"), "pipeline_parallel_size": 1}
    job["parallelism"] |= degrees
    job["cluster"]["gpu"] = GPUS[row.text("gpu")]
    return job


SOURCES = {
    "usp": _nanotron,
    "vts": _vtrain,
    "vtm": _vtrain,
    "llmf": _mosaicml,
    "smx": _megatron_b200,
    "bsc": _bigscience,
    "bsv": _bigscience,
    "bs1": _bigscience,
    "titan": _torchtitan,
    "sc21": _gpt3,
    "sc21z": _gpt3,
    "mlm20": _gpt3,
    "kor": _megatron,
    "mgs": _megatron,
    "mlm24": _megatron,
    "nem4": _megatron,
    "lla3": _llama3,
    "nemo": _nemo,
    "nml": _nemo,
    "mbr": _bridge,
    "mbs": _bridge,
    "fold": _folded,
    "misc": _mt_nlg,
    "fms": _fsdp1,
    "gist": _deepspeed,
    "tune": _torchtune,
    "card": _card,
}
