#!/bin/sh
# Installs what is missing, builds with GCC and with Clang (AddressSanitizer
# and UBSan), warnings being errors in both, and runs every test.
set -eu
cd "$(dirname "$0")"
# Two jobs: the largest of our sources need a gigabyte to compile.
jobs=${JOBS:-2}

.ci/install.sh build test
for preset in release sanitize; do
  cmake --preset "$preset" --log-level=WARNING >/dev/null
  cmake --build --preset "$preset" -j "$jobs"
done

# Under the sanitizers, which do not build what measures speed or accuracy or looks at files, what
# does not search large spaces.
ctest --test-dir build-sanitize -j "$jobs" --output-on-failure --progress -LE search
exec ctest --test-dir build -j "$jobs" --output-on-failure
