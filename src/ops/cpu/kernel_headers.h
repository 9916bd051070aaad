// What the kernels include. It comes before an instruction set is switched on, so that inline functions of these
// headers are compiled for any machine: the linker keeps one copy of each, and it may be this file's.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/dtype.h"
#include "base/row_format.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/tables.h"
