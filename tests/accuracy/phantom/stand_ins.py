"""What a GPU that computes nothing has no library for, by the memory that it takes.

CuPy's arrays lie in a pool of their own, beside torch's; DeepSpeed's LAMB is a kernel that nobody
built; cuSOLVER's factors are in its source and torch's, and their workspace is what
cusolverDnSgesvdj_bufferSize of CUDA 13's library says.
"""

import ctypes
import math
import types

import torch
from torch.utils import dlpack


class _Block:
    """Memory of CuPy's pool, where it stays when it is freed."""

    free = {}

    def __init__(self, count):
        self.size = max(-(-count // 512) * 512, 512)
        found = self.free.setdefault(self.size, [])
        self.pointer = found.pop() if found else self._allocate()
        self.__cuda_array_interface__ = {"shape": (count,), "typestr": "|u1", "version": 3,
                                         "data": (self.pointer, False)}

    def _allocate(self):
        pointer = ctypes.c_void_p()
        if ctypes.CDLL(None).cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(self.size)):
            raise MemoryError(f"CuPy's pool: {self.size} bytes")
        return pointer.value

    def __del__(self):
        self.free[self.size].append(self.pointer)


class _Array:
    def __init__(self, tensor):
        self.tensor = tensor
        self.size, self.dtype = tensor.numel(), tensor.dtype

    def __getitem__(self, at):
        return _Array(self.tensor[at])

    def flatten(self):
        return _Array(self.tensor.flatten())

    def reshape(self, *shape):
        return _Array(self.tensor.reshape(*shape))

    def __dlpack__(self, **named):
        return self.tensor.__dlpack__(**named)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


def _bytes(count):
    return _Array(torch.as_tensor(_Block(count), device="cuda"))


def _split(array, count):
    each = array.size // count
    return [array[part * each:(part + 1) * each] for part in range(count)]


def _zeros(shape, dtype):
    array = _bytes(math.prod(shape) * dtype.itemsize)
    return _Array(array.tensor.view(dtype).reshape(shape))


def cupy():
    """The functions of CuPy that DeepSpeed's compressed_allreduce calls."""
    module = types.ModuleType("cupy")
    module.from_dlpack = lambda capsule: _Array(dlpack.from_dlpack(capsule))
    module.packbits = lambda array: _bytes(-(-array.size // 8))
    module.unpackbits = lambda array: _bytes(array.size * 8)
    module.split, module.zeros = _split, _zeros
    nothing = types.SimpleNamespace(use=lambda: None, synchronize=lambda: None)
    module.cuda = types.SimpleNamespace(Device=lambda _: nothing,
                                        get_current_stream=lambda: nothing)
    return module


def fused_lamb(weight, *_):
    """Sums of as many blocks as its kernel has, and the coefficient."""
    sums = [torch.empty(512, dtype=weight.dtype, device=weight.device) for _ in range(2)]
    return sums[0].new_empty(1)


def svd(matrix, full_matrices=True):
    """torch.linalg.svd of one matrix on a GPU, by cuSOLVER's gesvdj."""
    assert not full_matrices
    rows, columns = matrix.shape
    least = min(rows, columns)
    made = [matrix.new_empty(size) for size in ((rows, least), (least,), (least, columns))]
    working_copy = matrix.clone()
    workspace = matrix.new_empty(rows * columns + least * least)
    del working_copy, workspace
    return made
