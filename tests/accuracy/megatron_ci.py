"""Megatron-LM's own CI: `mcore` rows, peaks that its tests keep as golden values.

torch's allocated_bytes.all.peak on the last global rank, that is, on the last
pipeline stage. The notes give the command line (`other args: ...`) but for
what has a column or plainly moves no memory. Every argument is judged here:
mapped, without effect on memory, or refused; one that is in no table is
refused too, never skipped.
"""

import re

import measured
from measured import Prediction, Refused

FAMILIES = ("mcore",)
GPUS = {"A100": "a100-80gb-sxm", "H100": "h100-80gb-sxm", "GB200": "gb200-186gb"}

# Arguments that request_of reads.
MAPPED = frozenset(
    """context-parallel-size cp-comm-type cross-entropy-loss-fusion cross-entropy-fusion-impl account-for-embedding-in-pipeline-split account-for-loss-in-pipeline-split attention-backend
    attention-dropout bf16 decoder-first-pipeline-num-layers decoder-last-pipeline-num-layers
    disable-bias-linear ffn-hidden-size fp16 fp8-format fp8-recipe fp8-param-gather group-query-attention hidden-dropout kv-channels
    defer-embedding-wgrad-compute wgrad-deferral-limit overlap-p2p-communication-warmup-flush
    make-vocab-size-divisible-by moe-ffn-hidden-size moe-grouped-gemm moe-router-dtype
    moe-router-topk moe-shared-expert-intermediate-size moe-token-dispatcher-type num-experts
    mtp-num-layers no-create-attention-mask-in-dataloader
    no-gradient-accumulation-fusion normalization num-distributed-optimizer-instances
    num-layers-per-virtual-pipeline-stage num-query-groups num-virtual-stages-per-pipeline-rank
    optimizer position-embedding-type qk-layernorm recompute-granularity recompute-method
    recompute-modules recompute-num-layers sequence-parallel spec squared-relu swiglu tokenizer-type
    multi-latent-attention q-lora-rank kv-lora-rank qk-head-dim qk-pos-emb-head-dim v-head-dim
    transformer-impl untie-embeddings-and-output-weights use-distributed-optimizer vocab-size
    use-rotary-position-embeddings no-use-layer-wise-param-layout use-megatron-fsdp
    megatron-fsdp-main-params-dtype megatron-fsdp-main-grads-dtype
    megatron-fsdp-grad-comm-dtype""".split()
)

# Arguments without effect on the peak, and why.
IRRELEVANT = {
    "adam-beta1 adam-beta2 adam-eps decoupled-lr decoupled-min-lr seed init-method-std norm-epsilon"
    " weight-decay lr clip-grad": "numbers of the same run",
    "no-ckpt-fully-parallel-save no-ckpt-load-validate-sharding-integrity finetune no-load-optim"
    " no-load-rng async-save ckpt-format verify-integrity use-checkpoint-args"
    " ckpt-assume-constant-structure ckpt-fully-parallel-load dist-ckpt-optim-fully-reshardable"
    " async-strategy async-ckpt-use-cpu-shm": "checkpoints lie outside the step",
    "mtp-loss-scaling-factor": "a factor of a loss",
    "fim-data fim-rate fim-spm-rate no-mmap-bin-files mock-data num-workers": "data on the host",
    "apply-query-key-layer-scaling attention-softmax-in-fp32": "inside the fused softmax kernel",
    "apply-layernorm-1p": "adds one to a vector",
    "calculate-per-token-loss no-check-for-nan-in-loss-and-grad check-for-large-grads": "scalars",
    "rampup-batch-size step-batch-size-schedule": "later steps have more micro-batches, not larger",
    "no-persist-layer-norm": "another kernel that keeps the same",
    "ddp-average-in-collective overlap-grad-reduce overlap-param-gather": "in place, in views",
    "disable-gloo-process-groups distributed-timeout-minutes use-tp-pp-dp-mapping te-rng-tracker"
    " manual-gc": "hosts and groups",
    "rotary-base rotary-percent rotary-interleaved rotary-scaling-factor mscale mscale-all-dim"
    " no-rope-fusion": "rotary tables are small, and its inputs are not kept",
    "moe-router-load-balancing-type moe-aux-loss-coeff": "numbers of tokens x experts",
    "no-bias-gelu-fusion": "gelu keeps its input either way",
    "muon-momentum muon-extra-scale-factor muon-scale-mode": "numbers of the same step",
    "use-mcore-models test-mode check-weight-hash-across-dp-replicas-interval rerun-mode": "selects"
    " code, or checks it",
    "expert-model-parallel-size expert-tensor-parallel-size": "have columns",
}
HARMLESS = frozenset(word for words in IRRELEVANT for word in words.split())

