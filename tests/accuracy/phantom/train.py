#!/usr/bin/env python3
"""A training job as a row of ../data/phantom.csv describes it, as anyone could have written it.

    train.py CONFIG.json ROW.json

Nothing here knows of Plimsoll: `plimsoll measure` runs it unchanged.
"""

import contextlib
import functools
import json
import os
import sys
import types

import torch
import torch.distributed as dist
import transformers

STEPS = int(os.environ.get("TRAIN_STEPS", "3"))
LISTS = ("layer_types", "layers_block_type")  # what each layer is
STATE_SPACES = ("bamba", "falcon_mamba", "granitemoehybrid", "mamba", "mamba2", "nemotron_h")
WITHOUT_ATTENTION = ("falcon_mamba", "mamba", "mamba2")


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def shortened(config, layers):
    """What of a configuration changes where it has so many layers; 0: as it is."""
    if not layers:
        return {}
    kinds = {name: config[name][:layers] for name in LISTS if name in config}
    return {"num_hidden_layers": layers, **kinds}


def choose_kernels(row, config):
    """A row of Python's own linear attention finds no package of its kernels; those of state-space
    layers are in a folder of their own, as one of them is linear attention's too."""
    if row.get("linear") == "torch":
        sys.modules["fla"] = None
    if config["model_type"] in STATE_SPACES:
        sys.path.insert(0, os.environ["STATE_SPACE_PACKAGES"])


def model_of(config, row, device):
    config = transformers.AutoConfig.for_model(**config)
    config.use_cache = False
    masked = config.model_type == "bert"
    auto = transformers.AutoModelForMaskedLM if masked else transformers.AutoModelForCausalLM
    attention = "eager" if row["kernel"] == "eager" else "sdpa"
    if config.model_type in WITHOUT_ATTENTION:
        attention = "eager"
    dtype = torch.bfloat16 if row["precision"] == "bf16-pure" else torch.float32
    with torch.device(device):
        model = auto.from_config(config, dtype=dtype, attn_implementation=attention)
    if row["checkpointing"] == "True":
        model.gradient_checkpointing_enable()
    if row.get("liger"):
        apply_liger(model, row["liger"])
    freeze(model, row)
    return model


def freeze(model, row):
    """`attention+mlp last=2`: which parts are trained, and of the layers the last so many."""
    if not row.get("trained"):
        return
    parts, _, last = row["trained"].partition(" last=")
    layers = list(layers_of(model))
    below = layers[:len(layers) - int(last)] if last else []
    frozen = {id(at) for layer in below for at in layer.parameters()}
    ends = {id(model.get_output_embeddings().weight): "head"}
    ends[id(model.get_input_embeddings().weight)] = "embedding"  # whose a shared table is
    for name, parameter in model.named_parameters():
        words = {ends.get(id(parameter)) or part_of(name)}
        if name.endswith(".bias"):
            words.add("bias")
        trained = id(parameter) not in frozen and words & set(parts.split("+"))
        parameter.requires_grad_(bool(trained))


def part_of(name):
    if "norm" in name or "ln_" in name or "layernorm" in name:
        return "norm"
    attention = any(word in name for word in (".self_attn.", ".attention.", ".attn."))
    return "attention" if attention else "mlp"


def apply_liger(model, loss):
    """As transformers does it where `use_liger_kernel` is true; `loss`: fused, or the model's own."""
    from liger_kernel.transformers import _apply_liger_kernel_to_instance

    own = {} if loss == "fused" else {"fused_linear_cross_entropy": False}
    _apply_liger_kernel_to_instance(model=model, **own)


def layers_of(model):
    count = model.config.num_hidden_layers
    return next(module for module in model.modules()
                if isinstance(module, torch.nn.ModuleList) and len(module) == count)


def mixed(row, policy, **values):
    if row["precision"] != "bf16-mixed":
        return None
    reduce = torch.bfloat16 if row["reduce"] == "bf16" else torch.float32
    return policy(param_dtype=torch.bfloat16, reduce_dtype=reduce, **values)


