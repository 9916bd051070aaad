#!/usr/bin/env bash
# Dependencies between the folders of src/ point one way only (docs/design.md): a file may include headers of its own
# folder and of folders below it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
declare -A may=(
  [base]="base"
  [checkpoint]="base checkpoint"
  [text]="base text"
  [grammar]="base text grammar"
  [ops]="base ops"
  [parallel]="base ops parallel"
  [state]="base ops state"
  [models]="base checkpoint ops state parallel models"
  [engine]="base checkpoint text ops state models parallel engine"
  [serve]="base checkpoint text grammar ops state models parallel engine serve"
)
folders=$(IFS='|'; echo "${!may[*]}")
bad=0
while IFS=: read -r file line include; do
  from=${file#src/}; from=${from%%/*}
  to=${include#*\"}; to=${to%%/*}
  # Tests may use whatever they need.
  case $file in */test.cc | *_test.cc | */testing/*) continue ;; esac
  if [[ -z ${may[$from]:-} ]]; then echo "src/$from is not in the list of folders (scripts/check-layers.sh)"; bad=1; continue; fi
  if [[ " ${may[$from]} " != *" $to "* ]]; then echo "$file:$line: src/$from must not include src/$to"; bad=1; fi
done < <(grep -rnE "^#include \"($folders)/" src --include='*.h' --include='*.cc' --include='*.cu' --include='*.cuh' | sort)
((bad)) || echo "No include points upwards."
exit $bad
