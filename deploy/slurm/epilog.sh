#!/bin/sh
# Slurm's Epilog: removes what prolog.sh wrote. It runs as root without PATH; whatever
# happens, it ends well: another end would drain the node.
folder=${PLIMSOLL_TEXTFILE_DIRECTORY:-/var/lib/prometheus/node-exporter}
case ${SLURM_JOB_ID:-} in
  '' | *[!0-9]*) exit 0 ;;
esac
file=$folder/plimsoll_job_$SLURM_JOB_ID.prom
/bin/rm -f "$file" "$file.new" 2>/dev/null
exit 0
