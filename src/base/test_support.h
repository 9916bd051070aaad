// What tests of several folders share.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace hadal {

// Expects an Error of this kind whose message contains `part`.
template <typename Function>
void expect_error(ErrorKind kind, const std::string& part, const Function& function) {
  try {
    function();
    ADD_FAILURE() << "no error; expected: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

}  // namespace hadal
