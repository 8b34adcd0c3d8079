#!/bin/sh
# Slurm's Prolog: writes what was predicted for a job where node_exporter's textfile
# collector finds it. job_submit.lua left the figures behind the job's comment, which
# is all that reaches a prolog. Every one is digits, or nothing is written.
# It runs as root without PATH; whatever happens, it ends well: another end would
# drain the node.
umask 022
folder=${PLIMSOLL_TEXTFILE_DIRECTORY:-/var/lib/prometheus/node-exporter}
job=${SLURM_JOB_ID:-}

is_number() {
  case $1 in
    '' | *[!0-9]*) return 1 ;;
  esac
  [ "${#1}" -le 18 ]
}

# The digits behind the word $1 in the mark.
figure() {
  value=${mark#*" $1="}
  value=${value%%[!0-9]*}
}

is_number "$job" || exit 0
case ${SLURM_JOB_COMMENT:-} in
  *'[plimsoll expected='*']') ;;
  *) exit 0 ;;
esac
mark=" expected=${SLURM_JOB_COMMENT##*'[plimsoll expected='}"
figure expected && expected=$value
figure bound && bound=$value
figure usable && usable=$value
figure gpus && gpus=$value
for value in "$expected" "$bound" "$usable" "$gpus"; do
  is_number "$value" || exit 0
done

file=$folder/plimsoll_job_$job.prom
{
  printf '# HELP plimsoll_job_predicted_gpu_memory_bytes Predicted memory of the most loaded GPU.\n'
  printf '# TYPE plimsoll_job_predicted_gpu_memory_bytes gauge\n'
  printf 'plimsoll_job_predicted_gpu_memory_bytes{hpc_job="%s",figure="expected"} %s\n' \
    "$job" "$expected"
  printf 'plimsoll_job_predicted_gpu_memory_bytes{hpc_job="%s",figure="bound"} %s\n' "$job" "$bound"
  printf '# HELP plimsoll_job_gpu_memory_usable_bytes Memory that the job may use on each GPU.\n'
  printf '# TYPE plimsoll_job_gpu_memory_usable_bytes gauge\n'
  printf 'plimsoll_job_gpu_memory_usable_bytes{hpc_job="%s"} %s\n' "$job" "$usable"
  printf '# HELP plimsoll_job_gpu_count GPUs of the job.\n'
  printf '# TYPE plimsoll_job_gpu_count gauge\n'
  printf 'plimsoll_job_gpu_count{hpc_job="%s"} %s\n' "$job" "$gpus"
} 2>/dev/null >"$file.new" && /bin/mv -f "$file.new" "$file" 2>/dev/null
exit 0
