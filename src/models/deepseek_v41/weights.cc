#include "models/deepseek_v41/weights.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/progress.h"
#include "checkpoint/host_memory.h"
#include "models/deepseek_v41/placement.h"

namespace hadal::deepseek_v41 {
namespace {

// Largest scale bytes whose products stay finite: 448 * 2^(b-127) and 6 * 2^(b-127) in fp32.
constexpr uint8_t kMaxFp8Scale = 246;
constexpr uint8_t kMaxFp4Scale = 252;

void check_scales(const TensorView& scale, uint8_t largest) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(scale.data);
  uint8_t top = 0;
  for (size_t i = 0; i < scale.bytes; ++i) top = std::max(top, bytes[i]);
  if (top <= largest) return;
  for (size_t i = 0; i < scale.bytes; ++i)
    if (bytes[i] > largest)
      fail(ErrorKind::invalid_data,
           "{}: scale byte {} at index {} {}, the largest allowed is {}; the file is damaged, fetch it again",
           scale.name, bytes[i], i, bytes[i] == 255 ? "is NaN" : "overflows", largest);
}

// Where the Engram tables go. Fails before hours of loading rather than in the middle.
bool tables_on_host(const Checkpoint& checkpoint, Context& context, const Operators& operators) {
  if (operators.weight_room == nullptr) return false;
  size_t tables = 0, experts = 0, rest = 0;
  for (const ExpectedTensor& t : v41_inventory(checkpoint.config())) {
    const bool expert = t.part == V41Part::routed_expert || t.part == V41Part::draft_expert;
    (t.part == V41Part::engram_table ? tables : expert ? experts : rest) += t.bytes();
  }
  const size_t room = operators.weight_room(context);
  const auto gib = [](size_t bytes) { return static_cast<double>(bytes) / (1 << 30); };
  const std::optional<TablePlace> place =
      place_tables(static_cast<int64_t>(experts + rest), static_cast<int64_t>(tables), static_cast<int64_t>(room),
                   context.table_place());
  if (!place)
    fail(ErrorKind::out_of_memory,
         "{}: the weights have {:.1f} GiB (Engram tables {:.1f}, experts {:.1f}, the rest {:.1f}), the device has room "
         "for {:.1f} GiB{}, and the {} backend reads no experts from host memory yet; --device cpu reads the files in "
         "place",
         checkpoint.directory().string(), gib(tables + experts + rest), gib(tables), gib(experts), gib(rest), gib(room),
         experts + rest <= room ? " (enough with --engram-device host)" : "", operators.backend);
  if (*place == TablePlace::device) return false;
  const auto host = static_cast<size_t>(std::max<int64_t>(0, read_host_memory().usable()));
  if (tables > host)
    fail(ErrorKind::out_of_memory,
         "{}: the Engram tables have {:.1f} GiB and go to host memory, which has {:.1f} GiB to give; the device has "
         "room for {:.1f} GiB, the other weights take {:.1f}",
         checkpoint.directory().string(), gib(tables), gib(host), gib(room), gib(experts + rest));
  return true;
}

class Binder {
 public:
  // `progress`, if any, is told of every tensor that is taken.
  Binder(const Checkpoint& checkpoint, Context& context, const Operators& operators, Progress* progress)
      : checkpoint_(checkpoint), context_(context), operators_(operators), progress_(progress) {}

  // X.weight with X.scale when its dtype has one.
  Weight matrix(const std::string& name) const {
    Weight weight = published(name, true);
    if (operators_.load_weight != nullptr) operators_.load_weight(context_, weight);
    taken(name + ".weight");
    taken(name + ".scale");
    return weight;
  }

  // As it lies in the checkpoint, in host memory.
  Weight published(const std::string& name, bool check) const {
    const TensorView& w = checkpoint_.tensor(name + ".weight");
    Weight weight;
    weight.n = static_cast<int>(w.shape.at(0));
    weight.k = static_cast<int>(w.shape.at(1));
    weight.data = w.data;
    switch (w.type) {
      case TensorType::bf16: weight.format = WeightFormat::bf16; return weight;
      case TensorType::f32: weight.format = WeightFormat::f32; return weight;
      case TensorType::f8_e4m3: weight.format = WeightFormat::fp8_block32; break;
      case TensorType::i8:
        weight.format = WeightFormat::mxfp4;
        weight.k *= 2;
        break;
      default: fail(ErrorKind::internal, "{}: no operator reads {}", w.name, type_name(w.type));
    }
    const TensorView& s = checkpoint_.tensor(name + ".scale");
    if (check) check_scales(s, weight.format == WeightFormat::mxfp4 ? kMaxFp4Scale : kMaxFp8Scale);
    weight.scale = reinterpret_cast<const uint8_t*>(s.data);
    return weight;
  }

