#include "checkpoint/verify.h"

#include "base/error.h"
#include "base/progress.h"
#include "checkpoint/checksum.h"
#include "checkpoint/index.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <mutex>
#include <thread>

namespace hadal {
namespace {

// Position of a byte as "row R, column C" of a tensor.
std::string position(const TensorView& tensor, size_t element) {
  const size_t columns = tensor.shape.empty() ? 1 : size_t(tensor.shape.back());
  return fmt::format("row {}, column {}", element / columns, element % columns);
}

uint8_t largest_scale(TensorType weight_type) { return weight_type == TensorType::f8_e4m3 ? 246 : 252; }

// First byte above `limit`, or `bytes` when there is none. The maximum over a block vectorises; the search runs once.
size_t find_above(const uint8_t* data, size_t bytes, uint8_t limit) {
  constexpr size_t step = 4096;
  for (size_t at = 0; at < bytes; at += step) {
    const size_t n = std::min(step, bytes - at);
    uint8_t largest = 0;
    for (size_t i = 0; i < n; ++i) largest = std::max(largest, data[at + i]);
    if (largest > limit)
      return size_t(std::find_if(data + at, data + at + n, [&](uint8_t b) { return b > limit; }) - data);
  }
  return bytes;
}

std::string scale_problem(const TensorView& scale, TensorType weight_type) {
  const auto* data = reinterpret_cast<const uint8_t*>(scale.data);
  const uint8_t limit = largest_scale(weight_type);
  const size_t at = find_above(data, scale.bytes, limit);
  if (at == scale.bytes) return {};
  return fmt::format(
      "tensor {}: {} has scale byte {}, {}", scale.name, position(scale, at), data[at],
      data[at] == 255 ? std::string("which is not a number") : fmt::format("above {}: weights would overflow", limit));
}

std::string value_problem(const TensorView& t) {
  if (t.type == TensorType::f8_e4m3) {
    const auto* data = reinterpret_cast<const uint8_t*>(t.data);
    constexpr size_t step = 4096;
    for (size_t at = 0; at < t.bytes; at += step) {
      const size_t n = std::min(step, t.bytes - at);
      uint8_t largest = 0;
      for (size_t i = 0; i < n; ++i) largest = std::max(largest, uint8_t(data[at + i] & 0x7f));
      for (size_t i = 0; largest == 0x7f && i < n; ++i)
        if ((data[at + i] & 0x7f) == 0x7f)
          return fmt::format("tensor {}: {} has E4M3 code {:#x}, which is not a number", t.name, position(t, at + i),
                             data[at + i]);
    }
  } else if (t.type == TensorType::bf16) {
    const auto* data = reinterpret_cast<const uint16_t*>(t.data);
    for (size_t i = 0; i < t.bytes / 2; ++i)
      if ((data[i] & 0x7f80) == 0x7f80)
        return fmt::format("tensor {}: {} has a BF16 value that is not finite", t.name, position(t, i));
  } else if (t.type == TensorType::f32) {
    const auto* data = reinterpret_cast<const float*>(t.data);
    for (size_t i = 0; i < t.bytes / 4; ++i)
      if (!std::isfinite(data[i]))
        return fmt::format("tensor {}: {} has an F32 value that is not finite", t.name, position(t, i));
  }
  return {};
}

}  // namespace

void check_scales(const TensorView& scale, TensorType weight_type) {
  if (const std::string problem = scale_problem(scale, weight_type); !problem.empty())
    fail(ErrorKind::invalid_data, "{}", problem);
}

VerifyReport verify_checkpoint(const Checkpoint& checkpoint, int threads, size_t max_problems) {
  const CheckpointIndex index = CheckpointIndex::load(checkpoint.directory() / index_file_name);
  const std::vector<ExpectedTensor> inventory = v41_inventory(checkpoint.config());
  VerifyReport report;
  uint64_t payload = 0, work = 0;
  for (const SafetensorsFile& shard : checkpoint.shards()) {
    payload += shard.image().size() - shard.header_bytes();
    if (index.checksums.contains(shard.path().filename().string())) work += shard.image().size();
  }
  for (const ExpectedTensor& t : inventory) work += t.bytes();
  Progress progress("verifying", work);
  std::mutex mutex;
  const auto note = [&](std::string problem) {
    if (problem.empty()) return;
    const std::lock_guard lock(mutex);
    ++report.problem_count;
    if (report.problems.size() < max_problems) report.problems.push_back(std::move(problem));
  };
  const auto advance = [&](uint64_t bytes) {
    const std::lock_guard lock(mutex);
    report.bytes_read += bytes;
    progress.advance(bytes);
  };

  report.has_total_size = index.total_size.has_value();
  if (report.has_total_size && uint64_t(*index.total_size) != payload)
    note(fmt::format("{}: metadata.total_size is {}, but the shards hold {} bytes", index_file_name, *index.total_size,
                     payload));
  for (const auto& [file, sum] : index.checksums)
    if (std::none_of(checkpoint.shards().begin(), checkpoint.shards().end(),
                     [&, &name = file](const SafetensorsFile& s) { return s.path().filename() == name; }))
      note(fmt::format("{}: metadata.checksums names {}, which holds no tensor", index_file_name, file));

  const auto check_file = [&](const SafetensorsFile& shard) {
    const auto want = index.checksums.find(shard.path().filename().string());
    if (want == index.checksums.end()) return;
    Checksum checksum;
    constexpr size_t step = 4 << 20;
    for (size_t at = 0; at < shard.image().size(); at += step) {
      const auto part = shard.image().subspan(at, std::min(step, shard.image().size() - at));
      checksum.add(part);
      advance(part.size());
    }
    if (checksum.hex() != want->second)
      note(fmt::format("{} has checksum {}, but the index says {}", shard.path().string(), checksum.hex(),
                       want->second));
    const std::lock_guard lock(mutex);
    ++report.files_with_checksum;
  };
  const auto check_tensor = [&](size_t i) {
    const ExpectedTensor& want = inventory[i];
    const TensorView& tensor = checkpoint.tensor(want.name);
    note(want.is_scale ? scale_problem(tensor, inventory[i - 1].type) : value_problem(tensor));
    advance(tensor.bytes);
    const std::lock_guard lock(mutex);
    ++report.tensors;
    if (want.is_scale) report.scale_bytes += tensor.bytes;
  };

  // Files first: a damaged file explains what its tensors show.
  const size_t files = checkpoint.shards().size(), jobs = files + inventory.size();
  std::atomic<size_t> next = 0;
  const auto run = [&] {
    for (size_t i = next++; i < jobs; i = next++) {
      if (i < files)
        check_file(checkpoint.shards()[i]);
      else
        check_tensor(i - files);
    }
  };
  {
    std::vector<std::jthread> pool;
    for (int t = 1; t < threads; ++t) pool.emplace_back(run);
    run();
  }
  progress.finish();
  return report;
}

}  // namespace hadal
