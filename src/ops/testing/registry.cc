#include "ops/attention_input/cases.h"
#include "ops/attention_output/cases.h"
#include "ops/cache_commit/cases.h"
#include "ops/compressor/cases.h"
#include "ops/draft/cases.h"
#include "ops/embedding/cases.h"
#include "ops/engram/cases.h"
#include "ops/experts/cases.h"
#include "ops/head/cases.h"
#include "ops/hyper_connection/cases.h"
#include "ops/indexer/cases.h"
#include "ops/router/cases.h"
#include "ops/sample/cases.h"
#include "ops/sparse_attention/cases.h"
#include "ops/testing/runner.h"

namespace hadal::testing {

// An operator without cases does not compile.
const std::vector<OperatorCases>& operator_cases() {
#define HADAL_ENTRY(op, Args) {#op, op##_cases},
  static const std::vector<OperatorCases> list = {HADAL_OPERATORS(HADAL_ENTRY)};
#undef HADAL_ENTRY
  return list;
}

}  // namespace hadal::testing
