#!/usr/bin/env bash
# A build without CUDA needs no header of CUDA: no *.cc reaches one outside of #ifdef HADAL_HAVE_CUDA. Where CUDA's
# headers are installed, the compiler would not notice.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mapfile -t files < <(find src include apps tests -name '*.cc' -o -name '*.h')
awk '
  # The first file through which `file` reaches a header of CUDA, as a chain of names; "" when it reaches none.
  function reaches(file,    names, n, i, target, chain) {
    if (file in known) return known[file]
    known[file] = ""
    n = split(includes[file], names, "\n")
    for (i = 1; i <= n; ++i) {
      if (names[i] ~ /^<(cuda|cublas|nvml|nccl)/) return known[file] = names[i]
      target = where(names[i], file)
      if (target != "" && (chain = reaches(target)) != "") return known[file] = target " -> " chain
    }
    return ""
  }
  function where(name, file,    folder) {
    if (name ~ /^</) return ""
    name = substr(name, 2, length(name) - 2)
    folder = file; sub(/[^\/]*$/, "", folder)
    if ((folder name) in seen) return folder name
    if (("src/" name) in seen) return "src/" name
    if (("include/" name) in seen) return "include/" name
    return ""
  }
  FNR == 1 { seen[FILENAME] = 1; depth = 0; without = 0 }
  /^ *# *if/ { ++depth; if (!without && /HADAL_HAVE_CUDA|__CUDACC__/ && !/ifndef|!/) without = depth }
  /^ *# *else/ && without == depth { without = 0 }
  /^ *# *endif/ { if (without == depth) without = 0; --depth }
  /^ *# *include/ && !without { includes[FILENAME] = includes[FILENAME] $2 "\n" }
  END {
    for (file in seen)
      if (file ~ /\.cc$/) { ++count; if ((chain = reaches(file)) != "") { print file " -> " chain; bad = 1 } }
    if (!bad) print count " files need nothing of CUDA without it."
    exit bad
  }' "${files[@]}"
