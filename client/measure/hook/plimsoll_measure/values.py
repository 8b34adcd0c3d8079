"""What depends on values that nothing computes: a mask is full, so what it selects is all.

The other way round a step would see no token. Attention by cuDNN is off: it is not stood in for.
"""

_kept = []  # a library's kernels live as long as it


def assume(torch):
    def nonzero(tensor):
        shape = (tensor.dim(), tensor.numel())
        return torch.empty(shape, dtype=torch.long, device=tensor.device).t()

    def masked_select(tensor, mask):
        shape = torch.broadcast_shapes(tensor.shape, mask.shape)
        return tensor.expand(shape).reshape(-1).clone()

    library = torch.library.Library("aten", "IMPL")
    _kept.append(library)
    library.impl("nonzero", nonzero, "CUDA", allow_override=True)
    library.impl("masked_select", masked_select, "CUDA", allow_override=True)
    torch.backends.cuda.enable_cudnn_sdp(False)
