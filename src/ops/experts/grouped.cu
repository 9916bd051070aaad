// Chooses among the compiled kernels of grouped_kernel.cuh.
#include "ops/experts/grouped.h"

namespace hadal::cuda {

void grouped_bf16_wide(const GroupedArgs&, int multiprocessors, cudaStream_t);
void grouped_bf16_narrow(const GroupedArgs&, int multiprocessors, cudaStream_t);
void grouped_fp8_wide(const GroupedArgs&, int multiprocessors, cudaStream_t);
void grouped_fp8_narrow(const GroupedArgs&, int multiprocessors, cudaStream_t);

void grouped_feed_forward(const GroupedArgs& args, int multiprocessors, cudaStream_t stream) {
  const bool narrow = args.plan.max_tile_rows == kMaxNarrowTileRows;
  if (args.fp8)
    (narrow ? grouped_fp8_narrow : grouped_fp8_wide)(args, multiprocessors, stream);
  else
    (narrow ? grouped_bf16_narrow : grouped_bf16_wide)(args, multiprocessors, stream);
}

}  // namespace hadal::cuda
