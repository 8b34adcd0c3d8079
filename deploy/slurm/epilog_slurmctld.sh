#!/bin/sh
# Slurm's EpilogSlurmctld: when a job with a prediction has ended, writes how for
# node_exporter's textfile collector, and reports what it used. That runs on detached, so
# that the controller waits for nothing; whatever happens, this ends well.
# What may be set, and the defaults, is in slurm.env.
PATH=/usr/bin:/bin
export PATH
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
program=${PLIMSOLL_PROGRAM:-/usr/bin/plimsoll}
server=${PLIMSOLL_SERVER:-unix:/run/plimsoll/plimsoll.sock}
prometheus=${PLIMSOLL_PROMETHEUS:-http://127.0.0.1:9090}
wait=${PLIMSOLL_WAIT:-60s}
slots=${PLIMSOLL_REPORTS:-32}
job=${SLURM_JOB_ID:-}

case $job in
  '' | *[!0-9]*) exit 0 ;;
esac

# Prints the job's state, start, end and prediction. AdminComment is alone what no user
# writes, and a field of squeue's is nothing but that field.
look() {
  SLURM_TIME_FORMAT=%s squeue --noheader --states=all --jobs="$job" \
    --Format=jobid:20,state:20,starttime:20,endtime:20,admin_comment:20000 |
    while read -r id rest; do
      [ "$id" != "$job" ] || printf '%s\n' "$rest"
    done
}

# `finished`, `out-of-memory` or `other`, of a state. Training mostly ends by its time limit.
# Slurm sees exit codes alone, and Python's is 1 for every error: a full GPU is told apart
# where the training, a step of the job, ends with a code of its own: whatever the script
# that started it ends with.
outcome() {
  for code in ${PLIMSOLL_OUT_OF_MEMORY_EXIT_CODES:-}; do
    [ "$code" = "${SLURM_JOB_EXIT_CODE2%%:*}" ] && echo out-of-memory && return
    [ "$code" = "${SLURM_JOB_DERIVED_EC:-}" ] && echo out-of-memory && return
  done
  case $1 in
    COMPLETED | TIMEOUT) echo finished ;;
    *) echo other ;;
  esac
}

# Takes one of the slots for as long as this process lives; else says why not and fails.
# It tries a few: jobs that end together have numbers in a row.
take_slot() {
  places=${PLIMSOLL_SLOTS:-/tmp/plimsoll-report.$(id -u)}
  case $slots in
    '' | 0* | *[!0-9]*)
      echo "job $job: not reported: PLIMSOLL_REPORTS: $slots; must be a number above 0"
      return 1
      ;;
  esac
  mkdir -m 700 "$places" 2>/dev/null
  if [ ! -d "$places" ] || [ -L "$places" ] || [ ! -O "$places" ]; then
    echo "job $job: not reported: PLIMSOLL_SLOTS: $places; must be a folder of $(id -un)"
    return 1
  fi
  for step in 0 1 2 3; do
    exec 9>"$places/$(((job + step) % slots))"
    flock --nonblock 9 && return
  done
  echo "job $job: not reported: the slots of $places are taken (PLIMSOLL_REPORTS: $slots)"
  return 1
}

# Writes that the job has ended: state, Unix time. What Prometheus has seen by then is
# removed, ten minutes later, when another job ends.
show_end() {
  case $1:$2 in
    :* | *: | RUNNING:* | COMPLETING:* | *[!A-Z_]*:* | *:*[!0-9]*) return ;;
  esac
  find "$folder" -maxdepth 1 -name 'plimsoll_ended_*.prom*' -mmin +10 -delete 2>/dev/null
  file=$folder/plimsoll_ended_$job.prom
  metric=plimsoll_job_end_time_seconds
  {
    printf '# HELP %s When the job ended, in Unix time, and how.\n' "$metric"
    printf '# TYPE %s gauge\n' "$metric"
    printf '%s{hpc_job="%s",outcome="%s",state="%s"} %s\n' \
      "$metric" "$job" "$(outcome "$1")" "$1" "$2"
  } 2>/dev/null >"$file.new" && mv -f "$file.new" "$file"
}

report() {
  take_slot || return
  left=60
  while found=$(look) && [ "$left" -gt 0 ]; do
    case $found in
      RUNNING* | COMPLETING*) sleep 1 ;;
      *) break ;;
    esac
    left=$((left - 1))
  done
  read -r state start end prediction <<END
$found
END
  show_end "$state" "$end"
  case $prediction in
    'plimsoll {'*) ;;
    *)
      echo "job $job: not reported: squeue shows no prediction of it"
      return
      ;;
  esac
  set -- --job-id "$job" --prediction - --outcome "$(outcome "$state")" --server "$server" \
    --prometheus "$prometheus" --wait "$wait"
  case $start$end in
    *[!0-9]*) ;;
    *) set -- "$@" --start "$start" --end "$end" ;;
  esac
  [ -z "${PLIMSOLL_ROWS:-}" ] || set -- "$@" --rows "$PLIMSOLL_ROWS"
  printf '%s\n' "$prediction" | "$program" report "$@"
}

if [ "${1:-}" = detached ]; then
  # Lets go of the caller, which waits for just that.
  if [ -n "${PLIMSOLL_REPORT_LOG:-}" ]; then
    exec </dev/null >>"$PLIMSOLL_REPORT_LOG" 2>&1
    report
  else
    exec </dev/null >/dev/null 2>&1
    report 2>&1 | logger -t plimsoll-report
  fi
  exit 0
fi
case ${SLURM_JOB_COMMENT:-} in
  *'[plimsoll expected='*']') ;;
  *) exit 0 ;; # a job without a prediction costs nothing
esac
# slurmctld kills what is left of this script's process group when it ends: so not
# before the report is in a session of its own, and has closed what it got from here.
: "$(setsid --fork "$0" detached 2>&1)"
exit 0