  template <typename T>
  const T* vector(const std::string& name) const {
    const TensorView& t = checkpoint_.tensor(name);
    const void* placed = context_.place_weight(t.data, t.bytes);
    taken(name);
    return static_cast<const T*>(placed);
  }

  FeedForward feed_forward(const std::string& prefix) const {
    return {matrix(prefix + "w1"), matrix(prefix + "w3"), matrix(prefix + "w2")};
  }

  // The routed experts of one layer; `checked` says whether their scales were.
  std::vector<FeedForward> experts(const std::string& prefix, int count, bool& checked) const {
    // Loading reads all bytes anyway; in place, scales are read when an expert is first used.
    checked = operators_.load_experts != nullptr;
    std::vector<FeedForward> list;
    for (int e = 0; e < count; ++e) {
      const auto part = [&](const char* w) { return published(fmt::format("{}{}.{}", prefix, e, w), checked); };
      list.push_back({part("w1"), part("w3"), part("w2")});
    }
    if (operators_.load_experts != nullptr) operators_.load_experts(context_, list);
    for (int e = 0; e < count; ++e)
      for (const char* w : {"w1", "w3", "w2"})
        for (const char* kind : {"weight", "scale"}) taken(fmt::format("{}{}.{}.{}", prefix, e, w, kind));
    return list;
  }

  void taken(const std::string& name) const {
    const TensorView* t = progress_ != nullptr ? checkpoint_.find(name) : nullptr;
    if (t != nullptr) progress_->advance(t->bytes);
  }

  const Checkpoint& checkpoint() const { return checkpoint_; }

 private:
  const Checkpoint& checkpoint_;
  Context& context_;
  const Operators& operators_;
  Progress* progress_;
};

// Experts in place in the mapped file, or where the backend has loaded them.
class Experts : public ExpertStore {
 public:
  Experts(const Binder& binder, const std::string& prefix, int count)
      : checkpoint_(binder.checkpoint()), prefix_(prefix), checked_(static_cast<size_t>(count)) {
    bool checked = false;
    experts_ = binder.experts(prefix, count, checked);
    for (std::atomic<bool>& c : checked_) c.store(checked, std::memory_order_relaxed);
  }

  int count() const override { return static_cast<int>(experts_.size()); }
  bool is_local(int) const override { return true; }
  void hint(const int32_t*, int) const override {}

  const FeedForward& expert(int e) const override {
    std::atomic<bool>& checked = checked_[static_cast<size_t>(e)];
    if (!checked.load(std::memory_order_acquire)) {
      // Scales of all experts are 23 GB in the release: read when first used, not at start.
      for (const char* w : {"w1", "w3", "w2"})
        check_scales(checkpoint_.tensor(fmt::format("{}{}.{}.scale", prefix_, e, w)), kMaxFp4Scale);
      checked.store(true, std::memory_order_release);
    }
    return experts_[static_cast<size_t>(e)];
  }

 private:
  const Checkpoint& checkpoint_;
  std::string prefix_;
  std::vector<FeedForward> experts_;
  mutable std::vector<std::atomic<bool>> checked_;
};

HyperConnectionWeights bind_mix(const Binder& b, const std::string& name) {
  return {b.vector<float>(name + "_fn"), b.vector<float>(name + "_base"), b.vector<float>(name + "_scale")};
}

BlockWeights bind_block(const Binder& b, const std::string& p, int experts) {
  BlockWeights w;
  w.attn_mix = bind_mix(b, p + "hc_attn");
  w.ffn_mix = bind_mix(b, p + "hc_ffn");
  w.attn_norm = b.vector<uint16_t>(p + "attn_norm.weight");
  w.ffn_norm = b.vector<uint16_t>(p + "ffn_norm.weight");
  AttentionWeights& a = w.attention;
  a.wq_a = b.matrix(p + "attn.wq_a");
  a.q_norm = b.vector<uint16_t>(p + "attn.q_norm.weight");
  a.wq_b = b.matrix(p + "attn.wq_b");
  a.wkv = b.matrix(p + "attn.wkv");
  a.kv_norm = b.vector<uint16_t>(p + "attn.kv_norm.weight");
  a.wo_a = b.matrix(p + "attn.wo_a");
  a.wo_b = b.matrix(p + "attn.wo_b");
  a.sink = b.vector<float>(p + "attn.attn_sink");
  MoeWeights& m = w.moe;
  m.gate = b.matrix(p + "ffn.gate");
  m.bias = b.vector<float>(p + "ffn.gate.bias");
  m.bias_vl = b.vector<float>(p + "ffn.gate.bias_vl");
  m.experts = std::make_unique<Experts>(b, p + "ffn.experts.", experts);
  m.shared = b.feed_forward(p + "ffn.shared_experts.");
  return w;
}

// Fails before hours of loading rather than at the first step.
void check_output_groups(const Binder& b, const V41Config& c, Context& context, const Operators& operators) {
  if (operators.check_groups == nullptr) return;
  const auto check = [&](const std::string& block) {
    const std::string name = block + ".attn.wo_a";
    operators.check_groups(context, name, b.published(name, false), c.o_groups);
  };
  for (int l = 0; l < c.layers(); ++l) check(fmt::format("layers.{}", l));
  for (int s = 0; s < c.draft_stages(); ++s) check(fmt::format("mtp.{}", s));
}

}  // namespace

