#!/bin/sh
# Slurm's EpilogSlurmctld: when a job with a prediction has ended, reports what it used.
# The report runs on detached, so that the controller waits for nothing; whatever
# happens, this ends well.
#
# Settings, as variables of a script that calls this one:
#   PLIMSOLL_PROGRAM     the program                       /usr/bin/plimsoll
#   PLIMSOLL_SERVER      where reports are counted         unix:/run/plimsoll/plimsoll.sock
#   PLIMSOLL_PROMETHEUS  where the GPUs' memory is read    http://127.0.0.1:9090
#   PLIMSOLL_ROWS        a file of rows to calibrate from  none
#   PLIMSOLL_WAIT        for the exporter's last samples   60s
#   PLIMSOLL_REPORTS     that wait at once; no more    32
#   PLIMSOLL_SLOTS       their folder, SlurmUser's      /tmp/plimsoll-report.<its number>
#   PLIMSOLL_OUT_OF_MEMORY_EXIT_CODES  which mean that a GPU was full, as "77 78"   none
#   PLIMSOLL_REPORT_LOG  a file                            the system's log
PATH=/usr/bin:/bin
export PATH
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
  folder=${PLIMSOLL_SLOTS:-/tmp/plimsoll-report.$(id -u)}
  case $slots in
    '' | 0* | *[!0-9]*)
      echo "job $job: not reported: PLIMSOLL_REPORTS: $slots; must be a number above 0"
      return 1
      ;;
  esac
  mkdir -m 700 "$folder" 2>/dev/null
  if [ ! -d "$folder" ] || [ -L "$folder" ] || [ ! -O "$folder" ]; then
    echo "job $job: not reported: PLIMSOLL_SLOTS: $folder; must be a folder of $(id -un)"
    return 1
  fi
  for step in 0 1 2 3; do
    exec 9>"$folder/$(((job + step) % slots))"
    flock --nonblock 9 && return
  done
  echo "job $job: not reported: the slots of $folder are taken (PLIMSOLL_REPORTS: $slots)"
  return 1
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