def in_fsdp2(model, row):
    """`ends`: groups of their own for the embedding and for norm and head; `root`: one for all."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

    contexts = int(row.get("cp") or 1)
    shape = (dist.get_world_size() // contexts, contexts)
    row["mesh"] = init_device_mesh("cuda", shape, mesh_dim_names=("dp", "cp"))
    mesh = row["mesh"]._flatten("dp_cp")
    options = {"mesh": mesh, "reshard_after_forward": row["reshard"] == "True"}
    policy = mixed(row, MixedPrecisionPolicy)
    if policy is not None:
        options["mp_policy"] = policy
    offload = row.get("offload") == "True"
    if offload:
        options["offload_policy"] = CPUOffloadPolicy()
    if row["units"] == "ends":
        shard_ends(model, options)
    for layer in layers_of(model):
        fully_shard(layer, **options)
    fully_shard(model, **options)
    model.to_empty(device="cpu" if offload else "cuda")
    model.tie_weights()
    if contexts > 1:
        for name, module in model.named_modules():
            if name.endswith(("self_attn", "attention", "attn")):
                module.register_forward_pre_hook(drop_mask, with_kwargs=True)
    return model


def shard_ends(model, options):
    from torch.distributed.fsdp import fully_shard

    names = ("model.norm", "transformer.ln_f", "gpt_neox.final_layer_norm")
    norm = [module for name, module in model.named_modules() if name in names]
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    if embedding.weight is head.weight:
        fully_shard([embedding, head, *norm], **options)
    else:
        fully_shard(embedding, **options)
        fully_shard([*norm, head], **{**options, "reshard_after_forward": False})


def in_fsdp1(model, row):
    from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel, MixedPrecision
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

    policy = functools.partial(transformer_auto_wrap_policy,
                               transformer_layer_cls={type(layer) for layer in layers_of(model)})
    return FullyShardedDataParallel(
        model, auto_wrap_policy=policy, use_orig_params=True, device_id=torch.device("cuda", 0),
        cpu_offload=CPUOffload(offload_params=row.get("offload") == "True"),
        mixed_precision=mixed(row, MixedPrecision, buffer_dtype=torch.bfloat16))


def tell_engine(settings, text):
    """`bucket=4194304 overlap=True accumulate=fp32 reduce=fp32`: what DeepSpeed is told, or not."""
    told = dict(word.split("=") for word in text.split())
    if "bucket" in told:
        settings["zero_optimization"]["reduce_bucket_size"] = int(told["bucket"])
    if "overlap" in told:
        settings["zero_optimization"]["overlap_comm"] = told["overlap"] == "True"
    if "accumulate" in told:
        settings["data_types"] = {"grad_accum_dtype": told["accumulate"]}
    if "reduce" in told:
        settings["communication_data_type"] = told["reduce"]


def in_deepspeed(config, row):
    """The engine and its model; with ZeRO 3 parameters are cut as they are made."""
    import deepspeed

    settings = {
        "train_micro_batch_size_per_gpu": int(row["micro_batch"]),
        "gradient_accumulation_steps": int(row["accumulate"]),
        "bf16": {"enabled": row["precision"] not in ("fp32", "fp16-mixed")},
        "fp16": {"enabled": row["precision"] == "fp16-mixed"},
        "zero_optimization": {"stage": int(row["wrapper"][-1])},
        "gradient_clipping": 1.0 if row["clip"] == "True" else 0.0,
    }
    tell_engine(settings, row.get("engine", ""))
    offload = row.get("offload")
    host = {"device": "cpu", "pin_memory": True}
    if offload:  # optimizer, or that and parameters; nothing is computed, so any sum overflows
        settings["zero_optimization"]["offload_optimizer"] = host
        settings["zero_force_ds_cpu_optimizer"] = False
        settings["bf16"]["check_grad_overflow"] = False
    if offload == "parameters":
        settings["zero_optimization"]["offload_param"] = host
    whole = settings["zero_optimization"]["stage"] < 3
    settings["zero_allow_untested_optimizer"] = True
    own = OF_DEEPSPEED.get(row["optimizer"])
    if own:
        settings["optimizer"] = {"type": own[0], "params": {"lr": 1e-4, **own[1]}}
    model_of(config, row, "meta")  # what this imports does not bear being cut
    made = contextlib.nullcontext() if whole else deepspeed.zero.Init(config_dict_or_path=settings)
    # Linear attention's class sets numbers of its own, which parameters that are cut have not.
    unset = contextlib.nullcontext()
    if row.get("linear") and not whole:
        unset = transformers.initialization.no_init_weights()
    with made, unset:
        weights = row["precision"] if row["precision"] == "fp32" else "bf16-pure"
        model = model_of(config, {**row, "precision": weights}, "cuda" if whole else "cpu")
        if row.get("linear") and not whole:
            model.tie_weights()  # as setting its numbers would have done
    if row["precision"] == "fp16-mixed":
        model.half()
    engine, *_ = deepspeed.initialize(
        model=model, optimizer=None if own else optimizer_of(model, row),
        model_parameters=model.parameters() if own else None, config=settings)
    if settings["zero_optimization"]["stage"] == 0 and row["precision"] != "fp32":
        step_whatever_overflows(engine.optimizer)
    torch.cuda.empty_cache()
    engine.train()
    return engine


OF_DEEPSPEED = {"onebit-adam": ("OneBitAdam", {"freeze_step": 1}),
                "zero-one-adam": ("ZeroOneAdam", {"var_freeze_step": 0}),
                "onebit-lamb": ("OneBitLamb", {"freeze_step": 1}), "lamb": ("Lamb", {})}


def choose_deepspeed(row):
    """Releases up to 0.19.6 have optimizers that send signs; they are in a folder of their own."""
    import stand_ins

    if row["optimizer"] not in OF_DEEPSPEED:
        return
    sys.path.insert(0, os.environ["DEEPSPEED_018_PACKAGES"])
    sys.modules["cupy"] = stand_ins.cupy()
    from deepspeed.ops import lamb

    built = types.SimpleNamespace(lamb=stand_ins.fused_lamb)
    lamb.fused_lamb.FusedLambBuilder.load = lambda *_: built
    # Momenta that nothing is computed of have no norm to divide by.
    torch.linalg.vector_norm = lambda *_, **__: torch.ones(())


def step_whatever_overflows(optimizer):
    """Nothing is computed, so that any norm may look infinite, and a step be left out."""
    from deepspeed.runtime.fp16 import unfused_optimizer

    for check in ("check", "has_overflow", "check_using_norm"):
        setattr(optimizer.overflow_checker, check, lambda *_, **__: False)
    unfused_optimizer.is_invalid_grad_norm = lambda _: False


def wrapped(config, row):
    wrapper = row["wrapper"]
    model = model_of(config, row, "meta" if wrapper == "fsdp2" else "cuda")
    if wrapper == "fsdp2":
        model = in_fsdp2(model, row)
    elif wrapper == "fsdp1":
        model = in_fsdp1(model, row)
    elif wrapper == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(
            model, gradient_as_bucket_view=row["bucket_view"] == "True")
    torch.cuda.empty_cache()  # what making the model whole left cached is not the step's
    return model.train()


class InTurn:
    """Optimizers of parts of a model, as one."""

    def __init__(self, *optimizers):
        self.optimizers = optimizers

    def zero_grad(self, set_to_none):
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=set_to_none)

    def step(self):
        for optimizer in self.optimizers:
            optimizer.step()


def muon_of(model):
    """Matrices of layers; embeddings, the head and vectors are AdamW's."""
    ends = {model.get_input_embeddings().weight, model.get_output_embeddings().weight}
    matrices = [at for at in model.parameters() if at.ndim == 2 and at not in ends]
    rest = [at for at in model.parameters() if at.ndim != 2 or at in ends]
    return InTurn(torch.optim.Muon(matrices), torch.optim.AdamW(rest))


