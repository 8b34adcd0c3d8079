#!/bin/sh
# Makes the container image without any registry, and tries it: a base like
# debian:bookworm-slim by debootstrap, the Dockerfile by buildah, then the
# image's server with a read-only root and an unprivileged user.
#
#   deploy/image/build_and_smoke.sh            builds, tries, prints the size
#   SAVE=plimsoll.tar deploy/image/...         also writes an OCI archive
#   SOAK=10 deploy/image/...                   also soaks the image's servers for ten minutes
#
# Packages come from wherever this machine's apt takes them.
set -eu
cd "$(dirname "$0")/../.."
.ci/install.sh image
if [ "$(id -u)" -ne 0 ]; then exec sudo --preserve-env=SAVE,SOAK,STORAGE "$0" "$@"; fi

base=docker.io/library/debian:bookworm-slim
image=localhost/plimsoll
limit_mb=150
scratch=$(mktemp -d)
# Storage of its own, kept between runs for the base image only.
storage=${STORAGE:-/var/tmp/plimsoll-image}
container=

clean_up() {
  [ -z "$container" ] || buildah_ rm "$container" >/dev/null
  rm -rf "$scratch"
}
trap clean_up EXIT

buildah_() {
  buildah --root "$storage/root" --runroot "$storage/run" --storage-driver vfs "$@"
}

fail() {
  echo "build_and_smoke.sh: $1" >&2
  exit 1
}

# What debian:bookworm-slim is: a minbase without documentation or locales.
make_base() {
  set -- $(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' |
    grep ' bookworm$' | head -n 1)
  [ $# -eq 2 ] || fail "apt knows no bookworm; its sources must name one"
  mkdir "$scratch/rootfs"
  debootstrap --variant=minbase bookworm "$scratch/rootfs" "$1" >"$scratch/log" ||
    { tail "$scratch/log"; fail "debootstrap failed"; }
  rm -rf "$scratch/rootfs/var/cache/apt/archives" "$scratch/rootfs/var/lib/apt/lists" \
    "$scratch/rootfs/usr/share/man" "$scratch/rootfs/usr/share/info" \
    "$scratch/rootfs/usr/share/locale" "$scratch/rootfs/etc/apt/sources.list"
  find "$scratch/rootfs/usr/share/doc" -type f ! -name copyright -delete
  mkdir -p "$scratch/rootfs/var/cache/apt/archives/partial" \
    "$scratch/rootfs/var/lib/apt/lists/partial"
  container=$(buildah_ from scratch)
  buildah_ add -q "$container" "$scratch/rootfs" / >/dev/null
  buildah_ commit -q "$container" "$base" >/dev/null
  buildah_ rm "$container" >/dev/null
  container=
}

if ! buildah_ inspect --type image "$base" >/dev/null 2>&1; then
  echo "Making a base image ..."
  make_base
fi
echo "Building $image ..."
buildah_ build --isolation chroot --pull-never --volume /etc/apt:/etc/apt:ro \
  --format docker --tag "$image" . >"$scratch/log" 2>&1 ||
  { tail -n 40 "$scratch/log"; fail "the build failed"; }

container=$(buildah_ from --pull-never "$image")
base_container=$(buildah_ from --pull-never "$base")
image_mb=$(du -sm "$(buildah_ mount "$container")" | cut -f 1)
base_mb=$(du -sm "$(buildah_ mount "$base_container")" | cut -f 1)
buildah_ rm "$base_container" >/dev/null
echo "The image has $((image_mb - base_mb)) MB beyond its base of $base_mb MB; at most $limit_mb."
[ $((image_mb - base_mb)) -lt $limit_mb ] || fail "the image is too large"

root=$(buildah_ mount "$container")
deploy/image/smoke.sh "$root" deploy/examples/llama-3.1-8b.yaml
[ -z "${SOAK:-}" ] || ROOT=$root tests/soak/run.sh "$SOAK"
[ -z "${SAVE:-}" ] || buildah_ push -q "$image" "oci-archive:$SAVE:plimsoll"
