#!/usr/bin/env python3
"""A training job of Megatron-Core's own layers, 0.16 or as a row says, as the row describes it:
train_megatron.py CONFIG.json ROW.json.

Megatron-Core is in the folder MEGATRON_PACKAGES, or in one of it that has its release's name. What is not Megatron's: tokens that nobody wrote;
of Apex and Transformer Engine, which no registry has, a softmax, a workspace and a step of the
optimizer at once, by what they allocate; and which expert each token is sent to, which a GPU that
computes nothing cannot say: each gets as many. Nothing here knows of Plimsoll.
"""

import contextlib
import dataclasses
import functools
import json
import os
import sys
import types

with open(sys.argv[2], encoding="utf-8") as described:
    RELEASE = json.load(described).get("release", "")
sys.path.insert(0, os.path.join(os.environ["MEGATRON_PACKAGES"], RELEASE))

import torch
import torch.distributed as dist

STEPS = 3
SOFTMAXES = ("scaled_upper_triang_masked_softmax_cuda", "scaled_masked_softmax_cuda",
             "scaled_softmax_cuda")


def stand_in_for_apex():
    softmax = types.SimpleNamespace(
        forward=lambda scores, *_: torch.empty_like(scores), backward=lambda gradient, *_: gradient,
        get_batch_per_block=lambda *_: 4)
    for name in SOFTMAXES:
        sys.modules[name] = softmax


stand_in_for_apex()

from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import (DistributedDataParallel, DistributedDataParallelConfig,
                                       finalize_model_grads)
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import (get_gpt_decoder_block_spec,
                                                      get_gpt_mtp_block_spec)
from megatron.core.num_microbatches_calculator import init_num_microbatches_calculator
from megatron.core.optimizer import OptimizerConfig, clip_grads, get_megatron_optimizer
from megatron.core.optimizer import optimizer as optimizer_module
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.tensor_parallel import random
from megatron.core.transformer import TransformerConfig, torch_norm
from megatron.core.transformer.moe import moe_utils, token_dispatcher


def stand_in_for_eight_bits():
    """What running a part again asks Transformer Engine of them, whether it is there or not."""
    random.FP8GlobalStateManager = types.SimpleNamespace(is_fp8_enabled=lambda: False)
    random.activation_recompute_forward = lambda **_: contextlib.nullcontext()
    random.fp8_autocast = lambda **_: contextlib.nullcontext()


def hold_workspace():
    """Transformer Engine's products have one, which a router multiplies with where the package is."""
    return torch.empty(32 * 2**20 + 1024, dtype=torch.uint8, device="cuda")


def scale(chunk_size, flag, lists, factor):
    """Apex's and Transformer Engine's write each where it goes."""
    del chunk_size, flag
    for source, target in zip(*lists):
        target.copy_(source).mul_(factor)


def step_at_once():
    """Apex's optimizer is one kernel, as torch's is where it is told so."""
    torch.optim.AdamW = functools.partial(torch.optim.AdamW, fused=True)
    clip_grads.multi_tensor_scale_impl = optimizer_module.multi_tensor_scale_impl = scale


class Norm(torch.nn.RMSNorm):
    """torch's, which Megatron's wrapper refuses with sequence parallelism."""

    def __init__(self, config, hidden_size, eps=1e-5, **_):
        del config
        super().__init__(hidden_size, eps)
        self.weight.sequence_parallel = True


def share_alike(row, experts, active):
    """Numbers of tokens come from the GPU: each expert's share of all takes their place."""
    ranks = int(row["ep"])
    local = experts // ranks
    sent = {}

    def numbers(tensor, as_numpy=False, record_stream=False):
        del record_stream
        if not torch.is_tensor(tensor) or tensor.device.type != "cuda":
            return tensor
        per_expert = sent["rows"] // experts
        host = torch.empty(tensor.shape, dtype=tensor.dtype)
        if tensor is sent["per_expert"]:
            host.fill_(per_expert * ranks * sent["degree"])
        elif tensor is sent["of_degree"]:
            host.fill_(per_expert * local * ranks)
        elif tensor.dim() == 2:
            host.fill_(per_expert)
        else:
            host.fill_(per_expert * local)
        return host.numpy() if as_numpy else host

    count = token_dispatcher.MoEAlltoAllTokenDispatcher.preprocess

    def preprocess(self, routing_map):
        sent["rows"] = routing_map.shape[0] * active
        sent["degree"] = self.tp_size
        sent["per_expert"] = count(self, routing_map)
        sent["of_degree"] = self.output_splits_tp
        return sent["per_expert"]

    def picked(self, mask):
        del mask
        return self.flatten()[: sent["rows"]] * 1

    token_dispatcher.maybe_move_tensor_to_cpu = numbers
    token_dispatcher.MoEAlltoAllTokenDispatcher.preprocess = preprocess
    torch.Tensor.masked_select = picked


