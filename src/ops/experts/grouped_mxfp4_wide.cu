// One kernel a file: ptxas needs a minute for each.
#include "ops/experts/grouped_kernel.cuh"

namespace hadal::cuda {

void grouped_mxfp4_wide(const GroupedArgs& args, int multiprocessors, cudaStream_t stream) {
  launch_grouped<Mxfp4Codec, WideTiles>(args, multiprocessors, stream);
}

}  // namespace hadal::cuda
