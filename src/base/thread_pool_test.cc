#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "base/cpu_features.h"
#include "base/error.h"

namespace hadal {
namespace {

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (const int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (const int tasks : {0, 1, 2, 3, 7, 100}) {
      std::vector<int> ran(static_cast<size_t>(tasks), 0);
      pool.parallel_for(tasks, [&](int task, int worker) {
        EXPECT_GE(worker, 0);
        EXPECT_LT(worker, threads);
        ++ran[static_cast<size_t>(task)];
      });
      EXPECT_EQ(std::accumulate(ran.begin(), ran.end(), 0), tasks);
      for (const int n : ran) EXPECT_EQ(n, 1);
    }
  }
}

// Loops follow each other without a pause: a worker that wakes late must not touch the next loop's tasks twice.
TEST(ThreadPool, ManyShortLoops) {
  ThreadPool pool(4);
  int64_t sum = 0;
  for (int round = 0; round < 5000; ++round) {
    std::array<int, 5> value{};
    pool.parallel_for(5, [&](int task) { value[static_cast<size_t>(task)] = round + task; });
    for (int i = 0; i < 5; ++i) sum += value[static_cast<size_t>(i)] - round - i;
  }
  EXPECT_EQ(sum, 0);
}

TEST(ThreadPool, RethrowsAndStaysUsable) {
  ThreadPool pool(3);
  for (int round = 0; round < 20; ++round) {
    EXPECT_THROW(pool.parallel_for(10,
                                   [](int task) {
                                     if (task == 4) throw std::runtime_error("four");
                                   }),
                 std::runtime_error);
    std::atomic<int> n = 0;
    pool.parallel_for(10, [&](int) { ++n; });
    EXPECT_EQ(n, 10);
  }
}

TEST(ThreadPool, NestedLoopsRunOnTheSpot) {
  ThreadPool pool(2);
  std::atomic<int> n = 0;
  pool.parallel_for(4, [&](int, int outer) {
    pool.parallel_for(3, [&](int, int inner) {
      EXPECT_EQ(inner, outer);
      ++n;
    });
  });
  EXPECT_EQ(n, 12);
}

TEST(CpuFeatures, NamesRoundTrip) {
  for (const Isa isa : supported_isas()) EXPECT_EQ(parse_isa(to_string(isa)), isa);
  EXPECT_THROW(parse_isa("sse9"), Error);
  EXPECT_EQ(supported_isas().front(), Isa::scalar);
  EXPECT_GE(usable_cpus(), 1);
}

}  // namespace
}  // namespace hadal
