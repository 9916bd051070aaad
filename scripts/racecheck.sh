#!/usr/bin/env bash
# What compute-sanitizer's racecheck reports in the self-tests on a GPU, compared with scripts/racecheck-known.txt: a report
# that is not there fails, whatever it turns out to be. Each known class is also looked for in a minimal kernel
# (tests/racecheck/patterns.cu): when the tool stops reporting that, it follows the pattern now, and the class has to go.
#
# usage: scripts/racecheck.sh BINARIES OUT [operator...]    BINARIES: folder of hadal and hadal_racecheck_patterns
#        scripts/racecheck.sh --compare LOG...              logs that there are already
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
known=scripts/racecheck-known.txt
failed=0

# A side of a report, "FUNCTION+0xOFFSET in FILE:LINE [...]", as "FUNCTION: text of the line": line numbers change too often.
side() {
  local at=$1 name file line path cut='[<(]'
  at=${at% \[*hazards\]}
  name=${at%+0x*}
  name=${name//<unnamed>::/}
  name=${name#void }
  name=${name%%$cut*}
  file=${at##* in }
  line=${file##*:} file=${file%:*}
  path=$(find src tests -name "$file" | head -n 1)
  printf '%s: %s' "${name#hadal::cuda::}" "$(sed -n "${line}s/^ *//p" "${path:-/dev/null}" | tr -s ' ')"
}

# Reports of logs, one a line: "FIRST | SECOND".
reports() {
  local line first=""
  cat "$@" | while IFS= read -r line; do
    case $line in
      *"Race reported between "*) first=$(side "${line#*between * access at }") ;;
      *" and "*" access at "*) printf '%s | %s\n' "$first" "$(side "${line#* access at }")" ;;
    esac
  done | sort -u
}

compare() {
  local new
  new=$(comm -23 <(reports "$@") <(grep -v '^#' "$known" | sort -u))
  [[ -z $new ]] && return
  printf 'not known (%s):\n%s\n' "$known" "$new"
  failed=1
}

if [[ ${1-} == --compare ]]; then
  shift
  compare "$@"
  exit "$failed"
fi

bin=${1:?folder of the programs} out=${2:?folder for the logs}
shift 2
operators=("$@")
((${#operators[@]})) || mapfile -t operators < <("$bin/hadal" selftest --device cuda --list | sed -n 's/^\([a-z_]*\):.*/\1/p' | sort -u)
mkdir -p "$out"

check() {
  local log=$out/racecheck-$1.log
  shift
  compute-sanitizer --tool racecheck --print-limit 1000 "$@" >"$log" 2>&1 || failed=1
  grep 'RACECHECK SUMMARY' "$log" || { failed=1; tail -n 5 "$log"; }
}
# Of a pair of patterns the first is reported and the second is not.
for pattern in exchange-arrive:1 exchange-sync:0 ring-warp:1 ring-lanes:0; do
  name=${pattern%:*}
  echo "== pattern $name"
  check "$name" "$bin/hadal_racecheck_patterns" "$name"
  reported=$(grep -c 'Race reported' "$out/racecheck-$name.log")
  if ((reported > 0)) && [[ $pattern == *:0 ]]; then
    echo "$name is reported: the tool has changed, and what is known of it with it"
    failed=1
  elif ((reported == 0)) && [[ $pattern == *:1 ]]; then
    echo "$name is not reported any more: take its class out of $known"
    failed=1
  fi
done
for operator in "${operators[@]}"; do
  echo "== $operator"
  check "$operator" "$bin/hadal" selftest --device cuda --op "$operator" --seed 5
  compare "$out/racecheck-$operator.log"
done
exit "$failed"
