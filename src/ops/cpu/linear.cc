#include "ops/cpu/linear.h"

#include <cmath>
#include <vector>

#include "base/error.h"

namespace hadal::cpu {
namespace {

int round_up(int64_t n, int to) { return static_cast<int>((n + to - 1) / to * to); }

struct Piece {
  const Product* product;
  int n0, n1, r0, r1;
};

// Pieces never touch a result: outputs are independent, and so are rows.
void cut(const Product& p, int64_t all_outputs, int threads, bool on_tiles, std::vector<Piece>& pieces) {
  const int n = p.weight->n;
  if (on_tiles) {
    // Every piece packs its rows for itself, which more than a few rows have to make up for; each is a stream of its own.
    const int most = p.rows <= 4 ? 512 : 1024;
    const int step = std::clamp(round_up((all_outputs + 4 * threads - 1) / (4 * threads), 32), 32, most);
    const int64_t output_cuts = (all_outputs + step - 1) / step;
    const int64_t row_cuts =
        std::clamp<int64_t>((3 * threads + output_cuts - 1) / output_cuts, 1, (p.rows + 127) / 128);
    const int row_step = round_up((p.rows + row_cuts - 1) / row_cuts, 32);
    for (int n0 = 0; n0 < n; n0 += step)
      for (int r0 = 0; r0 < p.rows; r0 += row_step)
        pieces.push_back({&p, n0, std::min(n, n0 + step), r0, std::min(p.rows, r0 + row_step)});
    return;
  }
  if (p.rows <= kDirectRows) {
    // Bound by memory: four pieces a thread even out what else the machine does.
    const int step = std::max(16, round_up((all_outputs + 4 * threads - 1) / (4 * threads), 8));
    for (int n0 = 0; n0 < n; n0 += step) pieces.push_back({&p, n0, std::min(n, n0 + step), 0, p.rows});
    return;
  }
  // A tile of decoded weights serves all rows, unless there are too few tiles for the threads.
  const int64_t tiles = (all_outputs + kTileOutputs - 1) / kTileOutputs;
  const int64_t row_cuts = std::max<int64_t>(1, std::min<int64_t>((3 * threads + tiles - 1) / tiles, p.rows / 24));
  const int row_step = threads == 1 ? p.rows : round_up((p.rows + row_cuts - 1) / row_cuts, kDirectRows);
  for (int n0 = 0; n0 < n; n0 += kTileOutputs)
    for (int r0 = 0; r0 < p.rows; r0 += row_step)
      pieces.push_back({&p, n0, std::min(n, n0 + kTileOutputs), r0, std::min(p.rows, r0 + row_step)});
}

}  // namespace

Layout layout_of(const CpuContext& context, const Weight& weight) {
  if (!rounds(context) || weight.format == WeightFormat::f32) return Layout::split;
  if (kernels(context).has_digits && weight.format == WeightFormat::mxfp4) return Layout::digits;
  if (!kernels(context).has_pairs) return Layout::split;
  if (weight.format == WeightFormat::fp8_block32) return Layout::pairs_fp8;
  return weight.format == WeightFormat::mxfp4 ? Layout::pairs_fp4 : Layout::pairs;
}

InputRounding input_rounding(const CpuContext& context, const Weight& weight) {
  if (weight.format != WeightFormat::fp8_block32 && weight.format != WeightFormat::mxfp4) return InputRounding::none;
  if (context.numerics() == Numerics::official) return InputRounding::q1;
  if (context.numerics() != Numerics::fp8) return InputRounding::none;
  return weight.format == WeightFormat::mxfp4 ? InputRounding::q5 : InputRounding::q4;
}

Input prepare(CpuContext& context, Scratch& scratch, const float* x, int64_t x_stride, int rows, int k, Layout layout,
              InputRounding rounding) {
  const Kernels& kernel = kernels(context);
  const int64_t columns = layout_columns(layout), stride = (k + columns - 1) / columns * columns,
                bytes = element_bytes(layout);
  auto* out = scratch.get<std::byte>(rows * stride * bytes);
  // A thread is woken for 64K values or more.
  const int64_t grain = std::max<int64_t>(1, (rounding == InputRounding::none ? 65536 : 8192) / k);
  parallel_ranges(context, rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      kernel.prepare(x + r * x_stride, k, layout, rounding, out + r * stride * bytes);
  });
  return {out, layout, stride};
}

