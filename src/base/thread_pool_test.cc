#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <fstream>
#include <map>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
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

TEST(ThreadPool, ThreadsThatWaitPassTheirTime) {
  if (usable_cpus() < 2) GTEST_SKIP() << "threads do not poll without a CPU each";
  std::array<std::atomic<int>, 2> calls{};
  {
    ThreadPool pool(2, {[](void* state, int worker) {
                          auto& counts = *static_cast<std::array<std::atomic<int>, 2>*>(state);
                          ++counts.at(static_cast<size_t>(worker));
                          return true;
                        },
                        &calls});
    // The one that is through first waits for the other.
    for (int i = 0; i < 1000 && (calls[0] == 0 || calls[1] == 0); ++i)
      pool.parallel_for(2, [](int, int worker) {
        if (worker == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      });
  }
  EXPECT_GT(calls[0] + calls[1], 0);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(ThreadPool, ThreadsThatTheSystemDoesNotStartAreSaid) {
  std::ifstream statm("/proc/self/statm");
  rlim_t pages = 0;
  statm >> pages;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  // Room for a few stacks.
  const rlimit little{pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + (rlim_t{64} << 20), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &little), 0);
  std::string message;
  try {
    const ThreadPool pool(4096);
  } catch (const Error& error) { message = error.what(); }
  ::setrlimit(RLIMIT_AS, &before);
  EXPECT_NE(message.find(" of 4096 threads ("), std::string::npos) << message;
}
#endif

TEST(CpuFeatures, NamesRoundTrip) {
  for (const Isa isa : supported_isas()) EXPECT_EQ(parse_isa(to_string(isa)), isa);
  EXPECT_THROW(parse_isa("sse9"), Error);
  EXPECT_EQ(supported_isas().front(), Isa::scalar);
  EXPECT_GE(usable_cpus(), 1);
}

TEST(CpuFeatures, TheBestInstructionSetIsNotTheLastWhereItsProductsAreSlow) {
  const std::vector<Isa> bf16 = {Isa::scalar, Isa::avx2, Isa::avx512, Isa::avx512_vnni, Isa::avx512_bf16};
  std::vector<Isa> amx = bf16;
  amx.push_back(Isa::amx);
  const Processor zen4{"AuthenticAMD", 25, 17}, emerald_rapids{"GenuineIntel", 6, 207}, skylake{"GenuineIntel", 6, 85};
  EXPECT_EQ(best_isa(bf16, zen4), Isa::avx512_bf16);
  EXPECT_EQ(best_isa(bf16, emerald_rapids), Isa::avx512_vnni);
  EXPECT_EQ(best_isa(amx, emerald_rapids), Isa::amx);
  EXPECT_EQ(best_isa(std::span(bf16).first(3), skylake), Isa::avx512);
  EXPECT_FALSE(reason_against(Isa::avx512_bf16, emerald_rapids).empty());
  EXPECT_TRUE(reason_against(Isa::avx512, emerald_rapids).empty());
}

// The kernel's own decoding of CPUID.
TEST(CpuFeatures, TheProcessorIsTheOneOfTheKernel) {
  std::ifstream info("/proc/cpuinfo");
  std::map<std::string, std::string> fields;
  for (std::string line; std::getline(info, line) && !line.empty();)
    if (const size_t colon = line.find(':'); colon != std::string::npos && colon + 2 <= line.size())
      fields[line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1)] = line.substr(colon + 2);
  if (!fields.contains("cpu family")) GTEST_SKIP() << "no /proc/cpuinfo";
  const Processor p = this_processor();
  EXPECT_EQ(p.vendor, fields["vendor_id"]);
  EXPECT_EQ(std::to_string(p.family), fields["cpu family"]);
  EXPECT_EQ(std::to_string(p.model), fields["model"]);
}

}  // namespace
}  // namespace hadal
