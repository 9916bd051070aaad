#include "ops/testing/runner.h"

#include "base/error.h"
#include "ops/testing/host_context.h"

namespace hadal::testing {
namespace {

// Outputs of a run, and what it damaged.
std::string run(const OperatorCase& test, const Operators& operators, Context& context, Outputs& outputs) {
  Backend backend(operators, context);
  const Prepared prepared = test.prepare(backend);
  prepared.run();
  prepared.collect(outputs);
  std::string damage = backend.damage();
  context.reset_step();
  return damage;
}

}  // namespace

Device reference_device() {
  return {.operators = &reference_operators(),
          .context = [](Numerics numerics) { return std::make_unique<HostContext>(numerics); }};
}

CaseResult run_case(const OperatorCase& test, const Operators& operators, Context& context) {
  CaseResult result{test.name(), context.numerics(), false, 0, {}};
  try {
    Outputs expected, actual;
    HostContext host(context.numerics());
    if (const std::string damage = run(test, reference_operators(), host, expected); !damage.empty())
      fail(ErrorKind::internal, "the reference {}", damage);

    Report report;
    if (const std::string damage = run(test, operators, context, actual); !damage.empty()) report.fail(damage);
    test.compare(context.numerics(), expected, actual, report);
    result.passed = report.passed();
    result.worst = report.worst();
    result.message = report.message();
  } catch (const std::exception& error) {
    context.reset_step();
    result.message = error.what();
  }
  return result;
}

std::vector<CaseResult> run_cases(const Cases& cases, const Device& device) {
  std::vector<CaseResult> results;
  for (const Numerics numerics : device.modes) {
    const std::unique_ptr<Context> context = device.context(numerics);
    for (const auto& test : cases) results.push_back(run_case(*test, *device.operators, *context));
  }
  return results;
}

}  // namespace hadal::testing
