#!/usr/bin/env bash
# Checks the format of every source file (clang-format) and looks for likely mistakes (clang-tidy).
#
# usage: scripts/lint.sh [options]
#   --all           clang-tidy over every file (default: files that differ from the main branch, or from the last commit on it)
#   --format-only   no clang-tidy
#   --fix           rewrite files into the right format
#   --no-packages   install nothing
#   --jobs N        run N clang-tidy at once
#   --help
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

all=0 tidy=1 fix=0 packages=1 jobs=
while (($#)); do
  case $1 in
    --all) all=1 ;;
    --format-only) tidy=0 ;;
    --fix) fix=1 ;;
    --no-packages) packages=0 ;;
    --jobs) jobs=${2:?--jobs needs a number}; shift ;;
    -h | --help) usage ;;
    *) echo "unknown option $1" >&2; usage 2 >&2 ;;
  esac
  shift
done
jobs=${jobs:-$(default_jobs)}
((packages)) && { step "Packages"; install_packages "${PACKAGES[@]}" "${LINT_PACKAGES[@]}"; }

first_of() { local name; for name in "$@"; do command -v "$name" && return; done; die "none of these is installed: $*"; }
mapfile -t sources < <(git ls-files -- 'src/*' 'apps/*' 'include/*' 'tests/*' 'bench/*' | grep -E '\.(cc|h|cu|cuh)$')
status=0
mkdir -p build

step "Format of ${#sources[@]} files"
format=$(first_of clang-format-14 clang-format)
if ((fix)); then
  "$format" -i "${sources[@]}"
else
  # One line per change: FILE:LINE:COLUMN: warning: ...
  "$format" --dry-run "${sources[@]}" 2>&1 | grep -E '^[^ ]+:[0-9]+:[0-9]+: warning:' | cut -d: -f1 | sort | uniq -c | sort -rn >build/format.txt || true
  if [[ -s build/format.txt ]]; then
    say "$(wc -l <build/format.txt) files are not formatted (number of changes, file); scripts/lint.sh --fix --format-only mends them:"
    cat build/format.txt
    status=1
  else
    say "All files are formatted."
  fi
fi

step "Length of files"
wc -l "${sources[@]}" | awk '$2 != "total" && $1 > 600 { printf "    %5d  %s\n", $1, $2; n++ } END { if (!n) print "    None is longer than 600 lines." }'

if ((tidy)); then
  if ((all)); then files=("${sources[@]}"); else
    base=$(git merge-base HEAD main 2>/dev/null || git rev-parse HEAD)
    [[ $base == "$(git rev-parse HEAD)" ]] && base=$(git rev-parse HEAD~1 2>/dev/null || echo "$base")
    mapfile -t files < <({ git diff --name-only --diff-filter=d "$base" -- "${sources[@]}"; } | sort -u)
  fi
  cuda=$(find_nvcc); cuda=${cuda%/bin/nvcc}
  [[ -n $cuda ]] || say "CUDA sources are left out: there is no CUDA toolkit."
  mapfile -t files < <(printf '%s\n' "${files[@]}" | grep -E "\\.(cc${cuda:+|cu})\$" || true)
  step "clang-tidy over ${#files[@]} files"
  if ((${#files[@]})); then
    tidy_bin=$(first_of clang-tidy-19 clang-tidy-16 clang-tidy)
    cmake --preset debug >/dev/null
    report=build/lint.txt
    # Of CUDA sources the host's side, as clang understands them; scripts/clang-cuda has what it lacks for CUDA 13.
    tidy_one() {
      local flags=(-p build/debug)
      [[ $1 == *.cu ]] && flags=(-- -xcuda --cuda-host-only --cuda-path="$cuda" --cuda-gpu-arch=sm_90a -Wno-unknown-cuda-version
        -isystem scripts/clang-cuda -isystem "$cuda/include/cccl" -std=c++20 -Isrc -Iinclude -Ibench/kernels -DHADAL_HAVE_CUDA=1 -DFMT_HEADER_ONLY)
      [[ $1 == */cpu/kernels_*.cc ]] && flags+=(--extra-arg=-march=sapphirerapids)  # clang ignores "#pragma GCC target"
      "$tidy_bin" --quiet "$1" "${flags[@]}" 2>/dev/null || echo "$ROOT/$1:1:1: error: clang-tidy ended with status $?"
      say "$1" >&2
    }
    export -f tidy_one say
    export tidy_bin cuda ROOT
    printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$jobs" bash -c 'tidy_one "$1"' _ >$report
    sort -u $report | grep -E '^/.*(warning|error):' | sed "s|^$ROOT/||" >build/lint-findings.txt || true
    count=$(wc -l <build/lint-findings.txt)
    if ((count)); then
      cut -c 1-200 build/lint-findings.txt
      say "$count findings; with context in $report. By file:"
      cut -d: -f1 build/lint-findings.txt | sort | uniq -c | sort -rn
      status=1
    else
      say "No findings."
    fi
  fi
fi
exit $status
