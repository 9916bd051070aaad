#include "ops/context.h"

#include <chrono>

#include "base/error.h"

namespace hadal {
namespace {

// For backends whose operators are done when they return.
class ClockMarks final : public TimeMarks {
 public:
  void mark() override { marks_.push_back(std::chrono::steady_clock::now()); }
  std::vector<double> seconds() override {
    std::vector<double> spans;
    for (size_t i = 1; i < marks_.size(); ++i)
      spans.push_back(std::chrono::duration<double>(marks_[i] - marks_[i - 1]).count());
    marks_.clear();
    return spans;
  }

 private:
  std::vector<std::chrono::steady_clock::time_point> marks_;
};

}  // namespace

std::unique_ptr<TimeMarks> Context::time_marks() { return std::make_unique<ClockMarks>(); }

std::unique_ptr<Recording> Context::record(const std::function<void()>&, std::unique_ptr<Recording>) {
  fail(ErrorKind::internal, "{} records nothing", device_name());
}
void Context::replay(Recording&) { fail(ErrorKind::internal, "{} records nothing", device_name()); }

std::string_view to_string(Numerics numerics) {
  switch (numerics) {
    case Numerics::bf16: return "bf16";
    case Numerics::fp32: return "fp32";
    case Numerics::official: return "official";
    case Numerics::fp8: return "fp8";
  }
  return "?";
}

size_t size_of(DType type) {
  switch (type) {
    case DType::f32:
    case DType::i32: return 4;
    case DType::bf16: return 2;
    case DType::u8: return 1;
  }
  fail(ErrorKind::internal, "unknown element type {}", static_cast<int>(type));
}

}  // namespace hadal
