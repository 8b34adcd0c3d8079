"""Megatron-Core outside its CI: `b200` (published points of SimuMax), `mcoremisc` and
`mbridge` rows."""

import re

import measured
from measured import Prediction, Refused

FAMILIES = ("b200", "mcoremisc", "mbridge")
# Architectures of b200's cases, whose rows have no columns for them: what the script that ran
# them says, 16 groups of the 405B where the released model has 8, and one token more than the
# model's, as its NullTokenizer adds an end of document.
# Source: SimuMax 5c8e4022, simu_tools/megatron_scripts/scripts/run_pretrain_llama3.sh.
LLAMA = {
    "llama3-70b": {"hidden": 8192, "heads": 64, "kv_heads": 8, "ffn": 28672, "vocab": 128257},
    "llama3-405b": {"hidden": 16384, "heads": 128, "kv_heads": 16, "ffn": 53248, "vocab": 128257},
}
# Latent attention of DeepSeek V2 and V3 and what follows them; queries have a rank beside it.
LATENT = {"key_value_rank": 512, "rotary_head_size": 64, "head_size": 192, "value_head_size": 128,
          "qk_norm": "per-rank"}  # fmt: skip
DEEPSEEK_V2 = {
    "hidden_size": 5120, "head_count": 128, "ffn_size": 12288, "expert_count": 160,
    "active_expert_count": 6, "expert_ffn_size": 1536, "shared_expert_ffn_size": 3072,
    "query_rank": 1536, **LATENT,
}  # fmt: skip
DEEPSEEK_V3 = {
    "hidden_size": 7168, "head_count": 128, "ffn_size": 18432, "expert_count": 256,
    "active_expert_count": 8, "expert_ffn_size": 2048, "shared_expert_ffn_size": 2048,
    "query_rank": 1536, **LATENT,
}  # fmt: skip
# SimuMax's, cut to four layers of which the first has no experts: experts take as many tokens each
# (--moe-expert-capacity-factor 1, padded), and no layer runs again (block, of 0 layers).
# Source: MooreThreads/SimuMax 4dcaae5, simu_tools/megatron_scripts/scripts/
# run_pretrain_deepseekv2.sh, --cross-entropy-loss-fusion beside it.
DEEPSEEK = {
    "deepseekv2": {**DEEPSEEK_V2, "vocab_size": 102401, "dense_layer_count": 1},
    "deepseekv3": {**DEEPSEEK_V3, "vocab_size": 129281, "dense_layer_count": 1},
}
# Megatron-Bridge's recipe of Moonlight: gradients and moments in 16 bits beside fp32 masters. Its core
# is from before queries without a rank had a norm of their own.
# Source: Megatron-Bridge, recipes/moonlight/moonlight_16b.py, moonlight_16b_pretrain_config.
MOONLIGHT = {
    "ffn_size": 11264, "vocab_size": 163840, "dense_layer_count": 1, "expert_count": 64,
    "active_expert_count": 6, "expert_ffn_size": 1408, "shared_expert_ffn_size": 2816, **LATENT,
}  # fmt: skip
IN_16_BITS = {"gradient_accumulation_dtype": "bf16", "optimizer_state_dtype": "bf16"}
AGAIN = {
    "core_attn": "core-attention", "layernorm": "norm", "mla_up_proj": "up-projection",
    "mlp": "mlp", "moe_act": "activation", "moe": "experts",
    "shared_experts": "shared-experts",
}  # fmt: skip
# Of rows that name Megatron-LM alone: its own layers, and the loss of core 0.7 and older.
OLD_RUNTIME = {"transformer_implementation": "local", "versions": {"megatron-core": "0.7"}}
# The notes of a run whose command line was not read, so that its micro-batch is a guess. Of the jobs
# that its global batch allows, one sequence gives its peak and what it held after a step, both to
# 0.03 MiB; two give 4 GiB more.
UNREAD = "not fully read"
GPUS = {
    "B200": "b200-180gb",
    "A100/A800 80GB (inferred)": "a100-80gb-sxm",
    "A800 80GB": "a800-80gb-sxm",
    "H100": "h100-80gb-sxm",
    "H100 80GB": "h100-80gb-sxm",
}


def sets_of(row):
    if row.family == "b200":
        return [f"megatron_b200 {row.text('what_is_measured')}"]
    return ["megatron_misc"]


def features_of(row):
    return {
        **measured.common_features(row, _zero_stage(row)),
        "gauge": row.text("what_is_measured"),
        "source": row.family,
    }


def predict(row, answer):
    ranks = answer["ranks"]
    what = row.text("what_is_measured")
    stage = row.note(r"stage=(\w+)", "max")
    choose = min if stage == "min" else max
    rank = choose(ranks, key=lambda rank: int(rank[what]["expected_bytes"]))
    return Prediction(*measured.gauge(rank, what), measured.debug_extra(rank), what)


