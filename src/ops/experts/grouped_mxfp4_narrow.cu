// One kernel a file: ptxas needs a minute for each.
#include "ops/experts/grouped_kernel.cuh"

namespace hadal::cuda {

void grouped_mxfp4_narrow(const GroupedArgs& args, int multiprocessors, cudaStream_t stream) {
  launch_grouped<Mxfp4Codec, NarrowTiles>(args, multiprocessors, stream);
}

}  // namespace hadal::cuda
