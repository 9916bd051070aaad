// What a checkpoint is known to answer: kept in verify.json beside its weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace hadal {

struct VerifyScore {
  double log_likelihood = 0;  // of the answer, in nats
  double gap = 0;             // most that any logit is above the one of the answer's token; 0: the answer is greedy
};

struct VerifyPrompt {
  std::string name, text;  // control tokens are written out in the text
  std::vector<int32_t> ids, answer;
  std::map<std::string, VerifyScore> scores;  // by numerics
};

struct VerifyRecord {
  std::string identity;
  std::map<std::string, std::string> files;  // name -> XXH3-64 of all bytes
  std::vector<VerifyPrompt> prompts;
};

// XXH3-128 of config.json, of names, types and shapes of all tensors, and of a few bytes of each: tells checkpoints apart
// without reading them.
std::string checkpoint_identity(const Checkpoint& checkpoint);

// The hash of a whole file. Throws io.
std::string file_hash(const std::filesystem::path& file);

inline constexpr const char* kVerifyFile = "verify.json";
// Throws io, or invalid_data naming the file.
VerifyRecord read_verify_record(const std::filesystem::path& file);
void write_verify_record(const VerifyRecord& record, const std::filesystem::path& file);

}  // namespace hadal