# What makes a row special, in the words of the refusal.
SPECIAL = {
    "use-torch-fsdp2": "torch FSDP2 under Megatron",
    "cuda-graph-impl": "CUDA graphs",
    "is-hybrid-model": "state-space layers",
    "hybrid-layer-pattern": "state-space layers",
    "fine-grained-activation-offloading": "activation offload",
    "experimental-attention-variant": "experimental attention",
    "use-mup": "muP",
    "mtp-use-repeated-layer": "one layer that predicts several tokens",
    "export-te-mcore-model": "distillation",
}

# What dense rows are refused for.
REFUSED = {
    "overlap-param-gather-with-optimizer-step": "gathering during the optimizer step",
    "no-masked-softmax-fusion": "softmax without Megatron's fused kernel",
    "tp-comm-overlap-cfg": "user buffers of overlapped tensor parallelism",
    "tp-comm-overlap": "user buffers of overlapped tensor parallelism",
    "pipeline-model-parallel-layout": "a pipeline layout in Megatron's words",
    "grad-reduce-in-bf16": "gradients reduced in bf16",
    "overlap-moe-expert-parallel-comm": "layers of two micro-batches in turns",
}

CONTEXT_METHODS = {"p2p": "ring", "a2a": "ulysses", "all_gather": "all-gather"}
DISPATCHERS = {"allgather": "all-gather", "alltoall": "all-to-all"}
RECOMPUTE_MODULES = {"core_attn": "core-attention", "layernorm": "norm", "mlp": "mlp"}

# Tests with --microbatch-group-size-per-virtual-pipeline-stage=5, which the notes leave out.
# Source: their model_config.yaml, Megatron-LM d98e8a64.
TUNABLE = re.compile(r"_tunable_overlap")

# BERT's word pieces: those of bert-base-uncased since the data are Common Pile's (febd25e3fb,
# tools/common_pile_dataset). The Pile's file before that was bert-large-cased's, as what ends of
# steps hold says to 2 MiB at three degrees of tensor parallelism.
BERT_VOCAB_SINCE = "2026-03-22"
BERT_VOCAB = 30522
BERT_CASED_VOCAB = 28996
# The torch of the `dev` images, by the day that they changed: NGC 26.04, 26.02 and 25.11
# (docker/.ngc_version.dev). Before that all had 25.09, which the `lts` images kept.
TORCH_OF_DEV = (("2026-05-07", "2.12"), ("2026-03-05", "2.11"), ("2026-01-14", "2.10"))
TORCH_OF_LTS = "2.9"
# The commit that moved golden values which were older: those of `dev` on A100 are of January 2025
# (NGC 24.10), those of `lts` of 24.01 (git log --follow of each file; .gitlab/stages/01.build.yml).
MOVED = "adc69dba2"
TORCH_MOVED = {"dev_dgx_a100": "2.5", "lts": "2.2"}
# Tests with experts, and images, whose values that commit moved and that are older than 2659630721 of
# April 2025, from when on experts know weights. All others are older than 56818f9e50, index_add.
BEFORE_WEIGHTS = {
    "dev_dgx_a100": """te_tp2_pp1_te_8experts2parallel_dist_optimizer
        te_tp2_pp1_te_8experts2parallel_top2router
        te_tp2_pp1_resume_torch_dist_te_8experts2parallel_top2router""".split(),
    "lts_dgx_a100": """te_tp2_pp1_te_8experts2parallel_dist_optimizer
        te_tp2_pp1_te_8experts2parallel_top2router
        te_tp2_pp1_te_8experts2parallel_overlap_grad_reduce_param_gather_groupedGEMM
        te_tp2_pp1_resume_torch_dist_te_8experts2parallel_top2router
        te_tp1_pp2_resume_torch_dist_reshard_2x1x4_te_8experts2parallel_dist_optimizer
        tp2_pp2_ep2_resume_torch_dist_te_4experts2parallel
        te_ep8_resume_torch_dist_dist_optimizer""".split(),
}
# The commit that only reformatted golden values, and the tests on GB200 without
# CUBLAS_WORKSPACE_CONFIG whose values are older than those images (git log of each file).
REFORMATTED = "93ebf8d72"
OLDER = re.compile(
    r"(?<!pp2_cp2)(?<!pp2_cp2_calculate_per_token_loss)_1node$"
    r"|_resume_torch_dist_(cross_entropy_loss_fusion|reshard_\w+)$|nondeterministic_dp_last$"
)