def recompute_of(row):
    if row["recompute"] == "none":
        return {}
    if row["recompute"] == "full":
        return {"recompute_granularity": "full", "recompute_method": "uniform",
                "recompute_num_layers": 1}
    return {"recompute_granularity": "selective", "recompute_modules": row["recompute"].split("+")}


def config_of(config, row, experts, active):
    count = int(row["layers"] or config["num_hidden_layers"])
    dense = config.get("first_k_dense_replace", 0)
    values = {
        "num_layers": count, "hidden_size": config["hidden_size"],
        "num_attention_heads": config["num_attention_heads"],
        "num_query_groups": config["num_key_value_heads"],
        "ffn_hidden_size": config["intermediate_size"], "kv_channels": config.get("head_dim"),
        "normalization": "RMSNorm", "add_bias_linear": False, "gated_linear_unit": True,
        "activation_func": torch.nn.functional.silu, "hidden_dropout": 0.0,
        "attention_dropout": 0.0, "bf16": True, "params_dtype": torch.bfloat16,
        "pipeline_dtype": torch.bfloat16, "deallocate_pipeline_outputs": True,
        "bias_activation_fusion": True,
        "bias_dropout_fusion": True, "masked_softmax_fusion": True,
        "gradient_accumulation_fusion": False, "persist_layer_norm": False,
        "perform_initialization": False, "qk_layernorm": row["qk_norm"] == "True",
        "tensor_model_parallel_size": int(row["tp"]), "sequence_parallel": int(row["tp"]) > 1,
        "pipeline_model_parallel_size": int(row["pp"]), **recompute_of(row),
        "mtp_num_layers": int(row.get("mtp") or 0) or None,
    }
    if experts:
        shared = (config.get("n_shared_experts") or 0) * config.get("moe_intermediate_size", 0)
        values |= {
            "num_moe_experts": experts, "moe_router_topk": active,
            "moe_ffn_hidden_size": config.get("moe_intermediate_size", config["intermediate_size"]),
            "moe_shared_expert_intermediate_size": shared or None,
            "moe_layer_freq": [int(layer >= dense) for layer in range(count)],
            "moe_token_dispatcher_type": "alltoall", "moe_router_load_balancing_type": "none",
            "expert_model_parallel_size": int(row["ep"]),
            "expert_tensor_parallel_size": int(row["etp"]),
        }
    return TransformerConfig(**values)


