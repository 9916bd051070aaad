// A conversation that can be kept: what was said, and how answers are made.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "hadal/request.h"
#include "text/prompt_v41.h"

namespace hadal {

struct ChatSettings {
  SamplingOptions sampling;
  bool thinking = false;
  int effort = 75;
  int max_tokens = 1024;  // of one answer
};

// One setting under the name that the command line, /set and saved files share.
struct ChatSetting {
  const char* name;
  const char* what;
  std::string (*get)(const ChatSettings&);
  void (*set)(ChatSettings&, const std::string& value);  // throws invalid_argument
};
std::span<const ChatSetting> chat_settings();
// Changes nothing when it throws invalid_argument, which names the setting, the value and what is possible.
void change(ChatSettings& settings, const std::string& name, const std::string& value);

struct Conversation {
  std::string system;
  std::vector<text::Json> tools;  // function objects
  std::vector<text::ChatMessage> messages;
  ChatSettings settings;

  text::Prompt prompt() const;

  // Drop everything after the last message of the user (retry), or that too (undo). False when there is none.
  bool drop_answer();
  bool drop_turn();

  // Calls of the last message, or of the last one before results, that have no result yet.
  std::vector<text::ToolCall> open_calls() const;

  // JSON; messages have the form of chat completion requests. Written beside the file and renamed over it, so that a
  // full disk leaves the older file as it was. Throws io.
  void save(const std::filesystem::path& file) const;
  // Throws io, or invalid_data naming the file and the field.
  static Conversation load(const std::filesystem::path& file);
};

// The function objects of a file: an array of them, bare or as {"type": "function", "function": {...}}.
std::vector<text::Json> load_tools(const std::filesystem::path& file);

}  // namespace hadal
