#!/bin/sh
# Slurm's Prolog: writes which job has which GPU where dcgm-exporter finds it, and what was
# predicted for the job where node_exporter's textfile collector finds it. job_submit.lua
# left the figures behind the job's comment, which is all that reaches a prolog. Every one
# is digits, or nothing is written. It runs as root without PATH; whatever happens, it ends well: another end would
# drain the node.
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

# The name behind the word $1 in the mark; nothing where there is none.
name() {
  value=${mark#*" $1="}
  value=${value%%[!A-Za-z0-9._/-]*}
}

# $1 where it can stand in a label as it is, else nothing.
label() {
  case $1 in
    *[!A-Za-z0-9._/@+-]*) value= ;;
    *) value=$1 ;;
  esac
}

# Adds the job to the file of each of its GPUs; jobs may share one. A job that runs again
# is not there twice. In a shell of its own, which may end for want of a file.
claim_gpus() (
  /bin/mkdir -p "$gpus" && exec 9>>"$gpus/.lock" && /usr/bin/flock 9 || return
  IFS=,
  for gpu in $SLURM_JOB_GPUS; do
    ! is_number "$gpu" || /bin/grep -qx "$job" "$gpus/$gpu" || printf '%s\n' "$job" >>"$gpus/$gpu"
  done
)

is_number "$job" || exit 0
[ -z "${SLURM_JOB_GPUS:-}" ] || claim_gpus 2>/dev/null
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
name model && model=$value
name gpu && gpu=$value
label "${SLURM_JOB_USER:-${SLURM_JOB_UID:-}}" && user=$value
label "${SLURM_JOB_PARTITION:-}" && partition=$value
begin=$(/bin/date +%s 2>/dev/null)

# Metric $1 with the help $2: a line for each further argument, `,labels value`.
metric() {
  metric=plimsoll_job_$1
  printf '# HELP %s %s\n# TYPE %s gauge\n' "$metric" "$2" "$metric"
  shift 2
  for sample; do
    printf '%s{hpc_job="%s"%s} %s\n' "$metric" "$job" "${sample% *}" "${sample##* }"
  done
}

file=$folder/plimsoll_job_$job.prom
{
  metric predicted_gpu_memory_bytes 'Predicted memory of the most loaded GPU.' \
    ",figure=\"expected\" $expected" ",figure=\"bound\" $bound"
  metric gpu_memory_usable_bytes 'Memory that the job may use on each GPU.' " $usable"
  metric gpu_count 'GPUs of the job.' " $gpus"
  metric info 'Whose job it is, where it runs and what it trains.' \
    ",user=\"$user\",partition=\"$partition\",model=\"$model\",gpu=\"$gpu\" 1"
  ! is_number "$begin" || metric start_time_seconds 'When the job began, in Unix time.' " $begin"
} 2>/dev/null >"$file.new" && /bin/mv -f "$file.new" "$file" 2>/dev/null
exit 0