ModelWeights bind_weights(const Checkpoint& checkpoint, Context& context, const Operators& operators) {
  const bool on_host = tables_on_host(checkpoint, context, operators);
  const V41Config& c = checkpoint.config();
  std::optional<Progress> progress;  // of a backend that copies: the others have what is mapped
  if (operators.load_weight != nullptr) {
    uint64_t bytes = 0;
    for (const ExpectedTensor& t : v41_inventory(c)) bytes += t.bytes();
    progress.emplace("loading weights", bytes);
  }
  const Binder b(checkpoint, context, operators, progress ? &*progress : nullptr);
  check_output_groups(b, c, context, operators);
  ModelWeights w;
  w.embed = b.matrix("embed");
  w.head = b.matrix("head");
  w.norm = b.vector<uint16_t>("norm.weight");
  for (int l = 0; l < c.layers(); ++l)
    w.layers.push_back(bind_block(b, fmt::format("layers.{}.", l), c.n_routed_experts));

  for (const int l : c.kv_source_layer_ids) {
    const std::string p = fmt::format("layers.{}.attn.", l);
    CompressorWeights compressor;
    compressor.wkv = b.matrix(p + "compressor.wkv");
    if (c.ratio(l) > 1) compressor.wgate = b.matrix(p + "compressor.wgate");
    compressor.norm = b.vector<uint16_t>(p + "compressor.norm.weight");
    compressor.wk = b.matrix(p + "indexer.wk");
    compressor.k_norm = b.vector<uint16_t>(p + "indexer.k_norm.weight");
    w.compressors.push_back(compressor);
  }
  for (const int l : c.index_source_layer_ids) {
    const std::string p = fmt::format("layers.{}.attn.indexer.", l);
    w.indexers.push_back({b.matrix(p + "wq_b"), b.matrix(p + "weights_proj")});
  }
  for (const int l : c.engram_layer_ids) {
    const std::string p = fmt::format("layers.{}.engram.", l);
    const TensorView& codes = checkpoint.tensor(p + "embed.weight");
    EngramWeights e;
    e.table = {reinterpret_cast<const uint8_t*>(codes.data),
               reinterpret_cast<const uint8_t*>(checkpoint.tensor(p + "embed.scale").data), codes.shape.at(0),
               static_cast<int>(codes.shape.at(1)), on_host};
    if (operators.load_table != nullptr) operators.load_table(context, e.table);
    b.taken(p + "embed.weight");
    b.taken(p + "embed.scale");
    e.wkv = b.matrix(p + "wkv");
    e.q_weight = b.vector<uint16_t>(p + "q_weight");
    e.k_weight = b.vector<uint16_t>(p + "k_weight");
    w.engrams.push_back(e);
  }
  const int stages = c.draft_stages();
  for (int s = 0; s < stages; ++s)
    w.draft.stages.push_back(bind_block(b, fmt::format("mtp.{}.", s), c.dspark_n_routed_experts));
  if (stages > 0) {
    const std::string last = fmt::format("mtp.{}.", stages - 1);
    w.draft.main_proj = b.matrix("mtp.0.main_proj");
    w.draft.main_norm = b.vector<uint16_t>("mtp.0.main_norm.weight");
    w.draft.norm = b.vector<uint16_t>(last + "norm.weight");
    w.draft.markov_embed = b.matrix(last + "markov_head.embed");
    w.draft.markov_head = b.matrix(last + "markov_head.head");
    w.draft.confidence = b.matrix(last + "confidence_head.proj");
  }
  if (progress) progress->finish();
  return w;
}

}  // namespace hadal::deepseek_v41
