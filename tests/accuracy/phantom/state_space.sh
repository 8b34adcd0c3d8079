#!/bin/sh
# Lays out what rows of state-space layers import: mamba-ssm and causal-conv1d as released, whose
# kernels Triton compiles, without what a CUDA compiler builds of them: that writes into tensors
# which are there already, and here nothing is computed.
#   state_space.sh FOLDER PIP      then STATE_SPACE_PACKAGES=FOLDER fill.py ...
set -eu
folder=$1
pip=$2
export MAMBA_FORCE_BUILD=TRUE MAMBA_SKIP_CUDA_BUILD=TRUE
export CAUSAL_CONV1D_FORCE_BUILD=TRUE CAUSAL_CONV1D_SKIP_CUDA_BUILD=TRUE
"$pip" install --quiet einops ninja packaging setuptools wheel
"$pip" install --quiet --no-deps --no-build-isolation --no-binary :all: --target "$folder" \
  mamba-ssm==2.3.2.post1 causal-conv1d==1.7.0
cat > "$folder/causal_conv1d_cuda.py" <<'PYTHON'
def causal_conv1d_fwd(*_):
    pass


causal_conv1d_bwd = causal_conv1d_fwd
PYTHON
# Of a scan what it makes. Source: mamba csrc/selective_scan/selective_scan.cpp, selective_scan_fwd,
# selective_scan_bwd.
cat > "$folder/selective_scan_cuda.py" <<'PYTHON'
import torch

CHUNK = 2048


def fwd(u, delta, A, B, C, D, z, delta_bias, delta_softplus):
    gated = [] if z is None else [torch.empty_like(z)]
    out = torch.empty_like(delta)
    chunks = -(-u.shape[2] // CHUNK)
    return [out, A.new_empty(u.shape[0], u.shape[1], chunks, 2 * A.shape[1]), *gated]


def bwd(u, delta, A, B, C, D, z, delta_bias, dout, x, out, dz, delta_softplus, recompute_out_z):
    gated = [] if z is None else [torch.empty_like(z) if dz is None else dz]
    again = [torch.empty_like(out)] if recompute_out_z else []
    du, ddelta, dA = torch.empty_like(u), torch.empty_like(delta), torch.zeros_like(A)
    dB, dC = (torch.zeros_like(of, dtype=torch.float32) for of in (B, C))
    rest = [None if of is None else torch.zeros_like(of) for of in (D, delta_bias)]
    return [du, ddelta, dA, dB.to(B.dtype), dC.to(C.dtype), *rest, *gated, *again]
PYTHON
