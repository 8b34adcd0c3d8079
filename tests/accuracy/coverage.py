"""How many public training configurations Plimsoll answers: those that nothing blocks any more.

    coverage.py --plimsoll plimsoll index.csv

index.csv has a row for each configuration (project, path) with what blocked it (`blockers`, by
rules that read it). Blockers are gone for a project where a job of all their kinds together, under
what the project trains with, is answered now. Each project counts the same.
"""

import argparse
import collections
import csv
import json
import re
import subprocess
import sys

# What a project trains with; a project that is not here is asked as its kind's default.
RUNTIMES = {
    "EleutherAI/gpt-neox": {"framework": "deepspeed"},
    "Lightning-AI/litgpt": {"framework": "fsdp1", "trainer": "litgpt"},
    "NVIDIA-NeMo/Automodel": {"framework": "fsdp2", "trainer": "nemo-automodel"},
    "NVIDIA-NeMo/Megatron-Bridge": {"framework": "megatron-core"},
    "NVIDIA-NeMo/RL": None,
    "NVIDIA/Megatron-LM": {"framework": "megatron-core"},
    "OpenRLHF/OpenRLHF": {"framework": "deepspeed"},
    "THUDM/slime": {"framework": "megatron-core"},
    "allenai/OLMo": {"framework": "fsdp1"},
    "allenai/OLMo-core": {"framework": "fsdp2"},
    "allenai/open-instruct": {"framework": "deepspeed"},
    "deepspeedai/DeepSpeedExamples": {"framework": "deepspeed"},
    "huggingface/open-r1": {"framework": "deepspeed", "trainer": "trl"},
    "huggingface/alignment-handbook": {"framework": "ddp", "trainer": "trl"},
    "huggingface/nanotron": {"framework": "nanotron"},
    "huggingface/trl": {"framework": "ddp", "trainer": "trl"},
    "mosaicml/llm-foundry": {"framework": "fsdp1"},
    "pytorch/torchtitan": {"framework": "fsdp2", "trainer": "torchtitan"},
    "pytorch/torchtune": {"framework": "fsdp2", "trainer": "torchtune"},
    "volcengine/verl": {"framework": "fsdp2"},
}
DEFAULT_RUNTIME = {"framework": "ddp", "trainer": "hf-trainer"}
# Configurations that run otherwise than their project's usual, by a word of their path: what with,
# or on one GPU. torchtune names those so; litgpt's with adapters have `devices: 1`. The others
# are as their files' `fsdp`, `deepspeed` and `dist_config` say.
ON_ONE_GPU = "on one GPU"
ELSEWHERE = {
    "Lightning-AI/litgpt": {"lora": ON_ONE_GPU},
    "axolotl-ai-cloud/axolotl": {
        "fsdp2": {"framework": "fsdp2", "trainer": "hf-trainer"},
        "fsdp": {"framework": "fsdp1", "trainer": "hf-trainer"},
        "zero3": {"framework": "deepspeed", "trainer": "hf-trainer"},
    },
    "deepspeedai/DeepSpeedExamples": {  # the last release with these optimizers but 0.19.6
        "onebit": {"framework": "deepspeed", "versions": {"deepspeed": "0.18"}},
    },
    "hiyouga/LLaMA-Factory": {"v1/train_full/train_full_ulysses": {"framework": "fsdp2"}},
    "modelscope/ms-swift": {
        "examples/megatron": {"framework": "megatron-core"},
        "sequence_parallel/": {"framework": "deepspeed", "trainer": "hf-trainer"},
    },
    "pytorch/torchtune": {"single_device": ON_ONE_GPU, "low_memory": ON_ONE_GPU},
}
GPU_COUNT = 8
# Words of paths of adapters or models that Plimsoll refuses under the project, whatever the kinds.
REFUSED_WORDS = {
    "Lightning-AI/litgpt": ("gemma2",),
    # Classes of transformers, and benchmarks, which may split matrices.
    "NVIDIA-NeMo/Automodel": (
        "gemma", "mistral", "devstral", "phi_", "granite", "olmo", "cohere", "nemotron_flash",
        "_tp2", "benchmark",
    ),
    "pytorch/torchtune": ("gemma2",),
}
OTHERS = "another adapter or model"
# Projects whose trainers spread experts over ranks; those of others have all of them on each.
SPREAD_EXPERTS = (
    "NVIDIA-NeMo/Megatron-Bridge",
    "NVIDIA/Megatron-LM",
    "THUDM/slime",
    "allenai/OLMo-core",
    "deepspeedai/DeepSpeedExamples",
    "huggingface/nanotron",
    "pytorch/torchtitan",
    "pytorch/torchtune",
    "volcengine/verl",
)
# What the kind "optimizers" is, by a word of the path. torchtune's recipes for one GPU step in
# backward (their `optimizer_in_bwd`).
OPTIMIZERS = {
    "muon": "muon", "single_device": "steps in backward", "low_memory": "steps in backward",
    "onebitadam": "1-bit Adam", "onebitlamb": "1-bit LAMB", "train_galore": "GaLore",
    "extras/apollo": "APOLLO",
}  # fmt: skip


