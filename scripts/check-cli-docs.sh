#!/usr/bin/env bash
# docs/command-line.md holds what the help texts say, between "<!-- help NAME -->" and "<!-- end -->"; the words around
# these blocks are written by hand. Checks that the blocks are current, or writes them.
# usage: scripts/check-cli-docs.sh BINARY [--update]
set -euo pipefail
binary=$(realpath "${1:?usage: scripts/check-cli-docs.sh BINARY [--update]}")
mode=${2:-}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
page=docs/command-line.md

# Names of all subcommands, nested ones as "bench kernel".
subcommands() {  # [NAME]
  local name
  "$binary" $1 --help | awk '/^Subcommands:/ { on = 1; next } /^[^ ]/ { on = 0 } on && /^  [a-z]/ { print $1 }' | while read -r name; do
    name="${1:+$1 }$name"
    echo "$name"
    subcommands "$name"
  done
}

# The block of one help text. CLI11 prints "  name      description", and a long name on a line of its own.
block() {
  "$binary" $1 --help | awk -v name="$1" '
    function flush() {
      if (item == "") return
      # A name that just fits into its column has one blank behind it.
      if (text == "" && length(item) > 28 && substr(item, 28, 1) == " ") { text = substr(item, 29); item = substr(item, 1, 27) }
      gsub(/\|/, "\\|", item); gsub(/\|/, "\\|", text)
      sub(/UINT:UINT/, "UINT", item); sub(/INT:INT/, "INT", item); sub(/FLOAT:FLOAT/, "FLOAT", item)
      if (item ~ /--threads/) sub(/=[0-9]+$/, "", item)  # depends on the machine
      if (item !~ /^(-h,)?--help/) { if (!rows++) print "\n| | |\n| --- | --- |"; print "| `" item "` | " text " |" }
      item = ""; text = ""
    }
    BEGIN { print "<!-- help " name " -->" }
    /^Subcommands:/ { flush(); skip = 1; next }
    skip && /^ / { next }
    skip && /^$/ { next }
    /^[^ ].*:$/ { flush(); skip = 0; next }
    /^Usage: / { sub(/^Usage: /, ""); sub(/^[^ ]*\/hadal/, "hadal"); print "\n    " $0; next }
    /^  [^ ]/ {
      flush()
      line = substr($0, 3)
      if (match(line, /  +/)) { item = substr(line, 1, RSTART - 1); text = substr(line, RSTART + RLENGTH) } else item = line
      next
    }
    /^   +[^ ]/ { sub(/^ +/, ""); text = text (text == "" ? "" : " ") $0; next }
    NF && !seen++ { print }
    END { flush(); print "<!-- end -->" }'
}

new=$(mktemp); trap 'rm -f "$new"' EXIT
names=$(subcommands '')
awk '/^<!-- help / { print "@" $0; skip = 1; next } /^<!-- end -->/ { skip = 0; next } !skip' "$page" |
  while IFS= read -r line; do
    if [[ $line == "@<!-- help"* ]]; then
      name=${line#@<!-- help }; name=${name%-->}; name=${name% }
      if [[ -z $name ]] || grep -qx -- "$name" <<<"$names"; then block "$name"; else echo "(\`hadal $name\` is gone)"; fi
    else
      printf '%s\n' "$line"
    fi
  done >"$new"
while read -r name; do
  grep -q "^<!-- help $name -->" "$new" || { printf '\n## hadal %s\n' "$name"; block "$name"; } >>"$new"
done <<<"$names"

if [[ $mode == --update ]]; then
  cp "$new" "$page"
elif ! diff -u "$page" "$new"; then
  echo
  echo "$page is out of date: scripts/check-cli-docs.sh $binary --update"
  exit 1
else
  echo "$page says what the help texts say."
fi
