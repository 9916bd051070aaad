#!/usr/bin/env bash
# Builds Hadal and runs every test that needs no GPU, no Python packages and no browser. On a fresh Debian 12 machine it
# installs the packages that are missing first. The last lines are ctest's summary; the exit status says whether all passed.
#
# usage: scripts/test.sh [options]
#   --require-cuda      the CUDA code must compile too (without it, it is compiled when nvcc is found)
#   --cpu-only          leave CUDA out even when nvcc is found
#   --sanitize NAME     address (with undefined behaviour) or thread: builds build/asan or build/tsan instead of build/release
#   --quick             leave out the tests labelled "slow"
#   --werror            warnings are errors
#   --build-only        stop before the tests
#   --no-packages       install nothing
#   --jobs N            compile N files and run N tests at once (default: one per core, fewer when memory is short)
#   --help
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

packages=1 cuda=AUTO preset=release jobs= werror=OFF run=1 ctest_options=()
while (($#)); do
  case $1 in
    --require-cuda) cuda=ON ;;
    --cpu-only) cuda=OFF ;;
    --sanitize)
      case ${2:-} in
        address) preset=asan ;;
        thread) preset=tsan ;;
        *) die "--sanitize takes address or thread" ;;
      esac
      shift ;;
    --quick) ctest_options+=(-LE slow) ;;
    --werror) werror=ON ;;
    --build-only) run=0 ;;
    --no-packages) packages=0 ;;
    --jobs) jobs=${2:?--jobs needs a number}; shift ;;
    -h | --help) usage ;;
    *) echo "unknown option $1" >&2; usage 2 >&2 ;;
  esac
  shift
done
jobs=${jobs:-$(default_jobs)}
[[ $preset == release ]] || cuda=OFF  # sanitizers watch the host code

step "Packages"
if ((packages)); then install_packages "${PACKAGES[@]}"; else say "Skipped (--no-packages)."; fi
[[ $cuda == ON ]] && need_nvcc

# The thread sanitizer of g++ 12 does not start where addresses are randomised widely.
if [[ $preset == tsan && -z ${HADAL_FIXED_ADDRESSES:-} ]] && setarch "$(uname -m)" -R true 2>/dev/null; then
  export HADAL_FIXED_ADDRESSES=1
  wrap=(setarch "$(uname -m)" -R)
else
  wrap=()
fi

step "Build into build/$preset"
build "$preset" "$jobs" -DHADAL_CUDA=$cuda -DHADAL_TESTS=ON -DCMAKE_COMPILE_WARNING_AS_ERROR=$werror
((run)) || exit 0

step "Tests"
exec "${wrap[@]}" ctest --test-dir "build/$preset" --output-on-failure --no-label-summary -j "$jobs" "${ctest_options[@]}"
