// DeepSeek-V4.1: the forward pass and the draft step, written once over the operators of any backend.
// Reads like the specification (docs/spec/deepseek-v4.1.md, sections 3 and 5).
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "models/deepseek_v41/engram_hash.h"
#include "models/deepseek_v41/weights.h"
#include "ops/operators.h"
#include "state/step_plan.h"

namespace hadal::deepseek_v41 {

class Residual;
class RecordedSteps;

// Sees intermediate values, for tests and tools: (what, layer, value). Values are those of the rows the layer runs.
using Observer = std::function<void(std::string_view what, int layer, const Tensor& value)>;

// What a forward pass leaves in step memory: logits, and the rows that the commit makes part of the state.
struct Step {
  Tensor logits;                      // f32 [plan.logits().rows, vocab]
  std::vector<Tensor> latents;        // [layers] packed window latents of plan.in(layer)
  std::vector<Tensor> halves;         // [owners] (a, b) of every row, at ratio 2
  std::vector<Tensor> draft_latents;  // [stages] packed latents of plan.draft()
};

// Drafts of several requests, `block` rows each.
struct Drafts {
  int block = 0;
  Tensor base;    // f32 [requests * block, vocab], before the Markov correction
  Tensor hidden;  // activations [requests * block, d], before the norm
};

// One row of it.
inline Tensor row_of(const Tensor& t, int64_t row) {
  return {t.u8() + static_cast<size_t>(row * t.cols) * size_of(t.type), t.type, 1, t.cols};
}

class Model {
 public:
  // The checkpoint must outlive the model.
  Model(const Checkpoint& checkpoint, Context& context, const Operators& operators);
  // Weights from elsewhere. `engram_token_map`: one entry per vocabulary id; not read without Engram layers.
  Model(const V41Config& config, ModelWeights weights, std::span<const int32_t> engram_token_map, Context& context,
        const Operators& operators);
  ~Model();

  const V41Config& config() const { return config_; }
  Context& context() const { return context_; }
  CacheLayout cache_layout() const;
  int64_t host_table_bytes() const;  // of Engram tables that a device reads in host memory
  StepShape step_shape() const;

  // Runs the open proposals of the plan's requests. Nothing of their state changes except rows past their length.
  Step forward(StepPlan& plan, const Observer& observe = {});

  // Steps of a backend that can record are recorded and replayed, unless they are large: those that were prepared, and others
  // when their shape comes for the second time. Off: every step gives the operators its work anew, as watchers of operators
  // need it.
  void set_recording(bool on) { recording_ = on; }
  bool records() const { return recording_ && context_.can_record(); }
  // Sizes that decode steps are filled up to from now on.
  void set_decode_buckets(DecodeBuckets buckets) { buckets_ = std::move(buckets); }
  // Records the forward pass and the commit of steps that will have the shape of this one, over the same pools, and runs
  // nothing. A plan of decode steps, after Context::fix_step_memory and a first run of this kind of step.
  void prepare(StepPlan& plan);
  int64_t prepared() const;  // recordings
  int64_t recorded() const;  // besides those
  int64_t replays() const;

  // Makes the first accepted[s] proposed tokens of every segment part of its request's state.
  void commit(StepPlan& plan, const Step& step, std::span<const int32_t> accepted);
  // The rings' and pending halves' part of it: after this they are those of a request of accepted[s] tokens more. Until the
  // commit it may be repeated with larger counts; 0 changes nothing.
  void write_rings(StepPlan& plan, const Step& step, std::span<const int32_t> accepted);

  // One draft step. anchors[s] is the token at position length(); row i of a request stands at position length() + i and
  // predicts position length() + i + 1. State is read, not changed.
  Drafts draft(std::span<RequestState* const> states, std::span<const int32_t> anchors, const Observer& observe = {});

  // Draft logits of row `row` given the token in front of it, and the probability that its arg-max is accepted.
  struct DraftLogits {
    Tensor logits;       // f32 [1, vocab]
    Tensor probability;  // f32 [1, 1]
  };
  void draft_logits(const Drafts& drafts, int row, int32_t previous, const DraftLogits& out);

  // Tokens chosen from rows of logits; -1 where a logit is not a number. Waits for them.
  std::vector<int32_t> sample(const Tensor& logits, std::span<const SampleRow> rows);

 private:
  struct Published;
  using Recorder = std::function<Step(std::vector<uint64_t> key, const std::function<Step()>& work)>;

  bool recordable(const StepPlan& plan);
  void make_maps(StepPlan& plan) const;
  Step forward_recorded(StepPlan& plan, const Recorder& recorder);
  void commit_recorded(StepPlan& plan, const Step& step, const int32_t* accepted, const Recorder& recorder);
  Step run(StepPlan& plan, std::span<const uint32_t* const> engram_rows_of, const Observer& observe);
  void give_commit(StepPlan& plan, const Step& step, const int32_t* accepted);
  std::vector<const uint32_t*> upload_engram_index(StepPlan& plan);
  void share_entries(const SparseAttentionArgs& args, Published& published);
  void attention(const BlockWeights& w, int layer, StepPlan& plan, const Tensor& x, const Tensor& x_rounded, Step& step,
                 Published& published, const Tensor& y, const Observer& observe);
  void moe(const MoeWeights& w, const RowSet& rows, int topk, const uint8_t* image, const Tensor& x, const Tensor& y,
           int layer, const Observer& observe);
  void engram(int layer, StepPlan& plan, Residual& residual, const Tensor& rows, const Observer& observe);
  std::vector<Tensor> gather_engram_rows(StepPlan& plan, std::span<const uint32_t* const> lists);
  bool has_images(const StepPlan& plan) const;
  const uint8_t* image_rows(StepPlan& plan, const RowSet& rows);
  void tap(StepPlan& plan, const Residual& residual, int column, const Tensor& main_hidden);
  void condition_drafts(StepPlan& plan, const Tensor& main_hidden, Step& step, const Observer& observe);
  Rope rope(int ratio) const;

  const V41Config config_;
  Context& context_;
  const Operators& op_;
  ModelWeights weights_;
  std::vector<float> rope_main_host_, rope_compressed_host_;
  const float* rope_main_ = nullptr;
  const float* rope_compressed_ = nullptr;
  std::unique_ptr<EngramHash> engram_hash_;
  DecodeBuckets buckets_;
  bool recording_ = true;
  std::unique_ptr<RecordedSteps> recorded_;
};

}  // namespace hadal::deepseek_v41
