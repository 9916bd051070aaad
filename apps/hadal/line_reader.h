// Lines from the user: edited, with a history, on a terminal; plain from a file or a pipe.
#pragma once

#include <memory>
#include <string>

namespace hadal {

class LineReader {
 public:
  enum class Result { line, end, interrupted };

  // Installs a handler for SIGINT. `history_file` may be empty: the history then ends with the program.
  explicit LineReader(const std::string& history_file);
  ~LineReader();

  // Shows the prompt on a terminal only. The line comes without its end.
  Result read(const std::string& prompt, std::string& line);
  bool terminal() const { return terminal_ != nullptr; }

  // Whether SIGINT came since the last call of clear_interrupt.
  static bool interrupted();
  static void clear_interrupt();

 private:
  struct Terminal;
  Result read_plain(std::string& line);

  std::unique_ptr<Terminal> terminal_;
  std::string buffer_;  // of a pipe: read but not yet asked for
  bool ended_ = false;
};

}  // namespace hadal