# Tests whose configuration allows nondeterministic kernels, and those that do not set
# CUBLAS_WORKSPACE_CONFIG; all the others set it to :4096:8.
NONDETERMINISTIC = re.compile(r"nondeterministic|cross_entropy_loss_fusion|_reshard_|_release")
WORKSPACE_UNSET = re.compile(
    r"^(?!gpt3_mcore_cp2_pp2_ep2).*(nondeterministic|cross_entropy_loss_fusion|_reshard_|_release)"
    r"|_tp2_pp2_cp2(_|$)|_etp1_(selective_recompute_experimental|resume_torch_dist_attn_cudagraph)"
)


def arguments(row):
    """The command line of the notes, by name; True for one without a value."""
    text = row.notes.partition("other args:")[2]
    found = re.findall(r"--([\w-]+)(?:[= ]((?!--)[^;]*?))?\s*(?=--|;|$)", text)
    return {name: value if value else True for name, value in found}


def sets_of(row):
    args = arguments(row)
    new = "fp8-format" in args or "mtp-num-layers" in args or _fsdp(args)
    if _special(row, args) or new:
        return ["megatron_ci special"]
    return ["megatron_ci experts" if _experts(row, args) else "megatron_ci dense"]


def features_of(row):
    args = arguments(row)
    distributed = "use-distributed-optimizer" in args
    recompute = args.get("recompute-granularity", "none")
    return {
        **measured.common_features(row, int(distributed)),
        "virtual pipeline": "yes" if _virtual_stages(row, args) > 1 else "no",
        "recompute": recompute,
        "distributed optimizer": "yes" if distributed else "no",
        "precision": row.text("precision"),
        "gpu": _gpu(row),
        "attention": _attention(row, args),
        "implementation": args.get("transformer-impl", "transformer_engine"),
        "sequence parallel": "yes" if "sequence-parallel" in args else "no",
        "resumed run": "yes" if _resumed(row) else "no",
    }


def predict(row, answer):
    rank = measured.stage_of(answer, -1)
    extra = {
        **measured.debug_extra(rank),
        "measured_end_of_step": _mib(row.note(r"steady current allocated ([\d.]+) MiB")),
        "measured_first_step_peak": _mib(row.note(r"first logged step peak ([\d.]+) MiB")),
    }
    return Prediction(*measured.gauge(rank, "allocated"), extra, "allocated")


def request_of(row):
    args = arguments(row)
    _refuse(row, args)
    training = {
        "sequence_length": row.number("seq_len"),
        "micro_batch_size": row.number("micro_batch"),
        "global_batch_size": measured.global_batch(row),
        "precision": _precision(row, args),
        "optimizer": _optimizer(args),
        "recompute": _recompute(args),
        "mtp_layer_count": int(args.get("mtp-num-layers", 0)),
        "attention": _attention(row, args),
        "loss": _loss(args),
    }
    if _resumed(row):
        training["resumed_from_checkpoint"] = True
    job = {
        "model": {"transformer": _transformer(row, args)},
        "training": training,
        "parallelism": _parallelism(row, args),
        "runtime": _runtime(row, args),
        "cluster": {"gpu": GPUS[_gpu(row)]},
    }
    return {"job": job}


def _optimizer(args):
    muon = args.get("optimizer", "adam") == "muon"
    return {"name": "muon"} if muon else {"name": "adam", "implementation": "fused"}


def _mib(text):
    return round(float(text) * 2**20) if text else ""


def _golden(row):
    return row.note(r"golden (\S+) \(last commit", "")


def _date(row):
    """Of the golden values."""
    return row.note(r"\(last commit \S+ (\d{4}-\d\d-\d\d)\)", "9999")


def _test(row):
    return row.text("model").partition(" ")[0]


def _gpu(row):
    """Golden values that name no GPU are of A100."""
    named = re.search(r"a100|gb200|h100", _golden(row))
    return row.text("gpu") or (named.group().upper() if named else "A100")


def _special(row, args):
    for name, reason in SPECIAL.items():
        if name in args:
            return reason
    if args.get("optimizer", "adam") not in ("adam", "muon"):
        return f"optimizer {args['optimizer']}"
    if _fsdp(args) and "fp8-format" in args:
        return "fp8 under Megatron-FSDP"
    if "FSDP" in row.text("framework") and not _fsdp(args):
        return "Megatron-FSDP without its flag"
    return None


