#!/bin/sh
# Installs with apt what is missing of the packages of the groups named:
#   build    what it takes to build and run Plimsoll
#   test     what it takes to check it: protoc's library, the second compiler, formatter, ctags,
#            other shells, Slurm, Prometheus, systemd and a balancer,
#            a browser that looks at the pictures; and of PyPI, into .cache/python,
#            what tests/requirements.txt lists
#   fuzz     what it takes to grow inputs of fuzzers
#   image    what it takes to make the container image without a registry
# Does nothing, and needs no network, where all is there.
set -eu

build="cmake ninja-build ccache g++-12 pkgconf
  libgrpc++-dev libgrpc-dev protobuf-compiler-grpc protobuf-compiler libprotobuf-dev
  libabsl-dev prometheus-cpp-dev libcli11-dev libyaml-cpp-dev rapidjson-dev python3
  libcpp-httplib-dev libgtest-dev libgmock-dev libbenchmark-dev"
test="libprotoc-dev clang-14 lld-14 libclang-rt-14-dev clang-format-14 clang-tidy-14 universal-ctags chromium
  fonts-dejavu-core
  slurmctld slurmd slurm-client slurm-wlm-basic-plugins lua-check lua5.1 lua-cjson lua-posix
  shellcheck zsh fish prometheus prometheus-node-exporter python3-yaml python3-venv systemd libseccomp2
  haproxy"
fuzz="clang-14 lld-14 libclang-rt-14-dev"
image="buildah debootstrap"

wanted=
for group in "$@"; do
  case $group in
    build) wanted="$wanted $build" ;;
    test) wanted="$wanted $test" ;;
    fuzz) wanted="$wanted $fuzz" ;;
    image) wanted="$wanted $image" ;;
    *) echo "install.sh: $group; one of build, test, fuzz, image" >&2; exit 2 ;;
  esac
done

missing=
for package in $wanted; do
  case $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true) in
    installed*) ;;
    *) missing="$missing $package" ;;
  esac
done
if [ -n "$missing" ]; then
  as_root=
  [ "$(id -u)" -eq 0 ] || as_root=sudo
  echo "install.sh: installing$missing"
  $as_root apt-get update -q
  # shellcheck disable=SC2086  # a list of words
  $as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -q --no-install-recommends $missing
fi

# The machine's own Python may have it already.
root=$(dirname "$0")/..
python=$root/.cache/python
validates() { "$1" -c 'import openapi_spec_validator' 2>/dev/null; }
case " $* " in
  *" test "*)
    if ! validates "$python/bin/python3" && ! validates python3; then
      echo "install.sh: installing tests/requirements.txt into .cache/python"
      python3 -m venv "$python"
      "$python/bin/pip" install -q -r "$root/tests/requirements.txt"
    fi ;;
esac
