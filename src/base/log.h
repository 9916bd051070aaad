// Logging goes to standard error through spdlog; standard output belongs to results.
#pragma once

#include <spdlog/spdlog.h>

namespace hadal {
namespace log = spdlog;
}
