// For the tests of this folder: temporary folders, and shards as lists of tensors that can be edited and written back.
#pragma once

#include "base/error.h"
#include "checkpoint/json.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/synth_checkpoint.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

namespace hadal::test {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "hadal-test-XXXXXX").string();
    if (!mkdtemp(name.data())) fail(ErrorKind::io, "mkdtemp failed");
    path_ = name;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::filesystem::path source_path(const char* relative) {
  return std::filesystem::path(HADAL_SOURCE_DIR) / relative;
}

inline void write_file(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary).write(text.data(), std::streamsize(text.size()));
}

struct RawTensor {
  std::string name, type;
  std::vector<int64_t> shape;
  std::string bytes;
};

inline std::string header_length(uint64_t length) {
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, 8);
  return text;
}

// A safetensors image of a header text and data; the length field tells the truth.
inline std::string image(const std::string& header, const std::string& data) {
  return header_length(header.size()) + header + data;
}

inline std::string image(const std::vector<RawTensor>& tensors) {
  std::string header = "{", data;
  for (const RawTensor& t : tensors) {
    header +=
        fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", header.size() > 1 ? "," : "",
                    t.name, t.type, fmt::join(t.shape, ","), data.size(), data.size() + t.bytes.size());
    data += t.bytes;
  }
  return image(header + "}", data);
}

// Reads a shard, lets `edit` change its tensors, and writes it back.
inline void edit_shard(const std::filesystem::path& path, const std::function<void(std::vector<RawTensor>&)>& edit) {
  std::vector<RawTensor> tensors;
  {
    const SafetensorsFile file(path);
    for (const TensorView& t : file.tensors())
      tensors.push_back({std::string(t.name), std::string(type_name(t.type)), t.shape,
                         std::string(reinterpret_cast<const char*>(t.data), t.bytes)});
  }
  edit(tensors);
  write_file(path, image(tensors));
}

inline RawTensor& named(std::vector<RawTensor>& tensors, std::string_view name) {
  for (RawTensor& t : tensors)
    if (t.name == name) return t;
  fail(ErrorKind::internal, "no tensor {}", name);
}

// Replaces the one occurrence of `from` in a text file.
inline void edit_text(const std::filesystem::path& path, std::string_view from, std::string_view to) {
  std::string text = read_text_file(path);
  const size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  write_file(path, text.replace(at, from.size(), to));
}

// The message of the Error that `action` throws; a test failure when it throws none.
inline std::string error_of(const std::function<void()>& action, ErrorKind kind = ErrorKind::invalid_data) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(int(error.kind()), int(kind)) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return {};
}

inline void expect_contains(const std::string& text, std::string_view part) {
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << text << "\" does not contain \"" << part << "\"";
}

// A small checkpoint of one shard in `directory`.
inline void make_checkpoint(const std::filesystem::path& directory, int threads = 1, uint64_t seed = 1,
                            size_t max_shard_bytes = 5'000'000'000) {
  const std::string text = read_text_file(source_path("tests/goldens/v41-c/config.json"));
  SynthOptions options;
  options.threads = threads;
  options.seed = seed;
  options.max_shard_bytes = max_shard_bytes;
  write_synthetic_checkpoint(V41Config::parse(text), text, directory, options);
}

}  // namespace hadal::test
