#include "ops/experts/experts.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "ops/cpu/linear.h"
#include "ops/operators.h"

namespace hadal::cpu {
namespace {

// An expert and the rows that go through it; the shared expert is the last unit, with all rows.
struct Unit {
  const FeedForward* weights = nullptr;
  int first = 0;  // in the lists of rows
  int count = 0;
  bool shared = false;
};

struct Plan {
  std::vector<Unit> units;    // ascending expert id, then the shared expert
  std::vector<int32_t> row;   // of every (unit, row) pair
  std::vector<float> weight;  // routing weight of the pair
};

Plan plan_of(const ExpertsArgs& args) {
  std::vector<int> count(static_cast<size_t>(args.experts->count()), 0);
  for (int r = 0; r < args.rows; ++r)
    for (int i = 0; i < args.topk; ++i) {
      const int32_t id = args.ids.i32(r)[i];
      HADAL_CHECK(id >= 0 && id < args.experts->count());
      HADAL_CHECK(i == 0 || id > args.ids.i32(r)[i - 1]);
      ++count[static_cast<size_t>(id)];
    }
  Plan plan;
  std::vector<int> unit_of(count.size(), -1);
  int pairs = 0;
  for (int e = 0; e < args.experts->count(); ++e) {
    const int n = count[static_cast<size_t>(e)];
    if (n == 0 || !args.experts->is_local(e)) continue;
    unit_of[static_cast<size_t>(e)] = static_cast<int>(plan.units.size());
    plan.units.push_back({&args.experts->expert(e), pairs, 0, false});
    pairs += n;
  }
  plan.row.resize(static_cast<size_t>(pairs + args.rows));
  plan.weight.resize(plan.row.size());
  for (int r = 0; r < args.rows; ++r)
    for (int i = 0; i < args.topk; ++i) {
      const int at = unit_of[static_cast<size_t>(args.ids.i32(r)[i])];
      if (at < 0) continue;
      Unit& unit = plan.units[static_cast<size_t>(at)];
      const auto pair = static_cast<size_t>(unit.first + unit.count++);
      plan.row[pair] = r;
      plan.weight[pair] = args.weights.f32(r)[i];
    }
  plan.units.push_back({&args.shared, pairs, args.rows, true});
  for (int r = 0; r < args.rows; ++r) {
    plan.row[static_cast<size_t>(pairs + r)] = r;
    plan.weight[static_cast<size_t>(pairs + r)] = 1.0f;
  }
  return plan;
}

void check(const ExpertsArgs& args, const Plan& plan) {
  const int64_t d = args.x.cols;
  const int width = args.shared.w1.n;
  for (const Unit& unit : plan.units) {
    check_weight(unit.weights->w1, width, d, "w1");
    check_weight(unit.weights->w3, width, d, "w3");
    check_weight(unit.weights->w2, d, width, "w2");
    HADAL_CHECK(unit.weights->w1.format == unit.weights->w3.format);
    // Rows are prepared once for all routed experts.
    HADAL_CHECK(unit.shared || unit.weights->w1.format == plan.units.front().weights->w1.format);
    HADAL_CHECK(width % 32 == 0);
  }
}

// Rows of one expert that pass a tile of weights together: their results wait in the worker's memory.
constexpr int kRowBlock = 128;

int round_up(int64_t n, int to) { return static_cast<int>((n + to - 1) / to * to); }

// Outputs a task makes: four tasks a thread, in whole groups of 128 so that each can be put into any layout.
int outputs_per_task(int64_t all_outputs, int threads, int most) {
  return std::clamp(round_up((all_outputs + 4 * threads - 1) / (4 * threads), 128), 128, most);
}

}  // namespace

void experts(Context& any, const ExpertsArgs& args) {
  CpuContext& context = cpu_context(any);
  const Kernels& kernel = kernels(context);
  const bool round = rounds(context);
  const int threads = context.pool().size(), d = static_cast<int>(args.x.cols);
  check_tensor(args.x, DType::f32, args.rows, d, "x");
  check_tensor(args.y, DType::f32, args.rows, d, "y");
  check_tensor(args.ids, DType::i32, args.rows, args.topk, "ids");
  check_tensor(args.weights, DType::f32, args.rows, args.topk, "weights");
  if (args.rows == 0) return;
  const Plan plan = plan_of(args);
  check(args, plan);
  const int width = args.shared.w1.n;
  const auto pairs = static_cast<int64_t>(plan.row.size());

  Scratch scratch(context);
  // Routed and shared weights share the prepared rows, unless their formats want them differently.
  const Input x_shared = prepare(context, scratch, args.x.f32(), d, args.rows, args.shared.w1);
  Input x_routed = x_shared;
  const Weight& routed = plan.units.front().weights->w1;
  if (layout_of(context, routed) != x_shared.layout ||
      input_rounding(context, routed) != input_rounding(context, args.shared.w1))
    x_routed = prepare(context, scratch, args.x.f32(), d, args.rows, routed);
  auto* tiles = scratch.get<std::byte>(threads * kTileBytes);

  // First products: gate and up of some columns for some rows of a unit, then SwiGLU, straight into the layout of w2, or as
  // floats where the whole row is needed for that.
  // Activations have the widest element, so that units of different layouts may share the buffer.
  const int64_t act_bytes = int64_t{round_up(width, 128)} * 4;
  auto* act = scratch.get<std::byte>(pairs * act_bytes);
  const int step1 =
      outputs_per_task(static_cast<int64_t>(plan.units.size()) * width, threads, kernel.has_tiles ? 512 : 128);
  const int step2 = outputs_per_task(d, threads, 512), tasks2 = (d + step2 - 1) / step2;
  struct Task {
    const Unit* unit;
    int n0, n1, r0, r1;
  };
  std::vector<Task> first;
  // The shared expert first: it is known before the router has chosen, so that memory has been asked for it.
  const auto cut = [&](const Unit& unit) {
    for (int n0 = 0; n0 < width; n0 += step1)
      for (int r0 = 0; r0 < unit.count; r0 += kRowBlock)
        first.push_back({&unit, n0, std::min(width, n0 + step1), r0, std::min(unit.count, r0 + kRowBlock)});
  };
  cut(plan.units.back());
  for (size_t i = 0; i + 1 < plan.units.size(); ++i) cut(plan.units[i]);
  // Before the router has chosen, in the next step, the shared expert is known.
  std::vector<Read> first_parts, second_parts;
  int shared_tasks = 0;
  for (const Task& t : first) {
    for (const Weight* w : {&t.unit->weights->w1, &t.unit->weights->w3}) first_parts.push_back(read_of(*w, t.n0, t.n1));
    if (t.unit->shared) ++shared_tasks;
  }
  for (int n0 = 0; n0 < d; n0 += step2)
    for (const Unit& unit : plan.units) second_parts.push_back(read_of(unit.weights->w2, n0, std::min(d, n0 + step2)));
  const ReadAhead::Loop first_loop{
      .parts = first_parts, .parts_of_task = 2, .stable_tasks = shared_tasks, .key = args.shared.w1.data};
  const ReadAhead::Loop second_loop{.parts = second_parts,
                                    .parts_of_task = static_cast<int>(plan.units.size()),
                                    .stable_tasks = 0,
                                    .key = args.shared.w2.data};
  context.read_ahead().reading(first_loop, second_loop);
  const int most_rows = std::min(args.rows, kRowBlock);
  auto* first_out = scratch.get<float>(int64_t{2} * threads * most_rows * step1);
  context.pool().parallel_for(static_cast<int>(first.size()), [&](int i, int worker) {
    const Task& t = first[static_cast<size_t>(i)];
    const FeedForward& w = *t.unit->weights;
    const Input& x = t.unit->shared ? x_shared : x_routed;
    const int rows = t.r1 - t.r0, n = t.n1 - t.n0, pair = t.unit->first + t.r0;
    float* gate = first_out + int64_t{2} * worker * most_rows * step1;
    float* up = gate + int64_t{most_rows} * step1;
    LinearTask task;
    task.n0 = t.n0;
    task.n1 = t.n1;
    task.x = x.data;
    task.x_stride = x.stride;
    task.x_index = plan.row.data() + pair;
    task.rows = rows;
    task.y_stride = n;
    task.round = round;
    task.tile = tiles + worker * kTileBytes;
    task.reader = &context.read_ahead().reader(worker);
    task.weight = &w.w1;
    task.y = gate;
    kernel.linear(task, x.layout);
    task.weight = &w.w3;
    task.y = up;
    kernel.linear(task, x.layout);

    const Layout layout = layout_of(context, w.w2);
    const InputRounding rounding = input_rounding(context, w.w2);
    for (int r = 0; r < rows; ++r) {
      float* g = gate + int64_t{r} * n;
      kernel.swiglu(g, up + int64_t{r} * n, plan.weight[static_cast<size_t>(pair + r)], args.limit, n, round, g);
      std::byte* row = act + (pair + r) * act_bytes;
      if (rounding == InputRounding::q5)
        std::copy_n(g, n, reinterpret_cast<float*>(row) + t.n0);
      else
        kernel.prepare(g, n, layout, rounding, row + t.n0 * element_bytes(layout));
    }
  });

  // Q5 takes the whole row, which is there now.
  auto* whole = scratch.get<float>(int64_t{threads} * width);
  const bool rounds_rows = std::any_of(plan.units.begin(), plan.units.end(), [&](const Unit& unit) {
    return input_rounding(context, unit.weights->w2) == InputRounding::q5;
  });
  context.pool().parallel_for(rounds_rows ? static_cast<int>(plan.units.size()) : 0, [&](int i, int worker) {
    const Unit& unit = plan.units[static_cast<size_t>(i)];
    const InputRounding rounding = input_rounding(context, unit.weights->w2);
    if (rounding != InputRounding::q5) return;
    float* copy = whole + int64_t{worker} * width;
    for (int r = 0; r < unit.count; ++r) {
      std::byte* row = act + (unit.first + r) * act_bytes;
      std::copy_n(reinterpret_cast<const float*>(row), width, copy);
      kernel.prepare(copy, width, layout_of(context, unit.weights->w2), rounding, row);
    }
  });

  context.read_ahead().reading(second_loop);
  // Second products: a task owns some columns of y and takes the units in order, so that a row's sum runs over ascending
  // expert ids and ends with the shared expert.
  auto* second_out = scratch.get<float>(int64_t{threads} * most_rows * step2);
  context.pool().parallel_for(tasks2, [&](int i, int worker) {
    const int n0 = i * step2, n1 = std::min(d, n0 + step2), n = n1 - n0;
    float* part = second_out + int64_t{worker} * most_rows * step2;
    for (int r = 0; r < args.rows; ++r) std::fill_n(args.y.f32(r) + n0, n, 0.0f);
    for (const Unit& unit : plan.units) {
      const Layout layout = layout_of(context, unit.weights->w2);
      for (int r0 = 0; r0 < unit.count; r0 += kRowBlock) {
        const int rows = std::min(kRowBlock, unit.count - r0), pair = unit.first + r0;
        LinearTask task;
        task.weight = &unit.weights->w2;
        task.n0 = n0;
        task.n1 = n1;
        task.x = act + pair * act_bytes;
        task.x_stride = act_bytes / element_bytes(layout);
        task.rows = rows;
        task.y = part;
        task.y_stride = n;
        task.round = round;
        task.tile = tiles + worker * kTileBytes;
        task.reader = &context.read_ahead().reader(worker);
        kernel.linear(task, layout);
        for (int r = 0; r < rows; ++r)
          kernel.accumulate(args.y.f32(plan.row[static_cast<size_t>(pair + r)]) + n0, part + int64_t{r} * n, n,
                            unit.shared && round);
      }
    }
  });
}

}  // namespace hadal::cpu
