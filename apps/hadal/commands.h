// The subcommands: each file adds its own to the command line. A callback throws hadal::Error on failure.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

namespace hadal {

// The user pressed Ctrl-C, and the command has ended in good order: exit status 130, as a shell has it.
struct Interrupted {
  std::string message;
};

void add_bench(CLI::App& app);
void add_chat(CLI::App& app);
void add_inspect(CLI::App& app);
void add_selftest(CLI::App& app);
void add_logits(CLI::App& app);
void add_perplexity(CLI::App& app);
void add_run(CLI::App& app);
void add_serve(CLI::App& app);
void add_synth(CLI::App& app);
void add_tokenize(CLI::App& app);
void add_tune(CLI::App& app);
void add_verify(CLI::App& app);

}  // namespace hadal
