#!/bin/sh
# Soaks two servers in mixed load, attacks and restarts, and judges every call:
#   tests/soak/run.sh [MINUTES]      10 of them
# Exit status: 0 no bug was seen, 1 some were.
set -eu
cd "$(dirname "$0")/../.."
.ci/install.sh build
cmake --preset release --log-level=WARNING >/dev/null
cmake --build --preset release -j "${JOBS:-2}" --target soak plimsoll-server >/dev/null
exec build/tests/soak/soak build/server/plimsoll-server "${1:-10}"
