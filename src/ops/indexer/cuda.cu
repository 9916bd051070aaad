#include <algorithm>
#include <cmath>

#include "ops/cuda/bf16_linear.h"
#include "ops/cuda/errors.h"
#include "ops/cuda/hopper.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/linear.h"
#include "ops/cuda/row.cuh"
#include "ops/indexer/kernels.cuh"

namespace hadal::cuda {
namespace {

constexpr size_t kScoreBytes = size_t{256} << 20;  // rows are scored in chunks of this much

constexpr int kWarps = 4;

// Queries in place, one warp a (row, head): rotation, then Q2.
__global__ void __launch_bounds__(32 * kWarps)
    query_kernel(uint16_t* q, int64_t count, int heads, int dim, const int32_t* position, Rope rope, float* trace) {
  extern __shared__ float shared[];
  const int lane = threadIdx.x % 32;
  const int64_t i = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (i >= count) return;
  float* v = shared + threadIdx.x / 32 * dim;
  for (int c = lane; c < dim; c += 32) v[c] = from_bf16(q[i * dim + c]);
  __syncwarp();
  warp_rotate(v, dim, rope, position[i / heads]);
  warp_pack<RowFormat::fp4_ue8m0_32>(v, dim, nullptr);
  for (int c = lane; c < dim; c += 32) {
    q[i * dim + c] = to_bf16(v[c]);
    if (trace != nullptr) trace[i * dim + c] = v[c];
  }
}

// w = bf16( bf16(weights_proj x) * factor ), zero for the heads that fill up a group of 32.
__global__ void head_weight_kernel(const uint16_t* projected, int64_t count, int heads, int padded, double factor,
                                   float* w) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const int64_t row = i / padded, head = i % padded;
  w[i] = head < heads ? round_bf16(static_cast<float>(from_bf16(projected[row * heads + head]) * factor)) : 0.0f;
}

__global__ void __launch_bounds__(128) gather_kernel(const uint4* x, const int32_t* source, int units, uint4* out) {
  wait_for_previous();
  let_next_start();
  const uint4* from = x + int64_t{source[blockIdx.x]} * units;
  for (int i = threadIdx.x; i < units; i += blockDim.x) out[int64_t{blockIdx.x} * units + i] = from[i];
}

// weights_proj x: so few outputs that tiles of linear() leave most of the card without work.
void project_heads(CudaContext& cuda, const IndexerArgs& args, const Tensor& projected) {
  const Weight& w = args.weights_proj;
  if (!bf16_linear_takes(cuda, w) || w.n % 128 == 0 || args.x.cols != w.k) {
    LinearArgs project = linear_args(args.x, w, projected);
    project.x_row = args.x_source;
    return linear(cuda, project);
  }
  Scratch scratch(cuda);
  const int rows = args.rows->rows;
  const uint16_t* x = args.x.bf16();
  if (args.x_source != nullptr) {
    auto* gathered = scratch.get<uint16_t>(int64_t{rows} * w.k);
    launch("rows of the indexer", gather_kernel,
           {.grid = dim3(rows), .block = dim3(128), .stream = cuda.stream(), .early = true},
           reinterpret_cast<const uint4*>(x), args.x_source, w.k / 8, reinterpret_cast<uint4*>(gathered));
    x = gathered;
  }
  bf16_linear(cuda, {x, {static_cast<const uint16_t*>(w.data), nullptr}, rows, w.n, w.k, nullptr, projected.bf16()});
}

__global__ void trace_kernel(const IndexLists lists, int first_row, const float* scores, int64_t stride, float* trace,
                             int64_t cols) {
  const int row = first_row + blockIdx.x;
  float* out = trace + row * cols;
  for (int64_t i = threadIdx.x; i < cols; i += blockDim.x) out[i] = -INFINITY;
  __syncthreads();
  const int blocks = lists.blocks(row), length = lists.length(row);
  for (int e = threadIdx.x; e < length; e += blockDim.x) {
    const int group = lists.group(row, blocks, e);
    if (group < lists.visible(row) && group < cols) out[group] = scores[blockIdx.x * stride + e];
  }
}

}  // namespace

bool takes_int8_scores(const IndexerArgs& args) {
  // Neighbouring entries, eight at a time, are neighbouring rows of a page.
  return args.heads == kInt8Heads && args.index_dim == kInt8Dim && args.keys.page_rows % 8 == 0 &&
         (args.use != CandidateUse::filter || args.candidate_block_size == 8);
}

