// Golden checkpoints and their expected values (tests/goldens/*/README.md), and a model over them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "checkpoint/safetensors.h"
#include "engine/backend.h"
#include "engine/single_request.h"
#include "synthetic_model.h"
#ifdef HADAL_HAVE_CUDA
#include "ops/cuda/device.h"
#endif

namespace hadal {

// Values of a golden file as fp32.
class GoldenFile {
 public:
  explicit GoldenFile(const std::filesystem::path& path) : file_(path) {}

  const TensorView& view(const std::string& name) const {
    const TensorView* t = file_.find(name);
    if (t == nullptr) fail(ErrorKind::invalid_data, "{} is not in {}", name, file_.path().string());
    return *t;
  }
  bool has(const std::string& name) const { return file_.find(name) != nullptr; }

  std::vector<float> f32(const std::string& name) const {
    const TensorView& t = view(name);
    std::vector<float> values;
    if (t.type == TensorType::f32) {
      values.resize(t.bytes / 4);
      std::memcpy(values.data(), t.data, t.bytes);
    } else if (t.type == TensorType::bf16) {
      values.resize(t.bytes / 2);
      for (size_t i = 0; i < values.size(); ++i) {
        uint16_t b = 0;
        std::memcpy(&b, t.data + 2 * i, 2);
        values[i] = from_bf16(b);
      }
    } else {
      fail(ErrorKind::invalid_data, "{} is {}", name, type_name(t.type));
    }
    return values;
  }

  std::vector<int32_t> i32(const std::string& name) const {
    const TensorView& t = view(name);
    std::vector<int32_t> values(t.bytes / 4);
    std::memcpy(values.data(), t.data, t.bytes);
    return values;
  }

  std::vector<uint8_t> u8(const std::string& name) const {
    const TensorView& t = view(name);
    const auto* p = reinterpret_cast<const uint8_t*>(t.data);
    return {p, p + t.bytes};
  }

 private:
  SafetensorsFile file_;
};

// Why a backend cannot run here; empty when it can.
inline std::string unavailable_reason(Backend backend) {
  if (!on_gpu(backend)) return {};
#ifdef HADAL_HAVE_CUDA
  return cuda::unavailable_reason();
#else
  return "built without CUDA";
#endif
}

// As part of a test's name.
inline std::string name_of(Backend backend) {
  std::string name(to_string(backend));
  std::replace(name.begin(), name.end(), ':', '_');
  return name;
}

// Where the tests find their files: where they were built or, carried to another machine, the current folder.
inline std::filesystem::path source_directory() {
  const std::filesystem::path built = HADAL_SOURCE_DIR;
  return std::filesystem::exists(built / "tests" / "goldens") ? built : std::filesystem::current_path();
}

inline std::filesystem::path golden_directory(const std::string& set) {
  return source_directory() / "tests" / "goldens" / set;
}

// The embedded model ("hadal-tiny"), a random one of released shapes ("synthetic"), or a golden checkpoint.
inline std::filesystem::path model_directory(const std::string& name) {
  if (name == "hadal-tiny") return source_directory() / "models" / name;
  if (name != "synthetic") return golden_directory(name);
  static const SyntheticModel synthetic(golden_directory("v41-c") / "config.json");
  return synthetic.directory();
}

// 300 ids: those of a golden checkpoint, which are small enough for every vocabulary.
inline std::vector<int32_t> golden_ids(const std::string& name) {
  return GoldenFile(golden_directory(name == "v41-a" ? name : "v41-c") / "logits.safetensors").i32("n300.ids");
}

// One of them on one backend.
struct GoldenModel {
  using MakeContext = std::function<std::unique_ptr<Context>(const Checkpoint&)>;

  // `operators` must outlive it.
  GoldenModel(const std::string& set, const MakeContext& make, const Operators& operators)
      : directory(model_directory(set)),
        checkpoint(Checkpoint::open(directory)),
        context(make(checkpoint)),
        model(checkpoint, *context, operators) {}
  GoldenModel(const std::string& set, Backend backend, Numerics numerics, int threads = 2)
      : GoldenModel(
            set, [&](const Checkpoint&) { return make_context(backend, numerics, threads); }, operators_of(backend)) {}

  std::vector<float> logits(std::span<const int32_t> ids, int chunk, LogitsWanted wanted = LogitsWanted::all,
                            PrefillMode mode = PrefillMode::full) {
    SingleRequest request(model, static_cast<int64_t>(ids.size()));
    SingleRequest::PromptOptions options;
    options.mode = mode;
    options.chunk = chunk;
    options.logits = wanted;
    return request.prefill(ids, options);
  }

  std::filesystem::path directory;
  Checkpoint checkpoint;
  std::unique_ptr<Context> context;
  deepseek_v41::Model model;
};

inline float largest(const std::vector<float>& v) {
  float m = 0;
  for (const float x : v) m = std::max(m, std::fabs(x));
  return m;
}

// KL(p || q) of two rows of logits.
inline double kl_divergence(const float* p, const float* q, size_t n) {
  const auto log_sum = [n](const float* x) {
    double top = x[0], sum = 0;
    for (size_t i = 0; i < n; ++i) top = std::max(top, static_cast<double>(x[i]));
    for (size_t i = 0; i < n; ++i) sum += std::exp(static_cast<double>(x[i]) - top);
    return top + std::log(sum);
  };
  const double lp = log_sum(p), lq = log_sum(q);
  double kl = 0;
  for (size_t i = 0; i < n; ++i) {
    const double a = static_cast<double>(p[i]) - lp, b = static_cast<double>(q[i]) - lq;
    kl += std::exp(a) * (a - b);
  }
  return kl;
}

}  // namespace hadal
