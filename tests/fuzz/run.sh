#!/bin/sh
# Builds the fuzzers with libFuzzer and grows their inputs:
#   tests/fuzz/run.sh [RUNS | SECONDSs] [FUZZER...]
# of each fuzzer named, or of all, so many inputs, or as many as so many seconds take: 60s.
# What reaches new code is kept in build-fuzz/corpus, what is found in build-fuzz/findings:
# inputs that end the program, take 5 s or a GiB, and, as slow-unit, those that take a second.
# Exit status: 0 nothing was found, 1 something was.
set -eu
cd "$(dirname "$0")/../.."
corpus=tests/fuzz/corpus
grown=build-fuzz/corpus
found=build-fuzz/findings

case ${1:-60s} in
  *s) much=-max_total_time=$(expr "${1:-60s}" : '\(.*\)s') ;;
  *) much=-runs=$1 ;;
esac
[ $# -eq 0 ] || shift
if [ $# -eq 0 ]; then
  for folder in "$corpus"/*; do set -- "$@" "${folder##*/}"; done
fi

.ci/install.sh build fuzz
cmake --preset fuzz --log-level=WARNING >/dev/null
cmake --build --preset fuzz -j "${JOBS:-2}" --target fuzz_grow

# The figure of a fuzzer's log.
figure() { sed -n "s/^stat::$2: *//p" "$found/$1.log"; }

status=0
mkdir -p $found
printf '%-11s %12s %8s %10s %9s  %s\n' fuzzer executions slowest 'memory MiB' findings seconds
for fuzzer; do
  mkdir -p "$grown/$fuzzer"
  start=$(date +%s)
  rm -f "$found/$fuzzer"-*
  "build-fuzz/tests/fuzz/$fuzzer" "$much" -timeout=5 -rss_limit_mb=1024 -report_slow_units=1 \
    -print_funcs=0 -print_final_stats=1 -artifact_prefix="$found/$fuzzer-" \
    "$grown/$fuzzer" "$corpus/$fuzzer" </dev/null >"$found/$fuzzer.log" 2>&1 || status=1
  set -- "$found/$fuzzer"-*
  [ -e "$1" ] || set --
  printf '%-11s %12s %8s %10s %9s  %s\n' "$fuzzer" \
    "$(figure "$fuzzer" number_of_executed_units)" "$(figure "$fuzzer" slowest_unit_time_sec)" \
    "$(figure "$fuzzer" peak_rss_mb)" $# $(($(date +%s) - start))
  [ $# -eq 0 ] || { status=1; printf '  %s\n' "$@"; }
done
exit $status