# Which of Transformer Engine's recipes the kind "FP8/FP4/MXFP8/QAT" is, by a word of the path or of
# the configuration's name there (Megatron-Bridge's: current scaling, sub-channels, MX).
EIGHT_BITS = "FP8/FP4/MXFP8/QAT"
RECIPES = {
    "_fp8cs_": "fp8 tensorwise", "_fp8sc_": "fp8 blockwise", "_fp8mx_": "fp8 mxfp8",
    "_nvfp4_": "fp4",
}  # fmt: skip

# Adapters that are DoRA's, by a word of the path.
DORA = {"dora": "DoRA"}
QDORA = {"dora": "QDoRA"}

# Models whose layers of the kind "SSM/linear-attention hybrids" are gated delta networks, and those
# of a class of their own, by a word of the path or of the model.
HYBRIDS = "SSM/linear-attention hybrids"
OF_DELTA_NETWORKS = ("Qwen3.5", "Qwen3.6", "Qwen3-Next")
OLMO_HYBRID = "OLMo Hybrid"
# gpt-neox's layers call the function that transformers' do (its megatron/model/mamba/mamba.py,
# mamba_inner_func_fusion), and pass on 16 bits.
MAMBA = "Mamba 1"
OLMO_HYBRIDS = re.compile(r"olmo.?hybrid|hybrid_rl", re.IGNORECASE)


def kind_of(kind, path, model):
    if kind == HYBRIDS and (OLMO_HYBRIDS.search(path) or OLMO_HYBRIDS.search(model)):
        return OLMO_HYBRID
    if kind == HYBRIDS and path.startswith("configs/mamba/"):
        return MAMBA
    if kind == HYBRIDS and any(word in model for word in OF_DELTA_NETWORKS):
        return "gated delta networks"
    words = {
        "optimizers": OPTIMIZERS, EIGHT_BITS: RECIPES, "LoRA": DORA, "QLoRA (4/8-bit base)": QDORA,
    }.get(kind, {})  # fmt: skip
    return next((name for word, name in words.items() if word in path), kind)


def kinds_of(project, path, blockers, model):
    """What blocks a configuration; where a file has several, its name is behind its path."""
    kinds = tuple(kind_of(kind, path, model) for kind in blockers.split(";") if kind)
    if any(word in path for word in OF_TRL.get(project, ())):
        kinds = tuple(SAMPLED if kind == RL else kind for kind in kinds)
    refused = any(word in path for word in REFUSED_WORDS.get(project, ()))
    return (*kinds, OTHERS) if kinds and refused else kinds


def word_of(project, path):
    """The word of a path that says that it runs elsewhere; none where it is as usual."""
    return next((word for word in ELSEWHERE.get(project, {}) if word in path), "")


def spreads(project, word):
    """Whether a configuration's experts are on several ranks."""
    where = ELSEWHERE.get(project, {}).get(word)
    return project in SPREAD_EXPERTS or where == {"framework": "megatron-core"}


def place_of(project, word):
    """(runtime, number of GPUs) of a project's configurations with the word."""
    runtime = RUNTIMES.get(project, DEFAULT_RUNTIME)
    where = ELSEWHERE.get(project, {}).get(word, runtime)
    return ({**runtime, "framework": "ddp"}, 1) if where == ON_ONE_GPU else (where, GPU_COUNT)


