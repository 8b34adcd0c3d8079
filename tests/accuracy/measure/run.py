#!/usr/bin/env python3
"""Runs one plan in this process and prints what it held: a plan as JSON on stdin, a
measurement as JSON on stdout. Needs torch and transformers, and a GPU but for --smoke.

Several ranks are one: the group is torch's fake backend, whose collectives allocate what
real ones do in torch, and move nothing. What NCCL holds beside torch is then not there.
"""

import contextlib
import json
import subprocess
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
import transformers
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.attention import SDPBackend, sdpa_kernel

import plan as plans

STEPS = 3  # the first, one to settle, and the steady one
KERNELS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "memory-efficient": SDPBackend.EFFICIENT_ATTENTION,
}
OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {}),
    "sgd-momentum": (torch.optim.SGD, {"momentum": 0.9}),
    "rmsprop": (torch.optim.RMSprop, {}),
    "adam": (torch.optim.Adam, {}),
    "adamw": (torch.optim.AdamW, {}),
}


def dtype_of(name):
    return getattr(torch, name) if name else None


def build(plan, device):
    """The model on the device, sharded or wrapped as the plan says, its weights random."""
    config = transformers.AutoConfig.for_model(**plan.config)
    config.use_cache = False
    kernel = "eager" if plan.attention == "eager" else "sdpa"
    autos = {
        "causal": transformers.AutoModelForCausalLM,
        "masked": transformers.AutoModelForMaskedLM,
    }
    with torch.device("meta"):
        model = autos[plan.head].from_config(config, attn_implementation=kernel)
    model.to(dtype_of(plan.parameter_dtype))
    tied = model.get_input_embeddings().weight is model.get_output_embeddings().weight
    layers = layers_of(model, config.num_hidden_layers)
    for index in range(len(layers)):
        if plan.recompute_interval and index % plan.recompute_interval == 0:
            layers[index] = checkpoint_wrapper(layers[index])
    if plan.framework == "fsdp2":
        shard(plan, model, layers, tied, device)
    model.to_empty(device=device)
    if tied:
        model.tie_weights()
    fill(model)
    model.train()
    return in_ddp(plan, model) if plan.framework == "ddp" else model


def in_ddp(plan, model):
    """DDP's own reduction, in place in its bucket, but for the wait: the fake backend's has
    no result."""
    wrapped = torch.nn.parallel.DistributedDataParallel(
        model, gradient_as_bucket_view=plan.bucket_view
    )

    def reduce(_, bucket):
        reduced = bucket.buffer().div_(plan.world_size)
        dist.all_reduce(reduced)
        done = torch.futures.Future()
        done.set_result(reduced)
        return done

    wrapped.register_comm_hook(None, reduce)
    return wrapped


def layers_of(model, count):
    """The list of the network's layers: the one of as many modules as the config says."""
    lists = [m for m in model.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == count]
    if len(lists) != 1:
        raise SystemExit(f"{len(lists)} lists of {count} layers; the kit needs one")
    return lists[0]


def count_parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


def shard(plan, model, layers, tied, device):
    """A group each for the embedding, every layer, and the head; the rest is the root's."""
    replicas = plan.world_size // plan.shard_group_size
    sizes = (plan.shard_group_size,) if replicas == 1 else (replicas, plan.shard_group_size)
    names = ("shard",) if replicas == 1 else ("replicate", "shard")
    policy = MixedPrecisionPolicy(
        param_dtype=dtype_of(plan.mixed_dtype), reduce_dtype=dtype_of(plan.reduce_dtype)
    )
    options = {
        "mesh": init_device_mesh(device, sizes, mesh_dim_names=names),
        "mp_policy": policy,
        "reshard_after_forward": plan.reshard_after_forward,
    }
    ends = [model.get_input_embeddings(), model.get_output_embeddings()]
    for group in [ends] if tied else [[end] for end in ends]:
        fully_shard(group if len(group) > 1 else group[0], **options)
    for layer in layers:
        fully_shard(layer, **options)
    fully_shard(model, **options)