def _fsdp(args):
    return "use-megatron-fsdp" in args


def _experts(row, args):
    return "num-experts" in args or bool(row.text("ep")) or "(moe)" in row.text("model")


def _refuse(row, args):
    """Raises Refused for what the API or the estimator has no word for."""
    reason = _special(row, args)
    if reason:
        raise Refused(reason)
    for name, reason in REFUSED.items():
        if name in args:
            raise Refused(reason)
    if args.get("spec", "local") != "local":
        raise Refused("a layer specification of its own")
    for name in args:
        if name not in MAPPED and name not in HARMLESS:
            raise Refused(f"argument not judged yet: --{name}")
    if _gpu(row) not in GPUS:
        raise Refused(f"no GPU id for {_gpu(row)!r}")
    if row.text("what_is_measured") != "allocated":
        raise Refused(f"what is measured: {row.text('what_is_measured')!r}")


def _transformer(row, args):
    heads, hidden = row.number("heads"), row.number("hidden")
    bias = "disable-bias-linear" not in args
    gated = "swiglu" in args
    rotary = _rotary(args)
    model = {
        "hidden_size": hidden,
        "layer_count": row.number("layers"),
        "head_count": heads,
        "kv_head_count": int(args.get("num-query-groups", heads)),
        "ffn_size": _ffn(row, args),
        "vocab_size": _vocab(row, args),
        "activation": "silu" if gated else "relu2" if "squared-relu" in args else "gelu",
        "gated_mlp": gated,
        "norm": "rms-norm" if args.get("normalization") == "RMSNorm" else "layer-norm",
        "qkv_bias": bias,
        "attention_output_bias": bias,
        "mlp_bias": bias,
        "qk_norm": "per-head" if "qk-layernorm" in args else "none",
        "tied_embeddings": "untie-embeddings-and-output-weights" not in args,
        "position_embedding": "rotary" if rotary else "learned",
        "hidden_dropout": float(args.get("hidden-dropout", 0.1)),
        "attention_dropout": float(args.get("attention-dropout", 0.1)),
    }
    if _bert(row):
        model.update({"token_type_count": 2, "masked_lm_head": True, "sentence_head": True})
    if _experts(row, args):
        model.update(
            {
                "expert_count": int(args["num-experts"]),
                "active_expert_count": int(args["moe-router-topk"]),
                "expert_ffn_size": int(args.get("moe-ffn-hidden-size", _ffn(row, args))),
            }
        )
        shared = int(args.get("moe-shared-expert-intermediate-size", 0))
        if shared:
            model["shared_expert_ffn_size"] = shared
    if "multi-latent-attention" in args:
        model.update(_latent(args))
    elif "kv-channels" in args:
        model["head_size"] = int(args["kv-channels"])
    if not rotary:
        model["position_count"] = row.number("seq_len")
    return model


def _latent(args):
    """Its projections have no biases; a head is what is rotated and what is not."""
    rotary = int(args.get("qk-pos-emb-head-dim", 64))
    latent = {
        "key_value_rank": int(args.get("kv-lora-rank", 32)),
        "rotary_head_size": rotary,
        "head_size": int(args.get("qk-head-dim", 128)) + rotary,
        "value_head_size": int(args.get("v-head-dim", 128)),
        "qkv_bias": False,
        "qk_norm": "per-rank" if "qk-layernorm" in args else "none",
    }
    if "q-lora-rank" in args:
        latent["query_rank"] = int(args["q-lora-rank"])
    return latent


def _bert(row):
    return "(bert)" in row.text("model")


def _rotary(args):
    named = args.get("position-embedding-type") == "rope"
    return named or "use-rotary-position-embeddings" in args


def _ffn(row, args):
    """Megatron's own width of a gated MLP that the command line leaves open."""
    if "ffn-hidden-size" in args:
        return int(args["ffn-hidden-size"])
    if "swiglu" in args:
        return int(row.number("hidden") * 4 * 2 / 3 / 64) * 64
    return 4 * row.number("hidden")


def _vocab(row, args):
    if _bert(row):
        return BERT_VOCAB if _date(row) >= BERT_VOCAB_SINCE else BERT_CASED_VOCAB
    tokenizer = args.get("tokenizer-type", "GPT2BPETokenizer")
    if tokenizer == "NullTokenizer":
        return int(args.get("vocab-size", row.text("vocab") or 0)) + 1  # and its end of document
    if tokenizer == "GPT2BPETokenizer":
        return row.number("vocab", 50257)
    return row.number("vocab")


