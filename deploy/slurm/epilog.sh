#!/bin/sh
# Slurm's Epilog: removes what prolog.sh wrote. It runs as root without PATH; whatever
# happens, it ends well: another end would drain the node.
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
case ${SLURM_JOB_ID:-} in
  '' | *[!0-9]*) exit 0 ;;
esac
file=$folder/plimsoll_job_$SLURM_JOB_ID.prom
/bin/rm -f "$file" "$file.new" 2>/dev/null
exit 0
