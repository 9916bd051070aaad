#!/usr/bin/env bash
# What the program says where --device cuda cannot run: an old driver, and a driver without a GPU. The driver is a stand-in
# that answers the two questions which the runtime library asks first.
# usage: scripts/check-no-gpu.sh BINARY
set -euo pipefail
binary=${1:?usage: scripts/check-no-gpu.sh BINARY}
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT

# expect VERSION STATUS TEXT ARGUMENT...: with a driver for CUDA VERSION whose cuInit returns STATUS, BINARY fails and says TEXT.
expect() {
  local version=$1 status=$2 text=$3 code=0
  shift 3
  printf 'int cuInit(unsigned flags) { return flags ? 1 : %d; }\nint cuDriverGetVersion(int* v) { return *v = %d, 0; }\n' \
    "$status" "$version" >"$folder/driver.c"
  "${CC:-cc}" -shared -fPIC -o "$folder/libcuda.so.1" "$folder/driver.c"
  LD_LIBRARY_PATH=$folder "$binary" "$@" >"$folder/out" 2>"$folder/err" </dev/null || code=$?
  if ((code != 6)) || ! grep -qF "$text" "$folder/err" || [[ -s $folder/out ]]; then
    echo "hadal $*: exit status $code (6 expected), and standard error lacks \"$text\", or standard output is not empty:"
    cat "$folder/err" "$folder/out"
    exit 1
  fi
  echo "hadal $*: $(cat "$folder/err")"
}

for command in "run -p Once -n 1 --device cuda" "serve --port 0 --device cuda" "selftest --device cuda" \
  "bench prefill --config v41-flash" "tune"; do
  # shellcheck disable=SC2086
  expect 11040 0 "the NVIDIA driver supports CUDA 11.4, this program needs" $command
  # shellcheck disable=SC2086
  expect 13000 100 "the NVIDIA driver is installed, but no GPU is visible" $command
done
