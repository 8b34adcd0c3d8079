"""Rows of `phantom` that ran Megatron-Core's own layers."""

EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts")
# What Megatron calls modules that run again.
MODULES = {
    "core_attn": "core-attention",
    "layernorm": "norm",
    "mlp": "mlp",
    "moe": "experts",
    "shared_experts": "shared-experts",
}
# Megatron-FSDP's strategies.
STAGES = {"optim_grads": 2, "optim_grads_params": 3}


def request_of(row, config):
    experts = next((config[name] for name in EXPERTS if config.get(name)), 0)
    tensor, stages = row.number("tp"), row.number("pp")
    data = row.number("world") // stages
    sequences = row.number("micro_batch")
    job = {
        "model": {"transformer": _transformer(row, config, experts)},
        "training": {
            "sequence_length": row.number("sequence"),
            "micro_batch_size": sequences,
            "global_batch_size": sequences * row.number("accumulate") * data,
            "precision": {"preset": "bf16-mixed"},
            "optimizer": {"name": row.text("optimizer"), "implementation": "fused"},
            "attention": "eager",
            "recompute": _recompute(row.text("recompute")),
            "mtp_layer_count": int(row.text("mtp") or 0),
        },
        "parallelism": {
            "data_parallel_size": data,
            "tensor_parallel_size": tensor,
            "pipeline_parallel_size": stages,
            "zero_stage": STAGES.get(
                row.text("strategy"), int(row.text("distributed_optimizer") == "True")
            ),
            "sequence_parallel": tensor > 1,
        },
        "runtime": {
            "framework": "megatron-core",
            "transformer_implementation": "local",
            "gradient_accumulation_fusion": False,
            "attention_mask": False,
            "versions": {
                "megatron-core": row.text("release") or "0.16", "torch": row.text("torch")
            },
        },
        "cluster": {"gpu": "h100-80gb-sxm"},
    }
    if row.text("strategy"):
        job["training"]["precision"]["gradient_accumulation_dtype"] = row.text("reduce")
        job["runtime"]["overlap_communication"] = row.text("overlap") == "True"
    if experts:
        job["parallelism"] |= {
            "expert_parallel_size": row.number("ep"),
            "expert_tensor_parallel_size": row.number("etp"),
            "token_dispatcher": "all-to-all",
        }
    return {"job": job}


def _recompute(text):
    if text in ("none", "full"):
        return {"mode": text}
    return {"mode": "selective", "modules": [MODULES[name] for name in text.split("+")]}


def _transformer(row, config, experts):
    model = {
        "hidden_size": config["hidden_size"],
        "layer_count": row.number("layers"),
        "head_count": config["num_attention_heads"],
        "kv_head_count": config["num_key_value_heads"],
        "ffn_size": config["intermediate_size"],
        "vocab_size": config["vocab_size"],
        "activation": "silu",
        "gated_mlp": True,
        "norm": "rms-norm",
        "position_embedding": "rotary",
        "tied_embeddings": config.get("tie_word_embeddings", False),
        "qk_norm": "per-head" if row.text("qk_norm") == "True" else "none",
    }
    if config.get("head_dim"):
        model["head_size"] = config["head_dim"]
    if not experts:
        return model
    width = config.get("moe_intermediate_size", config["intermediate_size"])
    model |= {
        "expert_count": experts,
        "active_expert_count": config["num_experts_per_tok"],
        "expert_ffn_size": width,
    }
    if config.get("n_shared_experts"):
        model["shared_expert_ffn_size"] = config["n_shared_experts"] * width
    if config.get("first_k_dense_replace"):
        model["dense_layer_count"] = config["first_k_dense_replace"]
    return model
