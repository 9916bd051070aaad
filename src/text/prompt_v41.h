// The prompt format of DeepSeek-V4.1.
#pragma once

#include <string_view>
#include <vector>

#include "text/chat.h"
#include "text/tokenizer.h"

namespace hadal::text {

// Spellings of the control tokens that the format uses; ids come from the checkpoint's tokenizer.
namespace v41 {
inline constexpr std::string_view bos = "<｜begin▁of▁sentence｜>";
inline constexpr std::string_view eos = "<｜end▁of▁sentence｜>";
inline constexpr std::string_view system = "<｜System｜>";
inline constexpr std::string_view user = "<｜User｜>";
inline constexpr std::string_view assistant = "<｜Assistant｜>";
inline constexpr std::string_view latest_reminder = "<｜latest_reminder｜>";
inline constexpr std::string_view think_open = "<think>";
inline constexpr std::string_view think_close = "</think>";
inline constexpr std::string_view dsml = "｜DSML｜";
}  // namespace v41

// Renders a conversation. What users, tools and earlier answers say is text and stays text.
//
// Follows the published encoding (string-level, Python) and the official converter. Where these two differ, the
// choice is:
// - An assistant turn brings its own opening (`<｜Assistant｜>` and a think token), as in the converter. The published
//   encoding hangs the opening on the turn before; both give the same string for alternating turns.
// - With generate = true every conversation ends in an open assistant turn, and without tools the reasoning of all
//   finished turns is left out, as in the converter; the published encoding keeps it after the last user turn.
// - Tool-call arguments are parsed up to twice (a JSON string that holds JSON), as in the published encoding.
// - Numbers inside arguments and schemas print as Python prints them, integers of any size included.
// - Tools without a system message go into an empty system message at the front.
// - Two reminders in a row are both rendered; the converter drops the second.
// - Tools on any message keep all reasoning, as in the published encoding; in the converter only tools of the
//   whole conversation do.
// - A later system message with tools announces them under "### Updated Tool Schemas" (converter only).
//
// Throws Error(invalid_argument) for an effort outside 1..100, an unknown task, and prefix or task where they
// make no sense.
Prompt encode_prompt_v41(const std::vector<ChatMessage>& messages, const PromptOptions& options);

}  // namespace hadal::text
