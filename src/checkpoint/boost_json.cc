// Boost.JSON is used header-only; its one translation unit stands alone so that the linker takes a single
// copy.
#include <boost/json/src.hpp>
