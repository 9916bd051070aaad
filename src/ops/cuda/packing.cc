#include "ops/cuda/packing.h"

#include "base/error.h"

namespace hadal::cuda {

bool can_pack(const Weight& w) { return w.format == WeightFormat::fp8_block32 && w.n % 256 == 0 && w.k % 64 == 0; }
bool can_pack_fp8(const Weight& w) { return w.format == WeightFormat::fp8_block32 && w.n % 128 == 0 && w.k % 128 == 0; }

Packing packing_of(Numerics numerics, bool portable, const Weight& w) {
  if (portable) return Packing::none;
  if (numerics == Numerics::fp8 && can_pack_fp8(w)) return Packing::bits8;
  return can_pack(w) ? Packing::bits16 : Packing::none;
}

void check_groups(Packing packing, std::string_view name, const Weight& w, int groups) {
  if (packing == Packing::none || fits_packed_tiles(w, groups)) return;
  fail(ErrorKind::unsupported,
       "{}: o_lora_rank, the outputs of each of its {} groups (o_groups), is {}; the cuda backend packs a weight of {} "
       "x {} in tiles of {} outputs of one group, so that it has to be a multiple of {}; --device cuda:portable and "
       "--device cpu read weights as they are published and take any",
       name, groups, w.n / groups, w.n, w.k, kPackedOutputs, kPackedOutputs);
}

}  // namespace hadal::cuda
