// One kernel a file: ptxas needs a minute for each.
#include "ops/experts/grouped_kernel.cuh"

namespace hadal::cuda {

void grouped_fp8_wide(const GroupedArgs& args, int multiprocessors, cudaStream_t stream) {
  launch_grouped<Fp8Codec, WideTiles>(args, multiprocessors, stream);
}

}  // namespace hadal::cuda