def of_bitsandbytes(model, name):
    import bitsandbytes

    return getattr(bitsandbytes.optim, name)(model.parameters(), lr=1e-4)


OF_TORCH = {"adamw": "AdamW", "adam": "Adam", "sgd": "SGD", "sgd-momentum": "SGD",
            "rmsprop": "RMSprop", "adagrad": "Adagrad"}
OF_BITSANDBYTES = {"adamw": "AdamW", "adamw-8bit": "AdamW8bit", "lion": "Lion",
                   "lion-8bit": "Lion8bit", "ademamix": "AdEMAMix",
                   "ademamix-8bit": "AdEMAMix8bit"}


def schedule_free_of(model, row):
    import schedulefree

    optimizer = schedulefree.AdamWScheduleFree(model.parameters(),
                                               foreach=row["implementation"] == "foreach")
    optimizer.train()
    return optimizer


def lion_of(model):
    import lion_pytorch

    return lion_pytorch.Lion(model.parameters(), lr=1e-4)


def optimizer_of(model, row):
    *paged, name = row["optimizer"].replace("in-backward ", "").split()
    if name == "adafactor":
        return transformers.Adafactor(model.parameters())
    if name == "muon":
        return muon_of(model)
    if name == "schedule-free-adamw":
        return schedule_free_of(model, row)
    if name == "lion" and row["implementation"] == "for-loop":
        return lion_of(model)
    if paged or name not in OF_TORCH:
        return of_bitsandbytes(model, ("Paged" if paged else "") + OF_BITSANDBYTES[name])
    chosen = {"fused": {"foreach": False, "fused": True}, "foreach": {"foreach": True},
              "for-loop": {"foreach": False}}[row["implementation"]]
    if name == "sgd-momentum":
        chosen["momentum"] = 0.9
    make = getattr(torch.optim, OF_TORCH[name])
    return make(model.parameters(), lr=1e-4, **chosen)


