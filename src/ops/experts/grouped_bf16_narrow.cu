// One kernel a file: ptxas needs a minute for each.
#include "ops/experts/grouped_bf16.cuh"

namespace hadal::cuda {

void grouped_bf16_narrow(const GroupedArgs& args, int multiprocessors, cudaStream_t stream) {
  launch_grouped<Bf16Products<NarrowTiles>>(args, multiprocessors, stream);
}

}  // namespace hadal::cuda