def _precision(row, args):
    if "fp8-format" in args:
        return {
            "preset": "fp8-mixed",
            "fp8_recipe": args.get("fp8-recipe", "delayed"),
            "fp8_parameters": "fp8-param-gather" in args,
        }
    if "bf16" in args or row.text("precision") == "bf16":
        precision = {"preset": "bf16-mixed", "gradient_accumulation_dtype": "fp32"}
        if "moe-router-dtype" in args:
            precision["router_dtype"] = args["moe-router-dtype"]
        return precision
    return {"preset": "fp16-mixed" if "fp16" in args else "fp32"}


def _recompute(args):
    mode = args.get("recompute-granularity")
    if mode is None:
        return {"mode": "none"}
    if mode == "full":
        if args.get("recompute-method") != "uniform":
            raise Refused("recomputation of the first layers of each stage alone")
        return {"mode": "full", "unit_layer_count": int(args.get("recompute-num-layers", 1))}
    modules = re.findall(r"\w+", args.get("recompute-modules", "core_attn"))
    unknown = [name for name in modules if name not in RECOMPUTE_MODULES]
    if unknown:
        raise Refused(f"recomputation of {unknown[0]}")
    return {"mode": "selective", "modules": [RECOMPUTE_MODULES[name] for name in modules]}


def _loss(args):
    """`te` is Transformer Engine's own kernel, which the API has no word for."""
    if "cross-entropy-loss-fusion" not in args:
        return {"implementation": "plain"}
    if args.get("cross-entropy-fusion-impl", "native") != "native":
        raise Refused("Transformer Engine's cross entropy")
    return {"implementation": "fused-cross-entropy"}


def _attention(row, args):
    """The kernel that ran. `auto` of Transformer Engine depends on the image:

    up to October 2025 the `lts` images had no deterministic flash kernel and
    fell back to the unfused one where the test asks for determinism; later
    ones, and all `dev` images, took flash on A100 and GB200 and cuDNN's on H100.
    """
    if _local(args) or args.get("attention-backend") == "local":
        return "eager"
    backend = args.get("attention-backend", "auto")
    if backend != "auto":
        return {"unfused": "eager", "flash": "flash", "fused": "cudnn"}.get(backend, "auto")
    old = _golden(row).startswith("lts") and _date(row) < "2025-11"
    if old and not NONDETERMINISTIC.search(_test(row)):
        return "eager"
    return "cudnn" if _gpu(row) == "H100" else "flash"


def _virtual_stages(row, args):
    if "num-virtual-stages-per-pipeline-rank" in args:
        return int(args["num-virtual-stages-per-pipeline-rank"])
    if "num-layers-per-virtual-pipeline-stage" in args:
        per_chunk = int(args["num-layers-per-virtual-pipeline-stage"])
        return row.number("layers") // row.number("pp", 1) // per_chunk
    return 1


def _parallelism(row, args):
    tensor = row.number("tp", 1)
    # Both tests of Megatron-FSDP in bf16 shard weights too (optim_grads_params).
    stage = 3 if _fsdp(args) else int("use-distributed-optimizer" in args)
    split = measured.parallelism(row, stage)
    split["sequence_parallel"] = "sequence-parallel" in args and tensor > 1
    contexts = row.number("cp", 1)
    if contexts > 1:
        split["context_parallel_size"] = contexts
        method = args.get("cp-comm-type", "p2p")
        if method not in CONTEXT_METHODS:
            raise Refused(f"context parallelism by {method}")
        split["context_parallel_method"] = CONTEXT_METHODS[method]
    instances = int(args.get("num-distributed-optimizer-instances", 1))
    if instances > 1:
        split["shard_group_size"] = row.number("dp", 1) * contexts // instances
    if _experts(row, args):
        split["expert_parallel_size"] = row.number("ep", 1)
        if "expert-tensor-parallel-size" in args:
            split["expert_tensor_parallel_size"] = int(args["expert-tensor-parallel-size"])
        split["token_dispatcher"] = DISPATCHERS[args.get("moe-token-dispatcher-type", "allgather")]
    virtual = _virtual_stages(row, args)
    if TUNABLE.search(_test(row)):
        split["micro_batch_group_size"] = 5
    if virtual > 1:
        split["pipeline_schedule"] = "interleaved-1f1b"
        split["virtual_pipeline_size"] = virtual
    layout = _layout(row, args)
    if layout:
        split["pipeline_layout"] = layout
    return split


