// hadal inspect: what a checkpoint or a configuration holds.
#include "checkpoint/checkpoint.h"
#include "commands.h"

namespace hadal {
void add_inspect(CLI::App& app) { app.add_subcommand("inspect", "Show what a checkpoint holds"); }
}  // namespace hadal
