#!/usr/bin/env bash
# The binary must load nothing but glibc, so that it can be copied to another machine and run there.
# usage: scripts/check-linkage.sh BINARY
set -euo pipefail
binary=${1:?usage: scripts/check-linkage.sh BINARY}
extra=$(ldd "$binary" | awk '{ print $1 }' | grep -vE '^(linux-vdso\.so\.1|libc\.so\.6|libm\.so\.6|libdl\.so\.2|libpthread\.so\.0|librt\.so\.1|.*/ld-linux-[a-z0-9-]+\.so\.[0-9])$' || true)
if [[ -n $extra ]]; then
  echo "$binary loads libraries that are not part of glibc:"
  echo "$extra"
  exit 1
fi
echo "$binary loads only glibc:"
ldd "$binary"
