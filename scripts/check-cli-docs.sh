#!/usr/bin/env bash
# docs/command-line.md and the help texts of the binary must name the same subcommands and the same flags.
# In the page, a subcommand has a heading "## hadal NAME", and a flag is the first cell of a table row: | `--flag` ... |.
# usage: scripts/check-cli-docs.sh BINARY
set -euo pipefail
binary=$(realpath "${1:?usage: scripts/check-cli-docs.sh BINARY}")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
page=docs/command-line.md

subcommands_of() { "$binary" --help | awk '/^Subcommands:/ { on = 1; next } /^[^ ]/ { on = 0 } on && /^  [a-z]/ { print $1 }' | sort; }
# Only the name column counts: "  -o,--out TEXT   description".
flags_of() { "$binary" $1 --help | awk '/^  +-/ { print $1 }' | grep -oE -- '--[a-z][a-z0-9-]*' | grep -vxE -- '--help|--help-all' | sort -u || true; }
documented_subcommands() { sed -n 's/^## hadal \([a-z-]*\)$/\1/p' "$page" | sort; }
# The flags of one section; the introduction (before the first "## hadal") has the name "".
documented_flags() {
  awk -v want="$1" '/^## / { now = ($0 ~ /^## hadal /) ? substr($0, 10) : "-" } BEGIN { now = "" } now == want && /^\| *`-/ { split($0, cell, "|"); print cell[2] }' "$page" |
    grep -oE -- '--[a-z][a-z0-9-]*' | grep -vxE -- '--help|--help-all' | sort -u || true
}

bad=0
compare() {  # WHAT HELP PAGE
  local only
  only=$(comm -23 <(echo "$2") <(echo "$3") | xargs); [[ -z $only ]] || { echo "$1: in the help text, not in $page: $only"; bad=1; }
  only=$(comm -13 <(echo "$2") <(echo "$3") | xargs); [[ -z $only ]] || { echo "$1: in $page, not in the help text: $only"; bad=1; }
}
compare "subcommands" "$(subcommands_of)" "$(documented_subcommands)"
compare "hadal" "$(flags_of '')" "$(documented_flags '')"
for name in $(subcommands_of); do
  compare "hadal $name" "$(flags_of "$name")" "$(documented_flags "$name")"
done
((bad)) || echo "$page names every subcommand and flag."
exit $bad
