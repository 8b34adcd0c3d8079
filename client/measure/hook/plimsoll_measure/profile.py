"""What a run has beside its peaks: parameters, states, communicators, and what shards them."""

import collections
import ctypes
import gc
import sys

MOST_COMMUNICATORS = 64
DTYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


class Parameters:
    """Of the model and of its optimizer, between two steps.

    `trained`: what the optimizer was given before, where it is given its groups one by one.
    """

    def __init__(self, torch, optimizer, trained=()):
        self.counts, self.shard_counts = {}, {}
        self.weight_bytes = 0
        own = set()
        for whole, shard, parameter in _parameters(torch):
            _add(self.counts, shard.dtype, whole)
            _add(self.shard_counts, shard.dtype, shard.numel())
            self.weight_bytes += _bytes(shard)
            own.add(id(parameter))
        given = [tensor for group in optimizer.param_groups for tensor in group["params"]]
        self.trained = list({id(tensor): tensor for tensor in [*trained, *given]}.values())
        states = [value for state in optimizer.state.values() for value in state.values()]
        masters = [tensor for tensor in self.trained if own and id(tensor) not in own]
        self.optimizer_state_bytes = sum(
            _bytes(tensor) for tensor in map(_local, states + masters)
            if torch.is_tensor(tensor) and tensor.is_cuda)

    def gradient_bytes(self):
        gradients = (parameter.grad for parameter in self.trained)
        return sum(_bytes(_local(gradient)) for gradient in gradients if gradient is not None)


def _local(tensor):
    return getattr(tensor, "_local_tensor", tensor)  # a DTensor's shard


def _bytes(tensor):
    return tensor.numel() * tensor.element_size()


def _add(counts, dtype, count):
    name = str(dtype).removeprefix("torch.")
    name = DTYPES.get(name, name)
    counts[name] = counts.get(name, 0) + count


def _modules(torch):
    return [thing for thing in gc.get_objects() if issubclass(type(thing), torch.nn.Module)]


def _parameters(torch):
    """Elements of each, its shard on this rank, and itself; each once."""
    modules = _modules(torch)
    flat = [module._handle.flat_param for module in modules if _is_fsdp1(module)]
    if flat:
        return [(parameter._unpadded_unsharded_size.numel(), parameter, parameter)
                for parameter in flat]
    found = {id(parameter): parameter for module in modules
             for parameter in module._parameters.values()
             if parameter is not None and _local(parameter).is_cuda}
    return [_elements(parameter) for parameter in found.values()]


def _elements(parameter):
    if hasattr(parameter, "ds_tensor") and parameter.ds_tensor is not None:  # ZeRO 3's
        return parameter.ds_numel, parameter.ds_tensor, parameter
    return parameter.numel(), _local(parameter), parameter


def _is_fsdp1(module):
    return getattr(module, "_handle", None) is not None and hasattr(module._handle, "flat_param")


def framework(torch):
    """As `runtime.framework` has it."""
    for package, name in (("megatron.core", "megatron-core"), ("nanotron", "nanotron")):
        if package in sys.modules:
            return name
    names = {base.__name__ for kind in {type(module) for module in _modules(torch)}
             for base in kind.__mro__}
    for name, found in (("DeepSpeedEngine", "deepspeed"), ("FSDPModule", "fsdp2"),
                        ("FullyShardedDataParallel", "fsdp1")):
        if name in names:
            return found
    return "ddp"


def communicators(groups):
    """[ranks, how far apart they are] of each communicator of NCCL's that was used.

    The stand-in for NCCL knows how many ranks each has, and torch which; of those that torch makes
    without a group, as from one pipeline stage to the next, the ranks are taken for neighbours.
    """
    left = collections.Counter(_used_communicators())
    found = []
    for members in groups:
        if left[len(members)] > 0:
            left[len(members)] -= 1
            found.append([len(members), members[1] - members[0]])
    return found + [[size, 1] for size in left.elements()]


def _used_communicators():
    sizes = (ctypes.c_int * MOST_COMMUNICATORS)()
    count = ctypes.CDLL(None).plimsoll_phantom_used_communicators(sizes, MOST_COMMUNICATORS)
    return [size for size in sizes[:min(count, MOST_COMMUNICATORS)] if size > 1]


def groups(torch):
    """The ranks of each process group that there is, in order."""
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return []
    members = torch.distributed.distributed_c10d._world.pg_group_ranks.values()
    return [sorted(ranks) for ranks in members]
