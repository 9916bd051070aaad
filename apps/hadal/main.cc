// The command line: maps failures to exit statuses and prints them as one line on standard error.
#include "base/error.h"
#include "base/log.h"
#include "commands.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <new>

namespace hadal {
namespace {

// 1 is left to internal errors, 2 to the command line, so that scripts can tell a bad model from a bad flag.
int exit_status(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::internal: return 1;
    case ErrorKind::invalid_argument: return 2;
    case ErrorKind::invalid_data: return 3;
    case ErrorKind::io: return 4;
    case ErrorKind::out_of_memory: return 5;
    case ErrorKind::unsupported: return 6;
    case ErrorKind::busy: return 7;
  }
  return 1;
}

int report(int status, const char* message) {
  std::fprintf(stderr, "hadal: error: %s\n", message);
  return status;
}

// Touching a mapped page that the file no longer has, or that the disk cannot read, raises SIGBUS in whatever
// code reads weights. Only async-signal-safe calls are allowed here.
void on_bus_error(int) {
  constexpr char message[] =
      "hadal: error: a mapped file became unreadable: it was truncated or replaced while in use, or the disk "
      "failed\n";
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, message, sizeof message - 1);
  ::_exit(exit_status(ErrorKind::io));
}

int run(int argc, char** argv) {
  spdlog::set_default_logger(spdlog::stderr_color_mt("hadal"));
  spdlog::set_pattern("hadal: %l: %v");
  struct sigaction action = {};
  action.sa_handler = on_bus_error;
  ::sigaction(SIGBUS, &action, nullptr);

  CLI::App app("Hadal runs DeepSeek models from their published checkpoints.", "hadal");
  app.set_version_flag("--version", "hadal " HADAL_VERSION);
  app.require_subcommand(1);
  add_run(app);
  add_chat(app);
  add_serve(app);
  add_perplexity(app);
  add_logits(app);
  add_inspect(app);
  add_bench(app);
  add_selftest(app);
  add_verify(app);
  add_synth(app);
  add_tokenize(app);
  add_tune(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) { std::fputs(app.help().c_str(), stdout); } catch (const CLI::CallForAllHelp&) {
    std::fputs(app.help("", CLI::AppFormatMode::All).c_str(), stdout);
  } catch (const CLI::CallForVersion& version) {
    std::printf("%s\n", version.what());
  } catch (const CLI::ParseError& error) {
    // The parser only misses a command; a misspelt one deserves to be named.
    std::string message = error.what();
    if (argc > 1 && argv[1][0] != '-' && app.get_subcommands().empty())
      message = fmt::format("there is no command \"{}\"; hadal --help lists them", argv[1]);
    else if (const auto commands = app.get_subcommands(); !commands.empty() &&
                                                          commands.front()->get_require_subcommand_min() > 0 &&
                                                          commands.front()->get_subcommands().empty())
      message = argc > 2 && argv[2][0] != '-'
                    ? fmt::format("there is no command \"{0} {1}\"; hadal {0} --help lists them", argv[1], argv[2])
                    : fmt::format("\"{0}\" needs a command of its own; hadal {0} --help lists them", argv[1]);
    return report(exit_status(ErrorKind::invalid_argument), message.c_str());
  }
  // A full disk or a closed pipe behind standard output must not look like success.
  if (std::fflush(stdout) != 0 || std::ferror(stdout))
    return report(exit_status(ErrorKind::io), "cannot write standard output");
  return 0;
}

}  // namespace
}  // namespace hadal

int main(int argc, char** argv) {
  try {
    return hadal::run(argc, argv);
  } catch (const hadal::Error& error) {
    return hadal::report(hadal::exit_status(error.kind()), error.what());
  } catch (const hadal::Interrupted& interrupted) {
    std::fprintf(stderr, "hadal: %s\n", interrupted.message.c_str());
    return 130;
  } catch (const std::bad_alloc&) {
    return hadal::report(hadal::exit_status(hadal::ErrorKind::out_of_memory), "out of memory");
  } catch (const std::exception& error) { return hadal::report(1, error.what()); }
}
