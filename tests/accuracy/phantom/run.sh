#!/bin/sh
# Runs rows of ../data/phantom.csv by `plimsoll measure`, and compares. Installs PyTorch, 5 GB, where
# FOLDER has none yet; so no part of ./test.sh.
#   [TORCH=2.14.1] run.sh FOLDER [ROW...]      as run.sh build/phantom d01 d29
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=$1
shift
if [ ! -x "$folder/bin/python" ]; then
  python3 -m venv "$folder"
  "$folder/bin/pip" install --quiet torch=="${TORCH:-2.15.0}" transformers==5.23.0
fi
exec "$folder/bin/python" -B "$here/run.py" "$@"
