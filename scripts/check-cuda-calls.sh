#!/usr/bin/env bash
# CUDA in the sources: no call whose result nobody looks at, no launch that is not checked, and nothing that waits for the
# device or changes its memory but where that is known. So no operator waits inside a step.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
failed=0
complain() {
  [[ -z $2 ]] && return
  printf '%s:\n%s\n' "$1" "$2"
  failed=1
}
mapfile -t files < <(find src apps -name '*.cu' -o -name '*.cuh' -o -name '*.cc' -o -name '*.h' | sort)
code() { grep -nHE "$1" "${files[@]}" | grep -vE '^[^:]+:[0-9]+: *//' || true; }

complain "results that nobody looks at" "$(code '\bcuda[A-Z][A-Za-z0-9]*\(' |
  grep -vE 'HADAL_CUDA\(|check_cuda\(|\(void\)cuda|[!=]= *cudaSuccess|cudaError_t status = |cudaGetError(Name|String)\(' || true)"

# After `<<<`, before the function ends.
complain "launches without HADAL_CUDA_LAUNCHED behind them" "$(awk '
  FNR == 1 || /^}/ { if (open != "") print open; open = "" }
  /<<</ { if (open == "") open = FILENAME ":" FNR ": " $0 }
  /HADAL_CUDA_LAUNCHED/ { open = "" }
  END { if (open != "") print open }' $(printf '%s\n' "${files[@]}" | grep '^src/.*\.cuh*$'))"

# The context waits where its contract says so: wait, download, a full ring of staging memory, the end. Packing of weights
# waits when they are loaded. The rest are self-checks.
complain "calls that wait for the device, or change its memory" "$(code \
  '\bcuda(Stream|Device|Event)Synchronize\(|\bcudaMemcpy\(|\bcuda(Malloc|Free|HostAlloc|MallocHost|FreeHost)\(|\b(context|cuda|context_)\.(wait|download)\(' |
  grep '^src/ops/' | grep -vE '^src/ops/(cuda/(context|selfcheck|errors)\.(cc|cu|h)|cpu/|testing/|.*test\.cc|.*cases\.cc)' |
  grep -vE '^src/ops/cuda/(fp8_linear|packed_linear)\.cu:[0-9]+:  context\.wait\(\);  // weights are constants' || true)"
exit "$failed"
