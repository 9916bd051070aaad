#!/usr/bin/env bash
# The kernels for cards that are not Hopper lie in the binary as PTX that a driver compiles when it is first used. This
# compiles it here, so that an instruction that only newer cards have shows before somebody's card refuses it.
#
# usage: scripts/check-portable-ptx.sh FOLDER      (of the operators' objects; needs cuobjdump and ptxas, is skipped without)
set -euo pipefail
objects=$(readlink -f "${1:?folder of the objects of hadal_ops}")
export PATH=$PATH:/usr/local/cuda/bin
for tool in cuobjdump ptxas; do
  command -v $tool >/dev/null || { echo "no $tool: skipped"; exit 77; }
done
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
cd "$folder"
count=0
while read -r object; do
  cuobjdump -xptx all "$object" >/dev/null 2>&1 || continue
  for file in *.ptx; do
    [[ -e $file ]] || continue
    ptxas -O0 -arch=sm_80 "$file" -o /dev/null || { echo "in $object" >&2; exit 1; }
    rm "$file"
    count=$((count + 1))
  done
done < <(find "$objects" -name '*.cu.o')
((count >= 20)) || { echo "only $count files below $objects have PTX" >&2; exit 1; }
echo "$count files of PTX compile for compute capability 8.0"
