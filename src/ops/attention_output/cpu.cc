#include "ops/attention_output/attention_output.h"

#include <vector>

#include "base/error.h"
#include "ops/cpu/linear.h"
#include "ops/operators.h"

namespace hadal::cpu {
namespace {

// Rows n0 .. n0 + n of a weight; n0 is a multiple of 32 or the weight is not scaled in blocks.
Weight slice(const Weight& w, int n0, int n) {
  Weight part = w;
  part.n = n;
  part.data = read_of(w, n0, n0 + n).data;
  if (w.format == WeightFormat::fp8_block32) {
    HADAL_CHECK(n0 % 32 == 0);
    part.scale = w.scale + int64_t{n0 / 32} * (w.k / 32);
  }
  if (w.format == WeightFormat::mxfp4) part.scale = w.scale + int64_t{n0} * (w.k / 32);
  return part;
}

}  // namespace

void attention_output(Context& any, const AttentionOutputArgs& args) {
  CpuContext& context = cpu_context(any);
  HADAL_CHECK(args.groups > 0 && args.o.cols % args.groups == 0 && args.wo_a.n % args.groups == 0);
  const int groups = args.groups, k = static_cast<int>(args.o.cols / groups), lora = args.wo_a.n / groups;
  const int64_t width = args.wo_a.n;
  check_tensor(args.o, DType::f32, args.rows, args.o.cols, "o");
  check_weight(args.wo_a, width, k, "wo_a");
  check_weight(args.wo_b, args.wo_b.n, width, "wo_b");
  check_tensor(args.y, DType::f32, args.rows, args.wo_b.n, "y");
  if (args.rows == 0) return;

  Scratch scratch(context);
  float* u = scratch.get<float>(args.rows * width);
  const Layout layout = layout_of(context, args.wo_a);
  // Published as a bf16 product, so without Q1.
  const InputRounding rounding =
      context.numerics() == Numerics::fp8 ? input_rounding(context, args.wo_a) : InputRounding::none;
  std::vector<Weight> weights;
  weights.reserve(static_cast<size_t>(groups));
  for (int g = 0; g < groups; ++g) weights.push_back(slice(args.wo_a, g * lora, lora));
  std::vector<Product> products;
  for (int g = 0; g < groups; ++g) {
    const Input x =
        prepare(context, scratch, args.o.f32() + int64_t{g} * k, args.o.cols, args.rows, k, layout, rounding);
    products.push_back({.weight = &weights[static_cast<size_t>(g)],
                        .x = x,
                        .rows = args.rows,
                        .y = u + g * lora,
                        .y_stride = width,
                        .round = true});
  }
  multiply(context, products);

  const Input x = prepare(context, scratch, u, width, args.rows, args.wo_b);
  multiply(
      context,
      {{.weight = &args.wo_b, .x = x, .rows = args.rows, .y = args.y.f32(), .y_stride = args.y.cols, .round = true}});
}

}  // namespace hadal::cpu
