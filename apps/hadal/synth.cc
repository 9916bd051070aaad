// hadal synth: random checkpoints in the published layout.
#include "commands.h"

namespace hadal {
void add_synth(CLI::App& app) { app.add_subcommand("synth", "Write a random checkpoint"); }
}  // namespace hadal
