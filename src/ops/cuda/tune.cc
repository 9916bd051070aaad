#ifdef HADAL_HAVE_CUDA
#include "ops/cuda/tune.h"

#include <algorithm>

#include "ops/cuda/fp8_rows.h"
#include "ops/cuda/linear.h"
#include "ops/cuda/random_values.h"

namespace hadal::cuda {
namespace {

constexpr int kRounds = 7, kCalls = 8;  // medians of rounds; in a round every tile has its turn of calls
constexpr double kWarmSeconds = 0.1;    // of the same work, until the clock is where long work leaves it

}  // namespace

std::vector<Tuning::Choice> time_tiles(CudaContext& context, const Operators& operators, const TunedLinear& linear,
                                       int rows) {
  const bool fp8 = context.numerics() == Numerics::fp8;
  const std::vector<std::string> names = tile_names(fp8, linear.rounded);
  if (rows <= kMostNarrowRows || names.size() < 2) return {};
  context.reset_step();
  const StepScratch step(context);
  Scratch scratch(context);

  LinearArgs a;
  a.rows = rows;
  a.groups = linear.groups;
  a.w = {WeightFormat::fp8_block32, linear.n, linear.k};
  operators.random_weight(context, a.w, {.seed = 1, .deviation = 1});
  if (a.w.packed == nullptr || reads_fp8(context, a.w, a.groups) != fp8) return {};  // by a kernel that has one tile
  const int columns = linear.k * linear.groups;
  auto* x = scratch.get<uint16_t>(int64_t{rows} * columns);
  fill_weight({WeightFormat::bf16, rows, columns, x}, {.seed = 2, .deviation = 1}, context.stream());
  a.x = x;
  a.x_stride = columns;
  if (fp8) {
    a.x_fp8 = fp8_rows(scratch, rows, columns);
    quantise_rows(context, x, columns, nullptr, a.x_fp8);
  }
  a.y = scratch.get<uint16_t>(int64_t{rows} * linear.n);
  a.y_stride = linear.n;
  if (linear.rounded) a.y_fp8 = fp8_rows(scratch, rows, linear.n);

  const Tuning before = context.tuning();
  const auto run = [&](const std::string& name) {
    context.tuning().set({tuned_kernel(fp8, linear.rounded), linear.n, linear.k, rows}, {name, 0});
    for (int i = 0; i < kCalls; ++i) cuda::linear(context, a);
  };
  const std::unique_ptr<TimeMarks> marks = context.time_marks();
  for (double spent = 0; spent < kWarmSeconds;) {
    marks->mark();
    for (const std::string& name : names) run(name);
    marks->mark();
    spent += marks->seconds().at(0);
  }
  std::vector<std::vector<double>> times(names.size());
  for (int round = 0; round < kRounds; ++round) {
    marks->mark();
    for (const std::string& name : names) {
      run(name);
      marks->mark();
    }
    const std::vector<double> seconds = marks->seconds();
    for (size_t i = 0; i < names.size(); ++i) times[i].push_back(seconds.at(i) * 1e3 / kCalls);
  }
  context.tuning() = before;
  std::vector<Tuning::Choice> choices;
  for (size_t i = 0; i < names.size(); ++i) {
    std::nth_element(times[i].begin(), times[i].begin() + kRounds / 2, times[i].end());
    choices.push_back({names[i], times[i][kRounds / 2]});
  }
  return choices;
}

}  // namespace hadal::cuda
#endif