def request_of(row):
    _refuse(row)
    tensor = row.number("tp", 1)
    b200 = row.family == "b200"
    runtime = {"framework": "megatron-core"}
    if b200:
        runtime["versions"] = {"torch": "2.10"}
    elif _old(row):
        runtime.update(OLD_RUNTIME)
    job = {
        "model": {"transformer": _transformer(row)},
        "training": {
            "sequence_length": row.number("seq_len"),
            "micro_batch_size": 1 if UNREAD in row.notes else row.number("micro_batch"),
            "global_batch_size": measured.global_batch(row),
            "precision": {"preset": "fp16-mixed" if row.text("precision") == "fp16" else "bf16-mixed"},
            "optimizer": {"name": "adam", "implementation": "fused"},
            "attention": _attention(row),
            "loss": {"implementation": "te-cross-entropy" if b200 else "plain"},
        },
        "parallelism": measured.parallelism(
            row,
            _zero_stage(row),
            sequence_parallel=tensor > 1 and not row.text("sequence_parallel").startswith("no"),
            **_contexts(row),
        ),
        "runtime": runtime,
        "cluster": _cluster(row),
    }
    if _routed(row):
        job["parallelism"] |= {
            "expert_parallel_size": row.number("ep"),
            "expert_tensor_parallel_size": 1,
            "token_dispatcher": "all-to-all",
        }
        runtime["grouped_gemm"] = True
    if _is_moonlight(row):
        job["training"]["precision"] |= IN_16_BITS
        job["training"]["attention"] = "cudnn"
        runtime["versions"] = {"megatron-core": "0.18"}
    if row.text("recompute").startswith("selective"):
        named = re.findall(r"\w+", row.text("recompute").partition("(")[2]) or ["core_attn"]
        modules = [AGAIN[name] for name in named]
        job["training"]["recompute"] = {"mode": "selective", "modules": modules}
    return {"job": job}


def _refuse(row):
    if _routed(row) and row.family != "b200":
        _refuse_experts(row)
    if row.number("ep", 1) > 1 and not _routed(row):
        raise Refused("experts")
    if "fp8" in row.text("precision"):
        raise Refused("fp8 of Transformer Engine")
    if "SOP head" in row.notes:
        raise Refused("a head that orders sentences, and a vocabulary not stated")
    if not row.text("grad_accum") or not row.text("seq_len"):
        raise Refused("the row does not state its batch and sequence length")


def _routed(row):
    return bool(re.search(r"(?i)deepseek|A3B", row.text("model")))


def _is_moonlight(row):
    return row.text("model").startswith("Moonlight")


def _refuse_experts(row):
    """What each of the few runs with experts has that no job says, or no row states."""
    for text, reason in (
        (row.text("offload"), "activation offload"),
        ("DeepEP" in row.notes, "tokens sent by DeepEP"),
        ("EP overlap" in row.notes, "layers of two micro-batches in turns"),
        ("Mamba" in row.notes, "state-space layers"),
        ("/" in row.text("recompute"), "which modules run again is not stated"),
    ):
        if text:
            raise Refused(reason)


def _contexts(row):
    """SimuMax's runs exchange heads (--cp-comm-type a2a)."""
    if row.number("cp", 1) == 1:
        return {}
    method = "ulysses" if row.family == "b200" else "ring"
    return {"context_parallel_size": row.number("cp"), "context_parallel_method": method}


def _zero_stage(row):
    """Where a row does not say, the recipe's default: a distributed optimizer."""
    return int(row.text("zero_stage")[:1] or "1")


def _attention(row):
    said = row.text("attention")
    if "flash" in said or row.family == "b200":
        return "flash" if row.family != "b200" else "cudnn"
    return "eager" if "fused softmax" in said or _old(row) else "flash"


def _old(row):
    """Megatron-LM from September 2022 to June 2024, before its layers were Core's."""
    return row.text("framework") == "Megatron-LM"


def _cluster(row):
    return {"gpu": GPUS.get(row.text("gpu"), "a100-80gb-sxm")}


def _transformer(row):
    if row.text("model") in DEEPSEEK:
        return decoder(row, DEEPSEEK[row.text("model")])
    if _is_moonlight(row):
        return decoder(row, {**MOONLIGHT, "head_count": row.number("heads")})
    if row.family == "b200":
        return measured.decoder(measured.Row({**row.columns(), **_llama(row)}))
    if row.text("model").startswith("GPT2"):
        return measured.decoder(
            row,
            activation="gelu",
            gated_mlp=False,
            norm="layer-norm",
            position_embedding="learned",
            position_count=row.number("seq_len"),
            qkv_bias=True,
            attention_output_bias=True,
            mlp_bias=True,
            tied_embeddings=True,
            hidden_dropout=0.1,
            attention_dropout=0.1,
        )
    return measured.decoder(row)


def decoder(row, shape):
    """A decoder of which `shape` says more than the row, or instead of it."""
    fields = {"hidden": "hidden_size", "ffn": "ffn_size", "vocab": "vocab_size",
              "heads": "head_count", "kv_heads": "head_count"}  # fmt: skip
    known = {column: str(shape[field]) for column, field in fields.items() if field in shape}
    return {**measured.decoder(measured.Row({**row.columns(), **known})), **shape}


def _llama(row):
    shape = LLAMA.get(row.text("model"))
    if shape is None:
        raise Refused(f"model {row.text('model')!r}")
    return {name: str(value) for name, value in shape.items()}
