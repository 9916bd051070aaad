#include "ops/hyper_connection/hyper_connection.h"

#include <array>
#include <cmath>

#include "base/error.h"
#include "ops/cpu/linear.h"
#include "ops/operators.h"

namespace hadal::cpu {
namespace {

// Columns are cut at fixed places, so that one row can be spread over threads: the sums of the pieces are added in order.
constexpr int kColumns = 512;  // kStreamColumns of the kernel
constexpr int kMaxCopies = 8;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

void divide_line(double* c, int begin, int stride, int count, double eps) {
  double sum = eps;
  for (int i = 0; i < count; ++i) sum += c[begin + i * stride];
  for (int i = 0; i < count; ++i) c[begin + i * stride] /= sum;
}

// 24 numbers a row: double costs nothing here.
void finish_mixes(const HyperConnectionArgs& args, const double* m, float* pre, float* post, float* comb) {
  const int n = args.copies;
  const auto z = [&](int i) { return m[i] * args.mix->scale[std::min(i / n, 2)] + args.mix->base[i]; };
  for (int j = 0; j < n; ++j) pre[j] = static_cast<float>(sigmoid(z(j)) + args.hc_eps);
  for (int j = 0; j < n; ++j) post[j] = static_cast<float>(2 * sigmoid(z(n + j)));
  std::array<double, kMaxCopies * kMaxCopies> c;
  for (int j = 0; j < n; ++j) {
    double top = z(2 * n + j * n), sum = 0;
    for (int k = 1; k < n; ++k) top = std::max(top, z(2 * n + j * n + k));
    for (int k = 0; k < n; ++k) sum += c[j * n + k] = std::exp(z(2 * n + j * n + k) - top);
    for (int k = 0; k < n; ++k) c[j * n + k] = c[j * n + k] / sum + args.hc_eps;
  }
  for (int iteration = 0; iteration < args.sinkhorn_iters; ++iteration) {
    if (iteration > 0)
      for (int j = 0; j < n; ++j) divide_line(c.data(), j * n, 1, n, args.hc_eps);
    for (int k = 0; k < n; ++k) divide_line(c.data(), k, n, n, args.hc_eps);
  }
  for (int i = 0; i < n * n; ++i) comb[i] = static_cast<float>(c[i]);
}

void check(const HyperConnectionArgs& args) {
  const int64_t wide = int64_t{args.copies} * args.d;
  HADAL_CHECK(args.copies >= 1 && args.copies <= kMaxCopies);
  check_tensor(args.in.h, DType::f32, args.source == nullptr ? args.rows : 0, wide, "in.h");
  if (args.y) {
    check_tensor(args.y, DType::f32, args.y_source == nullptr ? args.rows : 0, args.d, "y");
    check_tensor(args.in.post, DType::f32, 0, args.copies, "in.post");
    check_tensor(args.in.comb, DType::f32, 0, args.copies * args.copies, "in.comb");
  }
  if (args.norm != nullptr || (args.mix == nullptr && args.out.pre))
    check_tensor(args.in.pre, DType::f32, 0, args.copies, "in.pre");
  if (args.norm != nullptr) check_tensor(args.x, DType::f32, args.rows, args.d, "x");
  if (args.collapsed) {
    HADAL_CHECK(args.norm != nullptr);
    check_tensor(args.collapsed, DType::f32, args.rows, args.d, "collapsed");
  }
  if (args.out.h) check_tensor(args.out.h, DType::f32, args.rows, wide, "out.h");
  if (args.mix != nullptr) {
    check_tensor(args.out.pre, DType::f32, args.rows, args.copies, "out.pre");
    check_tensor(args.out.post, DType::f32, args.rows, args.copies, "out.post");
    check_tensor(args.out.comb, DType::f32, args.rows, args.copies * args.copies, "out.comb");
  }
  HADAL_CHECK(args.source == nullptr || !args.out.h || args.out.h.data != args.in.h.data);
}

}  // namespace

void hyper_connection(Context& any, const HyperConnectionArgs& args) {
  CpuContext& context = cpu_context(any);
  check(args);
  if (args.rows == 0) return;
  const Kernels& kernel = kernels(context);
  const bool round = rounds(context);
  const int copies = args.copies, d = args.d, mixes = args.mix == nullptr ? 0 : (2 + copies) * copies;
  const int pieces = (d + kColumns - 1) / kColumns, sums = mixes + 2;
  const auto source = [&](int64_t r) { return args.source == nullptr ? r : args.source[r]; };

  Scratch scratch(context);
  float* partial = scratch.get<float>(int64_t{args.rows} * pieces * sums);
  // out's coefficients may be the memory of in's: what is still needed is kept.
  float* pre = scratch.get<float>(int64_t{args.rows} * copies);
  for (int r = 0; r < args.rows; ++r)
    if (args.in.pre) std::copy_n(args.in.pre.f32(source(r)), copies, pre + int64_t{r} * copies);

  // A piece of fn (24 x 4 x 512 floats, 197 KB) stays in the second-level cache while some rows go by.
  constexpr int kRows = 16;
  const int groups = (args.rows + kRows - 1) / kRows;
  context.pool().parallel_for(groups * pieces, [&](int i) {
    const int piece = i % pieces, begin = i / pieces * kRows, end = std::min(args.rows, begin + kRows);
    std::array<StreamTask, kRows> tasks;
    for (int r = begin; r < end; ++r) {
      const int64_t s = source(r);
      StreamTask& task = tasks[static_cast<size_t>(r - begin)];
      task.copies = copies;
      task.d = d;
      task.c0 = piece * kColumns;
      task.c1 = std::min(d, task.c0 + kColumns);
      task.h = args.in.h.f32(s);
      if (args.y) {
        task.y = args.y.f32(args.y_source == nullptr ? r : args.y_source[r]);
        task.post = args.in.post.f32(s);
        task.comb = args.in.comb.f32(s);
      }
      if (args.norm != nullptr) {
        task.pre = pre + int64_t{r} * copies;
        task.out_x = args.x.f32(r);
      }
      if (args.out.h) task.out_h = args.out.h.f32(r);
      if (args.mix != nullptr) task.fn = args.mix->fn;
      task.mixes = mixes;
      task.sums = partial + (int64_t{r} * pieces + piece) * sums;
      task.round = round;
    }
    kernel.stream(tasks.data(), end - begin);
  });

  parallel_ranges(context, args.rows, 4, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      std::array<double, (2 + kMaxCopies) * kMaxCopies + 2> total{};
      for (int piece = 0; piece < pieces; ++piece)
        for (int i = 0; i < sums; ++i) total[i] += partial[(r * pieces + piece) * sums + i];
      if (args.mix != nullptr) {
        const double scale = 1 / std::sqrt(total[mixes] / (static_cast<double>(copies) * d) + args.norm_eps);
        for (int i = 0; i < mixes; ++i) total[i] *= scale;
        finish_mixes(args, total.data(), args.out.pre.f32(r), args.out.post.f32(r), args.out.comb.f32(r));
      } else if (args.out.pre) {
        std::copy_n(pre + r * copies, copies, args.out.pre.f32(r));
      }
      if (args.norm == nullptr) continue;
      if (args.collapsed) std::copy_n(args.x.f32(r), d, args.collapsed.f32(r));
      const auto inverse = static_cast<float>(1 / std::sqrt(total[mixes + 1] / d + args.norm_eps));
      kernel.scale_norm(args.x.f32(r), args.norm, d, inverse, round);
    }
  });
}

void tap(Context& any, const TapArgs& args) {
  CpuContext& context = cpu_context(any);
  check_tensor(args.h, DType::f32, 0, int64_t{args.copies} * args.d, "h");
  check_tensor(args.out, DType::f32, args.rows, args.out.cols, "out");
  HADAL_CHECK(args.column >= 0 && args.column + args.d <= args.out.cols);
  const Kernels& kernel = kernels(context);
  const bool round = rounds(context);
  parallel_ranges(context, args.rows, 4, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* h = args.h.f32(args.source == nullptr ? r : args.source[r]);
      kernel.mean(h, args.copies, args.d, round, args.out.f32(r) + args.column);
    }
  });
}

}  // namespace hadal::cpu