@torch.no_grad()
def fill(model):
    """Weights that keep numbers finite; memory does not depend on them."""
    for parameter in model.parameters():
        local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
        local.normal_(std=0.02)
    for buffer in model.buffers():
        if buffer.is_floating_point():
            buffer.fill_(1)
        else:
            buffer.zero_()


def loss_of(plan, model, ids):
    """As Hugging Face's loop has it; with FSDP2 as torchtitan's, which drops the logits."""
    if plan.framework != "fsdp2":
        return model(input_ids=ids, labels=ids).loss
    logits = model(input_ids=ids).logits
    return F.cross_entropy(logits.flatten(0, 1).float(), ids.flatten(0, 1))


def step(plan, model, optimizer, ids):
    device_type = ids.device.type
    for _ in range(plan.micro_batch_count):
        autocast = contextlib.nullcontext()
        if plan.autocast_dtype:
            autocast = torch.autocast(device_type, dtype=dtype_of(plan.autocast_dtype))
        kernel = contextlib.nullcontext()
        if plan.attention in KERNELS and device_type != "cpu":
            kernel = sdpa_kernel(KERNELS[plan.attention])
        with kernel:
            with autocast:
                loss = loss_of(plan, model, ids)
            loss.backward()
    if plan.gradient_clipping:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def optimizer_of(plan, model):
    kind, settings = OPTIMIZERS[plan.optimizer]
    settings = {**settings, "foreach": plan.implementation == "foreach"}
    if plan.implementation == "fused":
        settings["fused"] = True
    return kind(model.parameters(), lr=1e-4, **settings)


def train(plan, device, before=lambda: None, after=lambda: None):
    """Runs the steps; `before` and `after` are called around each."""
    if plan.world_size > 1:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=plan.world_size)
    elif plan.framework == "fsdp2":
        store = dist.HashStore()
        backend = "gloo" if device == "cpu" else "nccl"
        dist.init_process_group(backend, store=store, rank=0, world_size=1)
    model = build(plan, device)
    optimizer = optimizer_of(plan, model)
    shape = (plan.micro_batch_size, plan.sequence_length)
    for _ in range(STEPS):
        before()
        ids = torch.randint(plan.config["vocab_size"], shape, device=device)
        step(plan, model, optimizer, ids)
        after()
    return count_parameters(model)


def processes_on(uuid):
    """How many processes nvidia-smi sees on a GPU, this one included where it may see it;
    None where it cannot be asked."""
    command = ["nvidia-smi", "--query-compute-apps=gpu_uuid", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.split().count(uuid)


def measure(plan):
    """Bytes of the first and of the steady step on the GPU, and of the whole process."""
    cuda = torch.cuda
    if plan.memory_fraction:
        cuda.set_per_process_memory_fraction(plan.memory_fraction)
    steps = []

    def before():
        cuda.synchronize()
        cuda.reset_peak_memory_stats()

    def after():
        cuda.synchronize()
        steps.append(
            {
                "peak_allocated": cuda.max_memory_allocated(),
                "peak_reserved": cuda.max_memory_reserved(),
                "end_allocated": cuda.memory_allocated(),
                "end_reserved": cuda.memory_reserved(),
            }
        )

    parameters = train(plan, "cuda", before, after)
    free, total = cuda.mem_get_info()
    return {
        "gpu": cuda.get_device_name(),
        "gpu_memory_bytes": total,
        "device_bytes": total - free,
        "processes": processes_on(f"GPU-{cuda.get_device_properties(0).uuid}"),
        "parameter_count": parameters,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "retries": cuda.memory_stats()["num_alloc_retries"],
        "first": steps[0],
        "steady": steps[-1],
    }


def main(argv):
    plan = plans.Plan(**json.load(sys.stdin))
    release = torch.__version__.partition("+")[0]
    if plan.torch_version and not f"{release}.".startswith(f"{plan.torch_version}."):
        raise SystemExit(f"the job asks for torch {plan.torch_version}; this is {release}")
    if "--smoke" in argv:
        print(json.dumps({"parameter_count": train(plan, "cpu"), "torch": torch.__version__}))
    elif not torch.cuda.is_available():
        raise SystemExit("torch sees no GPU")
    else:
        print(json.dumps(measure(plan)))
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
