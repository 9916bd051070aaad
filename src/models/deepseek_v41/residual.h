// The residual state of a forward pass, and the sub-layer output that has not been written into it yet.    spec 3.2
#pragma once

#include "models/deepseek_v41/weights.h"
#include "ops/operators.h"
#include "state/step_plan.h"

namespace hadal::deepseek_v41 {

struct HyperConnectionShape {
  int copies = 0;
  int d = 0;
  int sinkhorn_iters = 0;
  float hc_eps = 0;
  float norm_eps = 0;
};

// enter() writes the pending output of the sub-layer before, mixes for the next one and returns its normalised input: one
// pass over the residual copies. Rows may be dropped on the way, where a layer puts out fewer rows than it takes in.
class Residual {
 public:
  // reader: a weight like those that read the input of attention, where enter() shall be asked for that in their form.
  Residual(Context& context, const Operators& op, const HyperConnectionShape& shape, StepPlan& plan,
           const Weight* reader = nullptr)
      : context_(context), op_(op), shape_(shape), plan_(plan), rows_(&plan.all()) {
    current_ = allocate();
    if (reader != nullptr) x_ = linear_input(op, context, rows_->rows, *reader, 1);
    if (x_.type == DType::u8) std::swap(x_, x_rounded_);
    if (!x_) x_ = context.activations(rows_->rows, shape.d);
    y_ = context.activations(rows_->rows, shape.d);
  }

  // h = four copies of the embedding, pre = (1, 0, 0, 0).
  void embed(const Weight& embedding) {
    op_.embedding(context_, {plan_.device_tokens(), embedding, current_.h, current_.pre});
  }

  // Where the running sub-layer writes its output, for the rows of `rows`; enter() or flush() reads it.
  Tensor output(const RowSet& rows) {
    pending_ = head(y_, rows.rows);
    pending_rows_ = &rows;
    return pending_;
  }

  Tensor enter(const HyperConnectionWeights& mix, const uint16_t* norm, const RowSet& rows) {
    const Tensor x = head(x_, rows.rows);
    run(&mix, norm, rows, x, {});
    return x;
  }
  // The same where linears read the input: rounded for them, where the backend has such a form; and as it is, unless that
  // is enough.
  struct Input {
    Tensor x, rounded;
  };
  Input enter_linears(const HyperConnectionWeights& mix, const uint16_t* norm, const RowSet& rows, bool linears_alone) {
    Input in;
    if (x_rounded_) in.rounded = head(x_rounded_, rows.rows);
    if (!linears_alone || !in.rounded) in.x = head(x_, rows.rows);
    run(&mix, norm, rows, in.x, {}, in.rounded);
    return in;
  }

  // Writes the pending output without mixing, for what reads or changes the copies in between.
  void flush(const RowSet& rows) { run(nullptr, nullptr, rows, {}, {}); }

  // The input of the head: collapsed, and normalised.
  Tensor finish(const uint16_t* norm, const RowSet& rows, Tensor collapsed) {
    const Tensor x = head(x_, rows.rows);
    run(nullptr, norm, rows, x, collapsed);
    return x;
  }

  const RowSet& rows() const { return *rows_; }
  Tensor h() const { return head(current_.h, rows_->rows); }
  const Streams& streams() const { return current_; }

 private:
  static Tensor head(Tensor t, int rows) {
    t.rows = rows;
    return t;
  }

  Streams allocate() {
    const int n = rows_->rows, c = shape_.copies;
    return {context_.activations(n, static_cast<int64_t>(c) * shape_.d), context_.tensor(n, c, DType::f32),
            context_.tensor(n, c, DType::f32), context_.tensor(n, static_cast<int64_t>(c) * c, DType::f32)};
  }

  void run(const HyperConnectionWeights* mix, const uint16_t* norm, const RowSet& rows, Tensor x, Tensor collapsed,
           Tensor x_rounded = {}) {
    HyperConnectionArgs a;
    a.rows = rows.rows;
    a.copies = shape_.copies;
    a.d = shape_.d;
    a.sinkhorn_iters = shape_.sinkhorn_iters;
    a.hc_eps = shape_.hc_eps;
    a.norm_eps = shape_.norm_eps;
    a.in = current_;
    a.source = plan_.map(*rows_, rows);
    if (pending_) {
      a.y = pending_;
      a.y_source = plan_.map(*pending_rows_, rows);
    }
    if (!other_.h) other_ = allocate();
    a.out = other_;
    if (a.source == nullptr) a.out.h = current_.h;  // in place
    for (Tensor* t : {&a.out.h, &a.out.pre, &a.out.post, &a.out.comb}) t->rows = rows.rows;
    a.mix = mix;
    a.norm = norm;
    a.x = x;
    a.x_rounded = x_rounded;
    a.collapsed = collapsed;
    op_.hyper_connection(context_, a);

    if (a.source == nullptr) std::swap(current_.h, other_.h);
    std::swap(current_, other_);
    for (Tensor* t : {&current_.h, &current_.pre, &current_.post, &current_.comb}) t->rows = rows.rows;
    rows_ = &rows;
    pending_ = {};
  }

  Context& context_;
  const Operators& op_;
  const HyperConnectionShape shape_;
  StepPlan& plan_;
  const RowSet* rows_;
  Streams current_, other_;  // coefficients alternate; h stays in place unless rows are dropped
  Tensor x_, x_rounded_, y_;
  Tensor pending_;
  const RowSet* pending_rows_ = nullptr;
};

}  // namespace hadal::deepseek_v41
