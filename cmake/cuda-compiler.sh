#!/usr/bin/env bash
# Runs the CUDA compiler and fails where ptxas only informs that it has put matrix instructions one behind the other (C7510
# to C7512): the result is right, and takes several times as long.
messages=$(mktemp)
trap 'rm -f "$messages"' EXIT
status=0
"$@" 2>"$messages" || status=$?
cat "$messages" >&2
if ((status == 0)) && grep -q 'Potential Performance Loss' "$messages"; then
  echo "error: ptxas serialises matrix instructions (above); see cmake/cuda-compiler.sh" >&2
  status=1
fi
exit "$status"
