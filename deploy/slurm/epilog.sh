#!/bin/sh
# Slurm's Epilog: removes what prolog.sh wrote. It runs as root without PATH; whatever
# happens, it ends well: another end would drain the node.
umask 022
# Settings: lines NAME=value of a file, as they stand; nothing in it is run.
file=${PLIMSOLL_SLURM_ENV:-/etc/plimsoll/slurm.env}
if [ -r "$file" ]; then
  while read -r line || [ -n "$line" ]; do
    value=${line#*=}
    case $value in
      '"'*'"') value=${value#?} && value=${value%?} ;;
    esac
    case ${line%%=*} in
      PLIMSOLL_*[!A-Z_]* | "$line") ;;
      PLIMSOLL_*) export "${line%%=*}=$value" ;;
    esac
  done <"$file"
fi
folder=${PLIMSOLL_TEXTFILE_DIRECTORY:-/var/lib/prometheus/node-exporter}
gpus=${PLIMSOLL_GPU_DIRECTORY:-/run/plimsoll-gpus}
case ${SLURM_JOB_ID:-} in
  '' | *[!0-9]*) exit 0 ;;
esac
file=$folder/plimsoll_job_$SLURM_JOB_ID.prom
/bin/rm -f "$file" "$file.new" 2>/dev/null

# Removes the job from the files of its GPUs, and those that have no other. In a shell of
# its own, which may end for want of a file.
release_gpus() (
  exec 9>>"$gpus/.lock" && /usr/bin/flock 9 || return
  for file in "$gpus"/[0-9]*; do
    /bin/grep -qx "$SLURM_JOB_ID" "$file" || continue
    if /bin/grep -vx "$SLURM_JOB_ID" "$file" >"$gpus/.new"; then
      /bin/mv -f "$gpus/.new" "$file"
    else
      /bin/rm -f "$file" "$gpus/.new"
    fi
  done
)

[ ! -d "$gpus" ] || release_gpus 2>/dev/null
exit 0
