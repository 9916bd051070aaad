#include "line_reader.h"

#include <histedit.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cwchar>

#include "base/log.h"
#include "text/unicode.h"

namespace hadal {
namespace {

volatile std::sig_atomic_t interrupt = 0;

// One byte of standard input; 0 at the end, -1 after SIGINT or an error.
int read_byte(char& byte) {
  for (;;) {
    if (interrupt != 0) return -1;
    const ssize_t n = ::read(STDIN_FILENO, &byte, 1);
    if (n >= 0) return static_cast<int>(n);
    if (errno != EINTR) return -1;
  }
}

// libedit's own reader tries again after the first interrupted read, which would make the first Ctrl-C a silent one.
int read_character(EditLine*, wchar_t* out) {
  std::string bytes;
  for (char byte; bytes.size() < 4;) {
    if (const int n = read_byte(byte); n != 1) return n;
    bytes += byte;
    const text::Utf8Unit unit = text::next_utf8_unit(bytes);
    if (unit.kind == text::Utf8Unit::incomplete) continue;
    const char* p = bytes.data();
    *out = unit.kind == text::Utf8Unit::character ? static_cast<wchar_t>(text::decode_valid(p)) : L'\uFFFD';
    return 1;
  }
  return -1;
}

}  // namespace

struct LineReader::Terminal {
  EditLine* edit = nullptr;
  History* history = nullptr;
  HistEvent event{};
  std::string prompt, history_file;

  static char* show_prompt(EditLine* edit) {
    void* self = nullptr;
    el_get(edit, EL_CLIENTDATA, &self);
    return static_cast<Terminal*>(self)->prompt.data();
  }

  explicit Terminal(const std::string& file) : history_file(file) {
    // How text is shown must not depend on what the environment calls its locale.
    std::setlocale(LC_CTYPE, "C.UTF-8");  // NOLINT(concurrency-mt-unsafe): before the engine and its threads
    edit = el_init("hadal", stdin, ::isatty(STDOUT_FILENO) != 0 ? stdout : stderr, stderr);
    history = history_init();
    if (edit == nullptr || history == nullptr) return;
    ::history(history, &event, H_SETSIZE, 1000);
    ::history(history, &event, H_SETUNIQUE, 1);
    if (!file.empty()) ::history(history, &event, H_LOAD, file.c_str());
    el_set(edit, EL_CLIENTDATA, this);
    el_set(edit, EL_PROMPT, &Terminal::show_prompt);
    el_set(edit, EL_EDITOR, "emacs");
    el_set(edit, EL_SIGNAL, 0);
    el_set(edit, EL_HIST, ::history, history);
    el_set(edit, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    el_wset(edit, EL_GETCFN, &read_character);
  }

  ~Terminal() {
    if (history != nullptr && !history_file.empty() && ::history(history, &event, H_SAVE, history_file.c_str()) < 0)
      log::warn("cannot write the history to {}", history_file);
    if (history != nullptr) history_end(history);
    if (edit != nullptr) el_end(edit);
  }
};

LineReader::LineReader(const std::string& history_file) {
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupt = 1; };
  ::sigaction(SIGINT, &action, nullptr);  // no SA_RESTART: waiting for a line must end
  if (::isatty(STDIN_FILENO) == 0) return;
  terminal_ = std::make_unique<Terminal>(history_file);
  if (terminal_->edit == nullptr || terminal_->history == nullptr) terminal_.reset();
}

LineReader::~LineReader() = default;

bool LineReader::interrupted() { return interrupt != 0; }
void LineReader::clear_interrupt() { interrupt = 0; }

LineReader::Result LineReader::read(const std::string& prompt, std::string& line) {
  clear_interrupt();
  line.clear();
  if (!terminal_) return read_plain(line);
  terminal_->prompt = prompt;
  int length = 0;
  const char* text = el_gets(terminal_->edit, &length);
  if (text == nullptr || length <= 0) {
    if (!interrupted()) return Result::end;
    std::fputs("^C\n", stderr);
    return Result::interrupted;
  }
  line.assign(text, static_cast<size_t>(length));
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
  if (line.find_first_not_of(" \t") != std::string::npos)
    ::history(terminal_->history, &terminal_->event, H_ENTER, line.c_str());
  return Result::line;
}

LineReader::Result LineReader::read_plain(std::string& line) {
  for (;;) {
    const size_t end = buffer_.find('\n');
    if (end != std::string::npos || (ended_ && !buffer_.empty())) {
      line = buffer_.substr(0, end);
      buffer_.erase(0, end == std::string::npos ? end : end + 1);
      if (!line.empty() && line.back() == '\r') line.pop_back();
      return Result::line;
    }
    if (ended_) return Result::end;
    char piece[4096];
    const ssize_t n = ::read(STDIN_FILENO, piece, sizeof piece);
    if (n > 0) buffer_.append(piece, static_cast<size_t>(n));
    if (n < 0 && interrupted()) return Result::interrupted;
    if (n == 0 || (n < 0 && errno != EINTR)) ended_ = true;
  }
}

}  // namespace hadal
