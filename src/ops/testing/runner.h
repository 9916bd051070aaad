// Runs cases on a backend and holds them against the reference.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ops/testing/backend.h"
#include "ops/testing/compare.h"

namespace hadal::testing {

// The case lists of all operators, in the order of HADAL_OPERATORS.
struct OperatorCases {
  const char* op;
  Cases (*make)(uint64_t seed);
};
const std::vector<OperatorCases>& operator_cases();

// A backend with a way to make its contexts.
struct Device {
  const Operators* operators = nullptr;
  std::function<std::unique_ptr<Context>(Numerics)> context;
  std::vector<Numerics> modes = {Numerics::fp32, Numerics::bf16, Numerics::official, Numerics::fp8};
};
Device reference_device();

struct CaseResult {
  std::string name;
  Numerics numerics = Numerics::bf16;
  bool passed = false;
  double worst = 0;  // largest error / tolerance
  std::string message;
};

// Runs one case on the context and on the reference. An exception is a failure.
CaseResult run_case(const OperatorCase& test, const Operators& operators, Context& context);

// Every case in every numeric mode of the device.
std::vector<CaseResult> run_cases(const Cases& cases, const Device& device);

}  // namespace hadal::testing