Input prepare(CpuContext& context, Scratch& scratch, const float* x, int64_t x_stride, int rows, const Weight& weight) {
  return prepare(context, scratch, x, x_stride, rows, weight.k, layout_of(context, weight),
                 input_rounding(context, weight));
}

Read read_of(const Weight& weight, int n0, int n1) {
  const int64_t k = weight.k;
  int64_t row = 0;
  switch (weight.format) {
    case WeightFormat::f32: row = 4 * k; break;
    case WeightFormat::bf16: row = 2 * k; break;
    case WeightFormat::fp8_block32: row = k; break;
    case WeightFormat::mxfp4: row = k / 2; break;
  }
  return {static_cast<const uint8_t*>(weight.data) + n0 * row, (n1 - n0) * row,
          weight.format == WeightFormat::mxfp4 ? weight.scale + n0 * (k / 32) : nullptr};
}

void multiply(CpuContext& context, std::span<const Product> products) {
  Scratch scratch(context);
  const int threads = context.pool().size();
  int64_t outputs = 0;
  for (const Product& p : products) outputs += p.rows > 0 ? p.weight->n : 0;
  std::vector<Piece> pieces;
  for (const Product& p : products) {
    if (p.rows == 0) continue;
    const bool tiles =
        kernels(context).has_tiles && (p.x.layout == Layout::pairs_fp8 || p.x.layout == Layout::pairs_fp4);
    cut(p, outputs, threads, tiles, pieces);
  }
  if (pieces.empty()) return;
  std::vector<Read> parts;
  for (const Piece& piece : pieces)
    if (parts.size() < ReadAhead::kMostParts) parts.push_back(read_of(*piece.product->weight, piece.n0, piece.n1));
  context.read_ahead().reading({.parts = parts});
  auto* tile = scratch.get<std::byte>(threads * kTileBytes);
  const Kernels& kernel = kernels(context);
  const bool rounding = rounds(context);
  context.pool().parallel_for(static_cast<int>(pieces.size()), [&](int i, int worker) {
    const Piece& piece = pieces[static_cast<size_t>(i)];
    const Product& p = *piece.product;
    LinearTask task;
    task.weight = p.weight;
    task.n0 = piece.n0;
    task.n1 = piece.n1;
    task.x = p.x_index == nullptr ? p.x.row(piece.r0) : p.x.data;
    task.x_stride = p.x.stride;
    task.x_index = p.x_index == nullptr ? nullptr : p.x_index + piece.r0;
    task.rows = piece.r1 - piece.r0;
    task.y = p.y + piece.r0 * p.y_stride + piece.n0;
    task.y_stride = p.y_stride;
    task.round = p.round && rounding;
    task.tile = tile + worker * kTileBytes;
    task.reader = &context.read_ahead().reader(worker);
    kernel.linear(task, p.x.layout);
  });
}

void cos_sin(const Rope& rope, int32_t position, float* out) {
  for (int i = 0; i < rope.dim / 2; ++i) {
    const auto angle = static_cast<double>(static_cast<float>(position) * rope.inv_freq[i]);
    out[2 * i] = static_cast<float>(std::cos(angle));
    out[2 * i + 1] = static_cast<float>(std::sin(angle));
  }
}

void check_weight(const Weight& weight, int64_t n, int64_t k, const char* name) {
  if (weight.data == nullptr || weight.n != n || weight.k != k)
    fail(ErrorKind::internal, "{}: weight [{}, {}], expected [{}, {}]", name, weight.n, weight.k, n, k);
  const bool scaled = weight.format == WeightFormat::fp8_block32 || weight.format == WeightFormat::mxfp4;
  if (scaled && (weight.scale == nullptr || k % 32 != 0))
    fail(ErrorKind::unsupported, "{}: {} columns, but the CPU kernels want scales and a multiple of 32", name, k);
  // A tile holds at least four decoded rows.
  if (k > 28 * 1024) fail(ErrorKind::unsupported, "{}: {} columns, but the CPU kernels take at most 28672", name, k);
}

void check_tensor(const Tensor& tensor, DType type, int64_t rows, int64_t cols, const char* name) {
  if (!tensor || tensor.type != type || tensor.rows < rows || tensor.cols != cols)
    fail(ErrorKind::internal, "{}: [{}, {}] of type {}, expected [{}, {}] of type {}", name, tensor.rows, tensor.cols,
         static_cast<int>(tensor.type), rows, cols, static_cast<int>(type));
}

}  // namespace hadal::cpu