LORA = {"adapter": {"method": "lora"}}
PROBES = {
    "LoRA": LORA,
    "QLoRA (4/8-bit base)": {**LORA, "quantization": {"format": "nf4"}},
    "DoRA": {"adapter": {"method": "dora"}},
    "QDoRA": {"adapter": {"method": "dora"}, "quantization": {"format": "nf4"}},
    "DPO/KTO/ORPO": {"preference": {"method": "dpo"}},
    "frozen parameters": {"trained": {"modules": ["attention", "mlp", "norm"]}},
    "muon": {"optimizer": {"name": "muon"}},
    "1-bit Adam": {"optimizer": {"name": "onebit-adam"}},
    "1-bit LAMB": {"optimizer": {"name": "onebit-lamb"}},
    "GaLore": {"optimizer": {"name": "galore-adamw"}},
    "APOLLO": {"optimizer": {"name": "apollo-adamw"}},
    **{
        f"fp8 {recipe}": {"precision": {"preset": "fp8-mixed", "fp8_recipe": recipe}}
        for recipe in ("tensorwise", "blockwise", "mxfp8")
    },
    "fp4": {"precision": {"preset": "fp4-mixed"}},
    "MTP": {"mtp_layer_count": 1},
    "GRPO by TRL": {"preference": {"method": "grpo"}},
    "activation offload": {"recompute": {"mode": "full"}},
    "steps in backward": {
        "optimizer": {"name": "adamw-8bit", "paged": True, "in_backward": True},
        "precision": {"preset": "bf16-pure"},
    },
}
# Kinds that are no field of `training`.
SPLITS = {
    "context/sequence parallel": {"context_parallel_size": 2},
    "MoE experts + EP": {"expert_parallel_size": 2},
    "Megatron-FSDP": {"zero_stage": 3},
}
# Of "RL (actor/ref/critic + rollout)" what TRL's own trainer of GRPO runs, by a word of the path,
# where answers come from a server of their own: open-r1's recipes and TRL's scripts.
SAMPLED = "GRPO by TRL"
RL = "RL (actor/ref/critic + rollout)"
OF_TRL = {"huggingface/open-r1": ("/grpo/",), "huggingface/trl": ("scripts/grpo", "scripts/gspo")}
KNOBS = {
    "CPU offload": {"offload_parameters": True},
    "activation offload": {"offload_activations": True},
}
OF_DEEPSPEED = {"CPU offload": {"offload_optimizer": True}}
# Kinds that are the model's own.
HEAD = "reward/classifier/embedding head"
SHAPES = {
    "MLA": {"kv_head_count": 16, "head_size": 96, "qk_norm": "per-rank", "query_rank": 384,
            "key_value_rank": 128, "rotary_head_size": 32},
    "MoE experts + EP": {"expert_count": 8, "active_expert_count": 2, "expert_ffn_size": 2816},
    "gated delta networks": {
        "linear_key_head_count": 8, "linear_value_head_count": 16, "attention_gate": True,
        "qk_norm": "per-head",
    },
    HEAD: {"head": "sequence-classification", "label_count": 1},
}  # fmt: skip
# Kinds that are a class of transformers.
CONFIGS = {
    OLMO_HYBRID: {
        "model_type": "olmo_hybrid", "hidden_size": 1024, "intermediate_size": 2816,
        "num_hidden_layers": 4, "num_attention_heads": 16, "vocab_size": 32000,
    },
    MAMBA: {
        "model_type": "mamba", "hidden_size": 768, "num_hidden_layers": 24, "vocab_size": 50304,
        "residual_in_fp32": False,
    },
}  # fmt: skip
KNOWN = {*PROBES, *SPLITS, *KNOBS, *SHAPES, *CONFIGS}


