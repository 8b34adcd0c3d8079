#!/bin/sh
# Soaks two servers in mixed load, attacks and restarts, and judges every call:
#   tests/soak/run.sh [MINUTES]      10 of them
#   ROOT=/some/root tests/soak/...   the servers of an image whose root this is, confined as
#                                    deploy/image/in_image.sh does
# Exit status: 0 no bug was seen, 1 some were.
set -eu
cd "$(dirname "$0")/../.."
.ci/install.sh build
cmake --preset release --log-level=WARNING >/dev/null
cmake --build --preset release -j "${JOBS:-2}" --target soak plimsoll-server >/dev/null
server=build/server/plimsoll-server
if [ -n "${ROOT:-}" ]; then
  server=$(mktemp)
  trap 'rm "$server"' EXIT
  printf '#!/bin/sh\nexec %s/deploy/image/in_image.sh "%s" plimsoll-server "$@"\n' "$PWD" "$ROOT" >"$server"
  chmod +x "$server"
fi
build/tests/soak/soak "$server" "${1:-10}"