def model_of(config, row, source):
    degree = int(row["tp"])
    vocabulary = -(-source["vocab_size"] // (128 * degree)) * 128 * degree
    layers = get_gpt_decoder_block_spec(config, use_transformer_engine=False)
    more = config.mtp_num_layers and get_gpt_mtp_block_spec(
        config, layers, use_transformer_engine=False)
    model = GPTModel(
        config, layers, vocabulary, int(row["sequence"]), mtp_block_spec=more or None, pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(), parallel_output=True,
        share_embeddings_and_output_weights=source.get("tie_word_embeddings", False),
        position_embedding_type="rope")
    return model.cuda().bfloat16()


def forward(row, iterator, model):
    del iterator
    shape = (int(row["micro_batch"]), int(row["sequence"]))
    tokens = torch.zeros(shape, dtype=torch.long, device="cuda")
    positions = torch.arange(shape[1], device="cuda").expand(shape)

    def loss_of(losses):
        loss = losses.float().mean()
        return loss, {"loss": loss.detach()}

    return model(tokens, positions, None, labels=torch.zeros_like(tokens)), loss_of


def wrap(config, row, model):
    """In Megatron's data parallelism, or, where the row has a strategy, in Megatron-FSDP."""
    strategy = row.get("strategy", "")
    if not strategy:
        return DistributedDataParallel(
            config,
            DistributedDataParallelConfig(
                grad_reduce_in_fp32=True,
                use_distributed_optimizer=row["distributed_optimizer"] == "True"), model)
    # Before core 0.17 flags say it, from 0.19 on dtypes alone do.
    from megatron.core.distributed.fsdp import mcore_fsdp_adapter
    # Without Transformer Engine this is no type; no layer here is one.
    if not isinstance(getattr(mcore_fsdp_adapter, "TELinear", torch.nn.Linear), type):
        mcore_fsdp_adapter.TELinear = type("TELinear", (), {})
    wide = row["reduce"] == "fp32"
    grads = torch.float32 if wide else None
    overlaps = row["overlap"] == "True"
    ranks = dist.get_world_size() // int(row["tp"])
    values = {
        "grad_reduce_in_fp32": wide, "use_distributed_optimizer": True, "use_megatron_fsdp": True,
        "use_custom_fsdp": True, "data_parallel_sharding_strategy": strategy,
        "overlap_grad_reduce": overlaps, "overlap_param_gather": overlaps,
        "bucket_size": max(40_000_000, 1_000_000 * ranks) if overlaps else None,
        "megatron_fsdp_main_grads_dtype": grads, "megatron_fsdp_grad_comm_dtype": grads,
    }
    known = {field.name for field in dataclasses.fields(DistributedDataParallelConfig)}
    values = {name: value for name, value in values.items() if name in known}
    return mcore_fsdp_adapter.FullyShardedDataParallel(
        config, DistributedDataParallelConfig(**values), model)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        source = json.load(file)
    with open(sys.argv[2], encoding="utf-8") as file:
        row = json.load(file)
    torch.cuda.set_device(0)
    dist.init_process_group("nccl")
    split = {"tensor_model_parallel_size": int(row["tp"]),
             "pipeline_model_parallel_size": int(row["pp"])}
    parallel_state.initialize_model_parallel(
        **split, expert_model_parallel_size=int(row["ep"]),
        expert_tensor_parallel_size=int(row["etp"]), create_gloo_process_groups=False)
    tensor_parallel.model_parallel_cuda_manual_seed(1)
    experts = source.get("n_routed_experts") or source.get("num_local_experts") or source.get(
        "num_experts") or 0
    active = source.get("num_experts_per_tok", 0)
    config = config_of(source, row, experts, active)
    torch_norm.WrappedTorchNorm.__new__ = (
        lambda cls, config, hidden_size, eps=1e-5, **_: Norm(config, hidden_size, eps))
    step_at_once()
    stand_in_for_eight_bits()
    moe_utils.te_general_gemm = None  # which 0.16 names without Transformer Engine
    workspace = hold_workspace() if experts else None
    if experts:
        share_alike(row, experts, active)
    distributed = row["distributed_optimizer"] == "True"  # Megatron-FSDP asks for it
    model = wrap(config, row, model_of(config, row, source))
    config.finalize_model_grads_func = finalize_model_grads
    optimizer = get_megatron_optimizer(
        OptimizerConfig(optimizer="adam", lr=1e-4, bf16=True, params_dtype=torch.bfloat16,
                        use_distributed_optimizer=distributed, clip_grad=1.0),
        [model], use_gloo_process_groups=False)
    ranks = dist.get_world_size() // (int(row["tp"]) * int(row["pp"]))
    batch, count = int(row["micro_batch"]), int(row["accumulate"])
    init_num_microbatches_calculator(dist.get_rank(), None, batch * count * ranks, batch, ranks)
    step = get_forward_backward_func()
    for _ in range(STEPS):
        model.zero_grad_buffer()
        optimizer.zero_grad()
        step(forward_step_func=functools.partial(forward, row), data_iterator=None, model=[model],
             num_microbatches=count, seq_length=int(row["sequence"]), micro_batch_size=batch,
             forward_only=False)
        optimizer.step()
    del workspace
    os._exit(0)


if __name__ == "__main__":
    main()
