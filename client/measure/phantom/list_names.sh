#!/bin/sh
# Prints what torch asks of CUDA's libraries and nothing here answers: lines for accepted.txt or
# unknown.txt.
#   list_names.sh VENV/lib/python3.11/site-packages/torch/lib build/client/measure/libplimsoll-phantom.so
# Left to their own libraries, which need no GPU for it: versions and error strings of libraries
# that are not stood in for, NVRTC, NVSHMEM, cuFile.
set -eu
names() { sed -E 's/@.*//' | awk '{print $NF}' | sort -u; }
asked=$(mktemp)
answered=$(mktemp)
for library in "$1"/lib*.so; do nm -D --undefined-only "$library"; done | names |
  grep -E '^(__cuda|cuda|cu[A-Z]|cublas|nccl|cudnn|cufft|cupti|cusolver|cusparse)' |
  grep -vE '^cuFile|^cu(dnn|sparse)Get(Version|CudartVersion|ErrorString|LastErrorString|Property)$' >"$asked"
nm -D --defined-only "$2" | names >"$answered"
comm -23 "$asked" "$answered"
rm -f "$asked" "$answered"