def job_of(kinds, runtime, gpu_count=GPU_COUNT, spreads=True):
    """A small Llama that asks for all of the kinds; none where no field says one of them."""
    if runtime is None or any(kind not in KNOWN for kind in kinds):
        return None
    if "Megatron-FSDP" in kinds and runtime["framework"] != "megatron-core":
        return None  # alone, under another trainer
    classes = [CONFIGS[kind] for kind in kinds if kind in CONFIGS]
    if classes and any(kind in SHAPES for kind in kinds):
        return None
    shape = {
        "layer_count": 4, "hidden_size": 1024, "head_count": 16, "kv_head_count": 8,
        "ffn_size": 2816, "vocab_size": 32000, "gated_mlp": True,
    }  # fmt: skip
    job = {
        "model": {"transformer": shape},
        "training": {"sequence_length": 2048},
        "parallelism": {},
        "runtime": dict(runtime),
        "cluster": {"gpu": "h100-80gb-sxm", "gpu_count": gpu_count},
    }
    if "fp8 mxfp8" in kinds or "fp4" in kinds:  # a Blackwell's
        job["cluster"]["gpu"] = "b200-180gb"
    if "MoE experts + EP" in kinds and runtime["framework"] == "megatron-core":
        job["runtime"]["grouped_gemm"] = True  # as these projects' configurations do
    if "DPO/KTO/ORPO" in kinds and runtime.get("trainer") == "hf-trainer":
        job["runtime"]["trainer"] = "trl"  # whose trainers these projects' are made of
    if HEAD in kinds and runtime.get("trainer") == "trl":  # its trainer of reward models
        job["training"]["preference"] = {"method": "reward"}
    for kind in kinds:
        job["training"] |= PROBES.get(kind, {})
        if spreads or kind not in SHAPES:
            job["parallelism"] |= SPLITS.get(kind, {})
        engine = runtime["framework"] == "deepspeed"
        knobs = OF_DEEPSPEED if engine and kind in OF_DEEPSPEED else KNOBS
        job["runtime"] |= knobs.get(kind, {})
        if engine and kind in OF_DEEPSPEED:
            job["parallelism"]["zero_stage"] = 2
        shape |= SHAPES.get(kind, {})
    if classes:
        job["model"] = {"hf_config": classes[0]}
    if "MLA" in kinds and "LoRA" in kinds:  # PEFT has no default for these classes
        job["training"]["adapter"] = LORA["adapter"] | {"target_modules": ["all-linear"]}
    return job


def answered(jobs, ask):
    """Which of {key: job} are answered; `ask` maps a list of jobs to a list of answers."""
    keys = [key for key, job in jobs.items() if job is not None]
    answers = ask([jobs[key] for key in keys])
    return {key for key, answer in zip(keys, answers) if "error" not in answer}


def shares(rows, gone):
    """(configurations, those that nothing blocks) of each project; `gone` has those rows of which
    the job is answered."""
    counts = collections.defaultdict(lambda: [0, 0])
    for row in rows:
        project, kinds = row[:2]
        counts[project][0] += 1
        counts[project][1] += not kinds or row in gone
    return counts


def mean_share(counts):
    return sum(free / all_ for all_, free in counts.values()) / len(counts)


def ask_with(plimsoll):
    def ask(jobs):
        text = "".join(json.dumps({"job": job, "detail": "summary"}) + "\n" for job in jobs)
        command = [plimsoll, "estimate", "--jobs", "-", "-o", "jsonl"]
        run = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        lines = run.stdout.splitlines()
        if len(lines) != len(jobs):
            sys.exit(f"plimsoll answered {len(lines)} of {len(jobs)} jobs: {run.stderr.strip()}")
        return [json.loads(line) for line in lines]

    return ask


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plimsoll", required=True, help="the program to ask")
    parser.add_argument("index", help="CSV file with the columns project and blockers")
    arguments = parser.parse_args()
    with open(arguments.index, newline="", encoding="utf-8") as file:
        rows = [
            (
                row["project"],
                kinds_of(
                    row["project"],
                    f"{row['path']} {row['unit']}",
                    row["blockers"],
                    row["model"],
                ),
                word_of(row["project"], row["path"]),
            )
            for row in csv.DictReader(file)
        ]
    jobs = {
        (project, kinds, word): job_of(kinds, *place_of(project, word), spreads(project, word))
        for project, kinds, word in rows
        if kinds
    }
    gone = answered(jobs, ask_with(arguments.plimsoll))
    before, now = shares(rows, set()), shares(rows, gone)
    print(f"{'project':32} {'of':>5} {'before':>7} {'now':>7}")
    for project in sorted(now):
        count, free = now[project]
        print(f"{project:32} {count:5} {before[project][1] / count:7.1%} {free / count:7.1%}")
    print(f"{'each project the same':32} {len(rows):5} {mean_share(before):7.1%} {mean_share(now):7.1%}")


if __name__ == "__main__":
    main()
