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
cat > "$folder/selective_scan_cuda.py" <<'PYTHON'
def fwd(*_):
    raise NotImplementedError


bwd = fwd
PYTHON
