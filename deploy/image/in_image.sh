#!/bin/sh
# Runs one of an image's programs as a container runtime would: root read-only, an unprivileged
# user without capabilities, a clean environment and a limit of memory.
#   deploy/image/in_image.sh ROOT PROGRAM [ARGUMENT...]
#   MEMORY_MIB=256     in a group of its own under the system's memory cgroup, where there is one
# As root. The process stays the one that was started, so that signals reach the program.
set -eu
root=$1
shift

# Joins a new group. Groups of programs that have ended are removed.
limit_memory() {
  if [ -e /sys/fs/cgroup/memory/memory.limit_in_bytes ]; then
    groups=/sys/fs/cgroup/memory limit=memory.limit_in_bytes
  elif grep -qs memory /sys/fs/cgroup/cgroup.subtree_control; then
    groups=/sys/fs/cgroup limit=memory.max
  else
    echo "in_image.sh: no memory cgroup here; memory is not limited" >&2
    return
  fi
  rmdir "$groups"/plimsoll-image-* 2>/dev/null || true
  group=$groups/plimsoll-image-$$
  mkdir "$group"
  echo $((${MEMORY_MIB:-256} << 20)) >"$group/$limit"
  echo $$ >"$group/cgroup.procs"
}

limit_memory
# shellcheck disable=SC2016  # expanded by the shell within
exec unshare --mount sh -euc '
  root=$1
  shift
  mount --make-rprivate /
  mount --bind "$root" "$root"
  mount -t proc proc "$root/proc"
  mount --bind /dev "$root/dev"
  mount -o remount,ro,bind "$root"
  exec chroot "$root" setpriv --reuid=65532 --regid=65532 --clear-groups --bounding-set=-all \
    --inh-caps=-all --no-new-privs env -i PATH=/usr/local/bin:/usr/bin:/bin "$@"
' in_image "$root" "$@"
