"""What depends on values that nothing computes: a mask is full, so what it selects is all.

The other way round a step would see no token. A number that is read is what memory holds: nought,
so nothing overflows (DeepSpeed asks by a byte). Attention by cuDNN is off: it is not stood in for.
"""

import ctypes

_kept = []  # a library's kernels live as long as it


def assume(torch):
    def nonzero(tensor):
        shape = (tensor.dim(), tensor.numel())
        return torch.empty(shape, dtype=torch.long, device=tensor.device).t()

    def masked_select(tensor, mask):
        shape = torch.broadcast_shapes(tensor.shape, mask.shape)
        return tensor.expand(shape).reshape(-1).clone()

    def scalar(tensor):
        if tensor.dtype == torch.uint8:
            read_number()
        return tensor.cpu().item()

    read_number = ctypes.CDLL(None).plimsoll_phantom_read_number
    library = torch.library.Library("aten", "IMPL")
    _kept.append(library)
    library.impl("nonzero", nonzero, "CUDA", allow_override=True)
    library.impl("masked_select", masked_select, "CUDA", allow_override=True)
    library.impl("_local_scalar_dense", scalar, "CUDA", allow_override=True)
    torch.backends.cuda.enable_cudnn_sdp(False)