def _layout(row, args):
    """Layers per (virtual) stage where the command line makes them uneven, else None."""
    layers, stages = row.number("layers"), row.number("pp", 1)
    if "account-for-embedding-in-pipeline-split" in args or (
        "account-for-loss-in-pipeline-split" in args
    ):
        embedding = int("account-for-embedding-in-pipeline-split" in args)
        loss = int("account-for-loss-in-pipeline-split" in args)
        chunks = stages * _virtual_stages(row, args)
        counts = [(layers + embedding + loss) // chunks] * chunks
        counts[0] -= embedding
        counts[-1] -= loss
        return counts
    first, last = (_end(args, end) for end in ("first", "last"))
    if not first and not last:
        return None
    middle_stages = stages - len(first) - len(last)
    each = (layers - sum(first) - sum(last)) // middle_stages if middle_stages else 0
    return first + [each] * middle_stages + last


def _end(args, end):
    """The layers of the first or the last stage in a list, empty where they are not given."""
    count = args.get(f"decoder-{end}-pipeline-num-layers")
    return [] if count is None else [int(count)]


def _runtime(row, args):
    runtime = {
        "framework": "megatron-core",
        "transformer_implementation": "local" if _local(args) else "transformer-engine",
        "vocab_size_divisor": int(args.get("make-vocab-size-divisible-by", 128)),
        "gradient_accumulation_fusion": "no-gradient-accumulation-fusion" not in args,
        "attention_mask": "no-create-attention-mask-in-dataloader" not in args,
    }
    if _fsdp(args):
        runtime["overlap_communication"] = "overlap-grad-reduce" in args
    if "defer-embedding-wgrad-compute" in args:
        limit = int(args.get("wgrad-deferral-limit", 0))
        micro_batches = row.number("grad_accum", 1)
        runtime["deferred_embedding_gradient_count"] = limit or micro_batches
    if _experts(row, args):
        runtime["grouped_gemm"] = "moe-grouped-gemm" in args
        runtime["deterministic"] = not NONDETERMINISTIC.search(_test(row))
    if not WORKSPACE_UNSET.search(_test(row)):
        runtime["cublas_workspace_config"] = ":4096:8"
    versions = {}
    blackwell = "cublas_workspace_config" not in runtime and _gpu(row) == "GB200"
    if blackwell or _resumed(row) or "cross-entropy-loss-fusion" in args:
        versions["torch"] = _torch(row)
    if row.note(r"\(last commit (\S+) \d") == MOVED:
        if _experts(row, args) or _fsdp(args):
            versions["megatron-core"] = _moved_core(row)
        elif "multi-latent-attention" in args:
            versions["megatron-core"] = "0.12"  # before 720c8b40d8 of July 2025
    if "no-use-layer-wise-param-layout" in args:
        versions["megatron-core"] = "0.17"  # whose dealing this asks for
    elif _fsdp(args) and _experts(row, args):
        versions.setdefault("megatron-core", "0.16")  # golden values of March 2026 and before
    if versions:
        runtime["versions"] = versions
    return runtime


def _moved_core(row):
    """The core behind golden values of experts that MOVED moved."""
    test = re.sub(r"^gpt3_(moe_)?mcore_", "", _test(row))
    return "0.12" if test in BEFORE_WEIGHTS.get(_golden(row), ()) else "0.14"


def _resumed(row):
    """Whether this is the second run of a test, which loads what the first saved."""
    return _golden(row).endswith("_2nd")


def _local(args):
    """Whether Megatron's own layers run; BERT's script asks for them by --spec."""
    return "local" in (args.get("transformer-impl"), args.get("spec"))


def _torch(row):
    """What the image came with, by the date of the golden values."""
    commit, golden = row.note(r"\(last commit (\S+) \d"), _golden(row)
    if commit == MOVED:
        moved = (torch for image, torch in TORCH_MOVED.items() if golden.startswith(image))
        return next(moved, TORCH_OF_LTS)
    if golden.startswith("lts"):
        return TORCH_OF_LTS
    if commit == REFORMATTED:
        return "2.11" if OLDER.search(_test(row)) else "2.12"
    return next((torch for since, torch in TORCH_OF_DEV if _date(row) >= since), TORCH_OF_LTS)
