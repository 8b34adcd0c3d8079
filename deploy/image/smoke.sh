#!/bin/sh
# Tries an image's server as a container runtime would run it:
#   deploy/image/smoke.sh ROOT JOB_FILE
set -eu
root=$1
job=$2
here=$(dirname "$0")

fail() {
  echo "smoke.sh: $1" >&2
  exit 1
}

scratch=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$scratch"' EXIT

if "$here/in_image.sh" "$root" touch /tmp/written 2>/dev/null; then fail "the root can be written"; fi

mkfifo "$scratch/ready"
"$here/in_image.sh" "$root" plimsoll-server --listen 127.0.0.1:0 --http-listen 127.0.0.1:0 \
  >"$scratch/ready" &
server=$!
exec 3<"$scratch/ready"
read -r _ _ address _ _ <&3 || fail "the server did not start"

"$here/in_image.sh" "$root" plimsoll-server --health-check "$address" || fail "not healthy at $address"
verdict=0
"$here/in_image.sh" "$root" plimsoll estimate --server "$address" - <"$job" || verdict=$?
# 0 fits, 5 at risk, 3 does not fit: each is an answer.
case $verdict in 0 | 3 | 5) ;; *) fail "estimate exited with $verdict" ;; esac

kill -TERM "$server"
status=0
wait "$server" || status=$?
server=
[ "$status" -eq 0 ] || fail "SIGTERM: exit status $status; must be 0"
echo "Healthy, answers, and stops on SIGTERM: read-only root, user 65532, no capabilities."
