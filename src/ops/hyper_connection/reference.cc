// Hyper-connections.      spec 3.2
#include "ops/hyper_connection/reference.h"

#include <algorithm>

#include "ops/operators.h"
#include "ops/reference_math.h"

namespace hadal::reference {
namespace {

// h'_k = bf16( post[k] * y + sum_j comb[j, k] * h_j ): the sum runs over the FIRST index of comb.
Row expand(Numerics numerics, const HyperConnectionArgs& args, const float* h, const float* y, const float* post,
           const float* comb) {
  const int copies = args.copies, d = args.d;
  Row out(copies * d);
  for (int k = 0; k < copies; ++k) {
    for (int i = 0; i < d; ++i) {
      double sum = static_cast<double>(post[k]) * y[i];
      for (int j = 0; j < copies; ++j) sum += static_cast<double>(comb[j * copies + k]) * h[j * d + i];
      out[k * d + i] = round_activation(numerics, sum);
    }
  }
  return out;
}

// bf16( sum_j pre[j] * h_j )
Row collapse(Numerics numerics, const HyperConnectionArgs& args, const Row& h, const float* pre) {
  Row out(args.d);
  for (int i = 0; i < args.d; ++i) {
    double sum = 0;
    for (int j = 0; j < args.copies; ++j) sum += static_cast<double>(pre[j]) * h[j * args.d + i];
    out[i] = round_activation(numerics, sum);
  }
  return out;
}

// One Sinkhorn half step over a line of the matrix: divides it by its sum + eps.
void normalise_line(std::vector<double>& c, int begin, int stride, int count, double eps) {
  double sum = eps;
  for (int i = 0; i < count; ++i) sum += c[begin + i * stride];
  for (int i = 0; i < count; ++i) c[begin + i * stride] /= sum;
}

void softmax_row(std::vector<double>& c, int begin, int count) {
  const double top = *std::max_element(c.begin() + begin, c.begin() + begin + count);
  double sum = 0;
  for (int i = begin; i < begin + count; ++i) sum += c[i] = std::exp(c[i] - top);
  for (int i = begin; i < begin + count; ++i) c[i] /= sum;
}

void check(const HyperConnectionArgs& args) {
  const int64_t wide = int64_t{args.copies} * args.d;
  const bool rows_match = args.source == nullptr;  // otherwise `in` may have any number of rows
  check_shape(args.in.h, DType::f32, rows_match ? args.rows : 0, wide, "in.h");
  if (args.y) {
    check_shape(args.y, DType::f32, args.y_source == nullptr ? args.rows : 0, args.d, "y");
    check_shape(args.in.post, DType::f32, 0, args.copies, "in.post");
    check_shape(args.in.comb, DType::f32, 0, args.copies * args.copies, "in.comb");
  }
  if (args.norm != nullptr || args.mix == nullptr) {
    if (args.norm != nullptr || args.out.pre) check_shape(args.in.pre, DType::f32, 0, args.copies, "in.pre");
  }
  if (args.norm != nullptr) check_shape(args.x, DType::f32, args.rows, args.d, "x");
  if (args.collapsed) {
    HADAL_CHECK(args.norm != nullptr);
    check_shape(args.collapsed, DType::f32, args.rows, args.d, "collapsed");
  }
  if (args.out.h) check_shape(args.out.h, DType::f32, args.rows, wide, "out.h");
  if (args.mix != nullptr) {
    check_shape(args.out.pre, DType::f32, args.rows, args.copies, "out.pre");
    check_shape(args.out.post, DType::f32, args.rows, args.copies, "out.post");
    check_shape(args.out.comb, DType::f32, args.rows, args.copies * args.copies, "out.comb");
  }
  HADAL_CHECK(args.source == nullptr || args.out.h.data == nullptr || args.out.h.data != args.in.h.data);
}

}  // namespace

std::vector<double> mix_products(const HyperConnectionArgs& args, const float* v) {
  const int64_t k = int64_t{args.copies} * args.d;
  const double scale = inverse_rms(v, k, args.norm_eps);
  std::vector<double> m((2 + args.copies) * args.copies);
  for (size_t i = 0; i < m.size(); ++i) m[i] = dot(args.mix->fn + i * k, v, k) * scale;
  return m;
}

Mix mix_from_products(const std::vector<double>& m, const float* scale, const float* base, int copies, int iterations,
                      double hc_eps) {
  const auto z = [&](int i) { return m[i] * scale[std::min(i / copies, 2)] + base[i]; };

  Mix out{std::vector<double>(copies), std::vector<double>(copies), std::vector<double>(copies * copies)};
  for (int j = 0; j < copies; ++j) out.pre[j] = sigmoid(z(j)) + hc_eps;
  for (int j = 0; j < copies; ++j) out.post[j] = 2 * sigmoid(z(copies + j));

  auto& c = out.comb;
  for (int i = 0; i < copies * copies; ++i) c[i] = z(2 * copies + i);
  for (int j = 0; j < copies; ++j) softmax_row(c, j * copies, copies);
  for (double& v : c) v += hc_eps;
  // The first of the iterations has the softmax in place of the row step.
  for (int iteration = 0; iteration < iterations; ++iteration) {
    if (iteration > 0)
      for (int j = 0; j < copies; ++j) normalise_line(c, j * copies, 1, copies, hc_eps);
    for (int k = 0; k < copies; ++k) normalise_line(c, k, copies, copies, hc_eps);
  }
  return out;
}

void hyper_connection(Context& context, const HyperConnectionArgs& args) {
  check(args);
  const Numerics numerics = context.numerics();
  const int64_t wide = int64_t{args.copies} * args.d;

  for (int r = 0; r < args.rows; ++r) {
    const int64_t s = mapped(args.source, r);
    Row h(args.in.h.f32(s), args.in.h.f32(s) + wide);
    if (args.y)
      h = expand(numerics, args, h.data(), args.y.f32(mapped(args.y_source, r)), args.in.post.f32(s),
                 args.in.comb.f32(s));

    Row pre;  // copied first: out.pre may be the memory of in.pre
    if (args.in.pre) pre.assign(args.in.pre.f32(s), args.in.pre.f32(s) + args.copies);

    if (args.norm != nullptr) {
      Row x = collapse(numerics, args, h, pre.data());
      if (args.collapsed) std::copy(x.begin(), x.end(), args.collapsed.f32(r));
      rms_norm(numerics, x.data(), args.norm, args.d, args.norm_eps);
      std::copy(x.begin(), x.end(), args.x.f32(r));
    }
    if (args.mix != nullptr) {
      const Mix mix = mix_from_products(mix_products(args, h.data()), args.mix->scale, args.mix->base, args.copies,
                                        args.sinkhorn_iters, args.hc_eps);
      const auto store = [&](const std::vector<double>& from, const Tensor& to) {
        for (size_t i = 0; i < from.size(); ++i) to.f32(r)[i] = static_cast<float>(from[i]);
      };
      store(mix.pre, args.out.pre);
      store(mix.post, args.out.post);
      store(mix.comb, args.out.comb);
    } else if (args.out.pre) {
      std::copy(pre.begin(), pre.end(), args.out.pre.f32(r));
    }
    if (args.out.h) std::copy(h.begin(), h.end(), args.out.h.f32(r));
  }
}

// bf16( mean_j h_j ), spec 5.1 and 10.9.
void tap(Context& context, const TapArgs& args) {
  check_shape(args.h, DType::f32, 0, int64_t{args.copies} * args.d, "h");
  check_shape(args.out, DType::f32, args.rows, args.out.cols, "out");
  HADAL_CHECK(args.column >= 0 && args.column + args.d <= args.out.cols);

  for (int r = 0; r < args.rows; ++r) {
    const float* h = args.h.f32(mapped(args.source, r));
    for (int i = 0; i < args.d; ++i) {
      double sum = 0;
      for (int j = 0; j < args.copies; ++j) sum += h[j * args.d + i];
      args.out.f32(r)[args.column + i] = round_activation(context.numerics(), sum / args.copies);
    }
  }
}

}  // namespace hadal::reference
