#!/usr/bin/env bash
# Checks and first timings of the whole program on a machine with a GPU. Needs no toolkit: programs that were built
# elsewhere with -DHADAL_CUDA=ON do. Every part has its own time limit and log; a part that fails does not stop the next.
#
# usage: scripts/gpu-check.sh BINARIES OUT [part...]
#   BINARIES  folder of hadal, hadal_integration_test and (optional) hadal_ops_test, hadal_parallel_test
#   OUT       folder for the logs
#   part      selftest portable tests run perplexity verify memcheck speed, in this order when none is given; synccheck races
#             kernels bench. kernels needs 60 GiB of GPU memory, bench 125; bench/record.py makes results of their logs
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin=${1:?folder of the programs} out=${2:?folder for the logs}
shift 2
parts=("$@")
((${#parts[@]})) || parts=(selftest portable tests run perplexity verify memcheck speed)
mkdir -p "$out"
failed=0

# limit SECONDS NAME COMMAND...: runs it, says how it ended, shows the end of its log.
limit() {
  local seconds=$1 name=$2 status=0 start=$SECONDS
  shift 2
  timeout "$seconds" "$@" >"$out/$name.log" 2>&1 || status=$?
  printf '== %s: exit status %d, %d s\n' "$name" "$status" "$((SECONDS - start))"
  tail -n 25 "$out/$name.log" | cut -c1-220
  ((status == 0)) || failed=1
}

greedy() { "$bin/hadal" run models/hadal-tiny --device "$1" -p "Once upon a time, there was" -n 80 --temperature 0; }
export -f greedy
export bin

# The same text from both devices: a difference is for a person to judge, by the margins of BackendsGreedy.
same_text() {
  diff <(greedy cpu 2>/dev/null) <(greedy cuda 2>/dev/null) && echo "the same text"
  greedy cuda
}
export -f same_text

speed() {
  local model
  model=$(mktemp -d)
  "$bin/hadal" synth configs/v41-mini.json "$model" --seed 1
  python3 -c "print(','.join(str((i * 7919 + 13) % 4000) for i in range(2048)))" >"$model/ids.txt"
  local prefill
  for prefill in full exact; do
    echo "prefill $prefill, chunk 2048"
    "$bin/hadal" run "$model" --device cuda --ids-file "$model/ids.txt" -n 128 --ignore-eos --temperature 0 \
      --prefill "$prefill" --chunk 2048 --json
    "$bin/hadal" run "$model" --device cuda --ids-file "$model/ids.txt" -n 128 --ignore-eos --temperature 0 \
      --prefill "$prefill" --chunk 2048 --json
  done
  rm -r "$model"
}
export -f speed

nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv 2>/dev/null || true
for part in "${parts[@]}"; do
  case $part in
    selftest) limit 60 selftest "$bin/hadal" selftest --device cuda --seed 20261129 --json ;;
    portable)  # the kernels for other cards, from their PTX
      limit 120 portable env CUDA_FORCE_PTX_JIT=1 "$bin/hadal" selftest --device cuda:portable --seed 20261129 --json
      ;;
    tests)
      [[ ! -x $bin/hadal_ops_test ]] || limit 60 ops_test "$bin/hadal_ops_test" '--gtest_filter=*uda*' --gtest_brief=1
      [[ ! -x $bin/hadal_parallel_test ]] || limit 60 parallel_test "$bin/hadal_parallel_test" --gtest_brief=1
      limit 90 tests "$bin/hadal_integration_test" '--gtest_filter=*uda*:*cuda*' --gtest_brief=1
      ;;
    run) limit 30 run bash -c same_text ;;
    perplexity)
      for numerics in bf16 fp8; do
        limit 60 "perplexity-$numerics" "$bin/hadal" perplexity models/hadal-tiny models/hadal-tiny/eval/heldout.txt \
          --device cuda --numerics "$numerics" --json
      done
      ;;
    verify)
      for numerics in bf16 fp8 official; do
        limit 30 "verify-$numerics" "$bin/hadal" verify models/hadal-tiny --device cuda --numerics "$numerics"
      done
      ;;
    memcheck)
      limit 60 memcheck compute-sanitizer --tool memcheck --error-exitcode 9 "$bin/hadal" run tests/goldens/v41-a \
        --device cuda --ids 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17 --chunk 5 -n 4 --ignore-eos --temperature 0
      ;;
    speed) limit 120 speed bash -c speed ;;
    synccheck)
      limit 300 synccheck compute-sanitizer --tool synccheck --error-exitcode 9 "$bin/hadal" selftest --device cuda \
        --seed 5
      ;;
    races) limit 600 races scripts/racecheck.sh "$bin" "$out" ;;
    kernels)
      for numerics in bf16 fp8; do
        limit 120 "kernels-$numerics" "$bin/hadal" bench kernel --device cuda --numerics "$numerics" --check --json
      done
      ;;
    bench)
      for numerics in bf16 fp8; do
        limit 120 "prefill-$numerics" "$bin/hadal" bench prefill --config v41-flash --emulate-rank ep4 --context 131072 \
          --cached 126976 --tokens 4096 --steps 10 --prefill full,exact,bounded --numerics "$numerics" --json
        limit 120 "decode-$numerics" "$bin/hadal" bench decode --config v41-flash --emulate-rank ep4 \
          --engram-rows 16000000 --context 8192,32768,131072 --batch 1,32,128 --steps 10 --numerics "$numerics" --json
      done
      ;;
    *) echo "unknown part $part" >&2; exit 2 ;;
  esac
done
exit "$failed"
