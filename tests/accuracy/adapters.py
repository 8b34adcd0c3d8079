"""Adapters of the rows that fine-tune: what each source trains beside frozen weights, and of which
model, as its code of the time has it."""

import re

import measured
from measured import Refused

# litgpt's words for what gets an adapter. Source: litgpt, config_hub/finetune (lora_query, ...).
LITGPT_TARGETS = {
    "q": ["q_proj"],
    "query": ["q_proj"],
    "key": ["k_proj"],
    "v": ["v_proj"],
    "value": ["v_proj"],
    "projection": ["o_proj"],
    "mlp": ["mlp"],
    "head": ["lm_head"],
}
# Its models that are no Llama: words of a name, the class of transformers that has the same layers,
# and what a config of that class states besides. Source: litgpt, config.py.
LITGPT_MODELS = (
    ("gemma-2-|gemma2", {"model_type": "gemma2", "tie_word_embeddings": True}),
    ("gemma", {"model_type": "gemma", "head_dim": 256, "tie_word_embeddings": True}),
    ("phi-3", {"model_type": "phi3"}),
    ("phi-1.5", {"model_type": "phi", "hidden_act": "gelu_pytorch_tanh", "partial_rotary_factor": 0.5}),
    ("phi-2", {"model_type": "phi", "hidden_act": "gelu_pytorch_tanh", "partial_rotary_factor": 0.4}),
    ("stablelm.*alpha|pythia", {"model_type": "gpt_neox", "rotary_pct": 0.25}),
    ("falcon", {"model_type": "falcon", "parallel_attn": True, "bias": False, "alibi": False}),
    ("mistral|danube", {"model_type": "mistral", "sliding_window": None}),
    ("llama", {"model_type": "llama"}),
)
# Positions of a model's rotary table, which since 2024 is not made shorter (litgpt, config.py,
# block_size; model.py, GPT.max_seq_length).
LITGPT_POSITIONS = (
    ("llama-3.[12]", 131072),
    ("mistral-7b-v0.2", 32768),
    ("llama-3|gemma", 8192),
    ("phi-[12]|falcon|tiny-llama|pythia", 2048),
    ("", 4096),
)
PLAIN_LORA = r"LORA r=\d+ targets=[\w+]+"
# Qwen's own targets: c_attn, c_proj (of both), w1 and w2 (gate and up), rank 64. Beside torch 2.0,
# which its table states, it asks for PEFT 0.5 (README.md, docker/Dockerfile), whose adapters are fp32
# beside 16-bit weights. Source: Qwen, finetune.py, LoraArguments; peft 0.5.0, tuners/lora.py,
# LoraLayer.update_layer.
QWEN_TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
# What answer.ai's script calls "all", rank 64; PEFT of early 2024 gives adapters the dtype of the
# weights, or of what 4-bit ones are stored in. Source: fsdp_qlora, train.py, main (lora_rank,
# lora_dropout, lora_target_modules), replace_linear; peft 0.9, tuners/lora/layer.py,
# LoraLayer.update_layer.
FSDP_QLORA_TARGETS = ["q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "down_proj"]
# torchtune's recipes, rank 8. Source: torchtune, recipes/configs/llama3_1/8B_lora_single_device.yaml,
# 70B_lora.yaml, as of its README's table (September 2024).
TUNE_TARGETS = ["q_proj", "v_proj"]


def sections_of(row):
    """What a row's `training` has of adapters and quantized weights: nothing where all are trained."""
    if not row.text("peft"):
        return {}
    sections = MAKERS.get(row.family, _refuse)(row, row.text("peft"))
    return {name: section for name, section in sections.items() if section}


def runtime_of(row):
    """What a row's own configuration of DeepSpeed says: Qwen's of ZeRO 2."""
    if row.family != "qwen" or row.text("zero_stage") != "2":
        return {}
    # Source: Qwen, finetune/ds_config_zero2.json.
    return {"reduce_bucket_element_count": 200000000, "overlap_communication": True}


def model_of(row, architecture):
    """The model section: litgpt's by the class that has its layers, others by their columns."""
    if row.family in CONFIGS and row.text("peft"):
        return {"hf_config": CONFIGS[row.family](row)}
    return {"transformer": measured.decoder(row, **architecture)}


def _refuse(row, peft):
    raise Refused("adapters")


def _litgpt(row, peft):
    said = re.match(r"LoRA r=(\d+) \(([\w,]+)\)( \+ bnb\.(\w+)(-dq)?)?$", peft)
    if not said:
        raise Refused("adapters other than LoRA")
    targets = [name for word in said.group(2).split(",") for name in LITGPT_TARGETS[word]]
    # Alpaca's scripts and recipes all drop some. Source: litgpt, finetune/lora.py, lora_dropout.
    return {
        "adapter": {
            "method": "lora",
            "rank": int(said.group(1)),
            "target_modules": targets,
            "dropout": 0.05,
        },
        "quantization": said.group(4)
        and {"format": said.group(4), "double_quantization": bool(said.group(5))},
    }


def _litgpt_model(row):
    name = row.text("model").lower().replace(" ", "-")
    facts = next((facts for word, facts in LITGPT_MODELS if re.search(word, name)), None)
    if facts is None:
        raise Refused("a model whose layers are not looked up")
    config = {
        "hidden_size": row.number("hidden"),
        "num_hidden_layers": row.number("layers"),
        "num_attention_heads": row.number("heads"),
        "vocab_size": row.number("vocab"),
        **facts,
    }
    if facts["model_type"] == "falcon":
        grouped = row.number("kv_heads") > 1
        config |= {"multi_query": not grouped, "new_decoder_architecture": grouped}
        if grouped:
            config["num_kv_heads"] = row.number("kv_heads")
    else:
        config["intermediate_size"] = row.number("ffn")
        if facts["model_type"] != "gpt_neox":
            config["num_key_value_heads"] = row.number("kv_heads")
    if ".yaml" in row.notes:
        found = next(count for word, count in LITGPT_POSITIONS if re.search(word, name))
        config["max_position_embeddings"] = found
    return config


def _tune(row, peft):
    said = re.fullmatch("Q?LoRA", peft)
    if not said:
        raise Refused("batches of lengths that are not stated")
    adapter = {"method": peft.lower(), "rank": 8, "target_modules": TUNE_TARGETS}
    return {"adapter": adapter}


def _peft(row, peft):
    """PEFT's own comparison, which states a 99th percentile over its steps."""
    plain = re.search(r"; lora/[\w.-]*-rank\d+(-rslora|-target-mlp)?;", row.notes)
    if row.text("model").startswith("Llama-3.2") and plain and re.fullmatch(PLAIN_LORA, peft):
        # Where activations are the peak, as beside frozen weights, the longest batch makes it.
        raise Refused("a percentile over batches of many lengths")
    raise Refused("adapters")


def _fsdp_qlora(row, peft):
    sections = {
        "adapter": {
            "method": "lora",
            "rank": 64,
            "target_modules": FSDP_QLORA_TARGETS,
            "dropout": 0.1,
            "adapter_dtype": "bf16",
        }
    }
    if peft == "QLoRA":
        sections["quantization"] = {"format": "nf4", "double_quantization": True}
    elif peft != "LoRA":
        raise Refused("adapters other than LoRA")
    return sections


def _qwen(row, peft):
    if "Q-LoRA" in peft:
        raise Refused("weights quantized by GPTQ")
    adapter = {
        "method": "lora",
        "rank": 64,
        "target_modules": QWEN_TARGETS,
        "dropout": 0.05,
        "adapter_dtype": "fp32",
    }
    if "(emb)" in peft:  # its modules_to_save, of base models
        adapter["trained_modules"] = ["embed_tokens", "lm_head"]
    sections = {"adapter": adapter}
    if not row.text("zero_stage"):
        sections["precision"] = {"preset": "bf16-autocast", "parameter_dtype": "bf16"}
    return sections


def _qwen_model(row):
    return {
        "model_type": "qwen",
        "hidden_size": row.number("hidden"),
        "num_hidden_layers": row.number("layers"),
        "num_attention_heads": row.number("heads"),
        "intermediate_size": 2 * row.number("ffn"),
        "vocab_size": row.number("vocab"),
        "kv_channels": row.number("hidden") // row.number("heads"),
        "no_bias": True,
        "tie_word_embeddings": False,
    }


CONFIGS = {"litgpt": _litgpt_model, "qwen": _qwen_model}
MAKERS = {
    "fsdpq": _fsdp_qlora,
    "litgpt": _litgpt,
    "peft": _peft,
    "qwen": _qwen,
    "tune": _tune,
}