void indexer(Context& context, const IndexerArgs& args) {
  CudaContext& cuda = CudaContext::of(context);
  const int rows = args.rows->rows;
  if (rows == 0) return;
  HADAL_CUDA_CHECK(args.keys.row_bytes == static_cast<int>(row_bytes(RowFormat::fp4_ue8m0_32, args.index_dim)));
  HADAL_CUDA_CHECK(args.wq_b.n == args.heads * args.index_dim && args.weights_proj.n == args.heads);
  HADAL_CUDA_CHECK(args.selection.rows.cols == args.topk);
  const bool two_level = args.use != CandidateUse::none;
  HADAL_CUDA_CHECK(!two_level ||
                   (args.candidate_block_size > 0 && args.candidates.blocks.cols == args.candidate_topk_blocks));

  Scratch scratch(cuda);
  const Tensor q = cuda.activations(rows, int64_t{args.heads} * args.index_dim);
  linear(cuda, linear_args(args.qr, args.wq_b, q));
  const Tensor projected = cuda.activations(rows, args.heads);
  project_heads(cuda, args, projected);

  ScoreProblem s{};
  s.heads = args.heads;
  s.index_dim = args.index_dim;
  s.official = cuda.numerics() == Numerics::official;
  const bool int8 = !cuda.portable() && takes_int8_scores(args);
  // Which of the two kernels scores does not change the scores.
  const bool wide = int8 && args.use != CandidateUse::filter && rows >= 8 * args.segments->count;
  float* trace = args.query_trace ? args.query_trace.f32() : nullptr;
  if (int8) {
    const auto padded = static_cast<size_t>(rows) + kPaddingRows, columns = static_cast<size_t>(rows) * kInt8Heads;
    s.int8 = {scratch.get<uint8_t>(padded * kInt8RowBytes), scratch.get<float>(padded * kWeightStride),
              scratch.get<uint32_t>(columns), scratch.get<uint8_t>(columns)};
    launch_int8_queries(cuda.stream(), q.bf16(), projected.bf16(), rows, args.rows->position, args.rope, s.int8, trace);
  } else {
    const int64_t count = int64_t{rows} * args.heads;
    query_kernel<<<static_cast<unsigned>((count + kWarps - 1) / kWarps), 32 * kWarps,
                   sizeof(float) * kWarps * args.index_dim, cuda.stream()>>>(
        q.bf16(), count, args.heads, args.index_dim, args.rows->position, args.rope, trace);
    HADAL_CUDA_LAUNCHED("index queries");
    const int padded = (args.heads + 31) / 32 * 32;
    float* w = scratch.get<float>(static_cast<size_t>(rows) * padded);
    const double factor = 1 / std::sqrt(static_cast<double>(args.index_dim) * args.heads);
    const int64_t weights = int64_t{rows} * padded;
    head_weight_kernel<<<static_cast<unsigned>((weights + 255) / 256), 256, 0, cuda.stream()>>>(
        projected.bf16(), weights, args.heads, padded, factor, w);
    HADAL_CUDA_LAUNCHED("index head weights");
    s.query = q.bf16();
    s.head_weights = w;
  }

  IndexLists lists{};
  lists.rows = *args.rows;
  lists.segments = *args.segments;
  lists.keys = args.keys;
  lists.ratio = args.ratio;
  lists.filter = args.use == CandidateUse::filter;
  if (two_level) {
    lists.block_size = args.candidate_block_size;
    lists.max_blocks = args.candidate_topk_blocks;
    lists.candidate_blocks = args.candidates.blocks.i32();
    lists.candidate_count = args.candidates.count.i32();
  }
  // Positions lie on the device: the page table bounds the lists. When all visible blocks are candidates they are at most
  // max_blocks, so a filtered list is never longer than that many.
  int64_t longest = int64_t{args.segments->page_stride} * args.keys.page_rows;
  if (lists.filter) longest = std::min(longest, int64_t{lists.max_blocks} * lists.block_size);
  const int64_t stride = (longest + 255) / 256 * 256;  // the keys of a block of the wide kernel
  const int64_t chunk = std::min<int64_t>(rows, std::max<int64_t>(8, static_cast<int64_t>(kScoreBytes / sizeof(float)) /
                                                                         std::max<int64_t>(stride, 1) / 8 * 8));

  s.lists = lists;
  s.scores = scratch.get<float>(static_cast<size_t>(chunk * stride));
  s.stride = stride;
  s.longest = static_cast<int>(longest);
  if (int8) {
    s.granule = wide && !(args.use == CandidateUse::publish && args.candidate_block_size == 8) ? 16 : 8;
    s.best = scratch.get<float>(static_cast<size_t>(chunk * (stride / s.granule)));
  }
  SelectProblem t{};
  t.lists = lists;
  t.scores = s.scores;
  t.stride = stride;
  t.best = s.best;
  t.granule = s.granule;
  t.topk = args.topk;
  t.selected = args.selection.rows.i32();
  t.count = args.selection.count.i32();
  if (args.use == CandidateUse::publish) {
    t.candidate_blocks = args.candidates.blocks.i32();
    t.candidate_count = args.candidates.count.i32();
    t.block_stride = (longest + lists.block_size - 1) / lists.block_size;
    t.block_scores = scratch.get<float>(static_cast<size_t>(chunk * t.block_stride));
  }
  for (int64_t first = 0; first < rows; first += chunk) {
    s.first_row = t.first_row = static_cast<int>(first);
    s.row_count = t.row_count = static_cast<int>(std::min<int64_t>(chunk, rows - first));
    if (longest > 0)
      (wide ? launch_index_scores_wide : int8 ? launch_index_scores_narrow : launch_index_scores)(cuda.stream(), s);
    launch_index_select(cuda.stream(), t);
    if (args.score_trace) {
      trace_kernel<<<s.row_count, 256, 0, cuda.stream()>>>(lists, s.first_row, s.scores, stride, args.score_trace.f32(),
                                                           args.score_trace.cols);
      HADAL_CUDA_LAUNCHED("index score trace");
    }
  }
}

}  // namespace hadal::cuda