def unreduced(model, row):
    """Of a step's micro-batches but the last, as accelerate has it, FSDP1 leaves gradients whole."""
    whole = row["wrapper"] == "fsdp1" and row["units"] == "root"
    return model.no_sync() if whole else contextlib.nullcontext()


def step(model, optimizer, row):
    optimizer.zero_grad(set_to_none=True)
    shape = (int(row["micro_batch"]), int(row["sequence"]))
    for left in reversed(range(int(row["accumulate"]))):
        ids = torch.zeros(shape, dtype=torch.long, device="cuda")
        autocast = contextlib.nullcontext()
        if row["precision"] == "bf16-autocast":
            autocast = torch.autocast("cuda", dtype=torch.bfloat16)
        if int(row.get("cp") or 1) > 1:
            step_on_a_part(model, ids, autocast, row)
            continue
        with unreduced(model, row) if left > 0 else contextlib.nullcontext():
            with autocast:
                loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
    if row["clip"] == "True":
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def drop_mask(_module, args, values):
    """Keys of other ranks are masked by the order of parts alone, as accelerate's hooks do it."""
    if "attention_mask" in values:
        values = {**values, "attention_mask": None, "is_causal": True}
    return args, values


def step_on_a_part(model, ids, autocast, row):
    """A step on this rank's part of the sequences, the kernels of torch's context_parallel."""
    from torch.distributed.tensor.experimental import context_parallel
    from torch.distributed.tensor.experimental._attention import set_rotate_method

    set_rotate_method(row["method"])
    labels = ids.clone()
    positions = torch.arange(ids.shape[1], device="cuda").repeat(ids.shape[0], 1)
    buffers = [ids, labels, positions]
    with context_parallel(row["mesh"]["cp"], buffers=buffers, buffer_seq_dims=[1, 1, 1],
                          no_restore_buffers=set(buffers)):
        with autocast:
            loss = model(input_ids=ids, position_ids=positions, labels=labels,
                         shift_labels=labels).loss
        loss.backward()


class InBackward:
    """An optimizer for each parameter, which is stepped as its gradient is there, and goes."""

    def __init__(self, model, row):
        for parameter in model.parameters():
            optimizer = optimizer_of(One(parameter), row)
            parameter.register_post_accumulate_grad_hook(functools.partial(self.take, optimizer))

    @staticmethod
    def take(optimizer, _):
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def zero_grad(self, set_to_none):
        pass

    def step(self):
        pass


class One:
    """A model of one parameter."""

    def __init__(self, parameter):
        self.parameter = parameter

    def parameters(self):
        return [self.parameter]


def step_in_deepspeed(engine, row):
    shape = (int(row["micro_batch"]), int(row["sequence"]))
    for _ in range(int(row["accumulate"])):
        ids = torch.zeros(shape, dtype=torch.long, device="cuda")
        engine.backward(engine(input_ids=ids, labels=ids).loss)
        engine.step()


def main():
    config, row = load(sys.argv[1]), load(sys.argv[2])
    choose_kernels(row, config)
    config.update(shortened(config, int(row["layers"] or 0)))
    if row["wrapper"].startswith("zero"):
        choose_deepspeed(row)
        engine = in_deepspeed(config, row)
        for _ in range(STEPS):
            step_in_deepspeed(engine, row)
        return
    if "RANK" in os.environ:
        dist.init_process_group("nccl")
    model = wrapped(config, row)
    in_backward = row["optimizer"].startswith("in-backward ")
    optimizer = InBackward(model, row) if in_backward else optimizer_of(model, row)
    for _ in range(STEPS):
        step(model, optimizer, row)


if __name__ == "__main__":
    main()
