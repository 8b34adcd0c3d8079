#!/bin/sh
# Installs what is missing, builds, starts a server on a free port, and asks
# it over gRPC where the memory of a Llama-3.1-8B job on 8 H100s goes, and how
# one that does not fit can be made to.
set -eu
cd "$(dirname "$0")"

.ci/install.sh build
cmake --preset release --log-level=WARNING >/dev/null
cmake --build --preset release -j "${JOBS:-2}" --target plimsoll-server plimsoll

scratch=$(mktemp -d)
mkfifo "$scratch/ready"
build/server/plimsoll-server --listen 127.0.0.1:0 --http-listen 127.0.0.1:0 >"$scratch/ready" &
server=$!
trap 'kill "$server" 2>/dev/null || :; rm -rf "$scratch"' EXIT
exec 3<"$scratch/ready"
# "plimsoll-server: grpc ADDRESS http ADDRESS", once it serves.
read -r _ _ address _ http <&3 || { echo "quickstart.sh: the server did not start" >&2; exit 1; }
echo "A server is at $address (gRPC) and $http (HTTP)."

# 0 fits, 5 at risk, 3 does not fit: each is an answer.
ask() {
  echo "\$ plimsoll $*"
  answer=0
  build/client/plimsoll "$@" || answer=$?
  case $answer in 0 | 3 | 5) ;; *) exit "$answer" ;; esac
}
ask estimate --server "$address" deploy/examples/llama-3.1-8b.yaml
echo
ask recommend --server "$address" deploy/examples/too-long.yaml

kill "$server"
wait "$server"
