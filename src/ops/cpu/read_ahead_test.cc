#include "ops/cpu/read_ahead.h"

#include <gtest/gtest.h>

#include <vector>

namespace hadal::cpu {
namespace {

const std::vector<std::byte> memory(8192);

Bytes part(size_t begin, size_t end) { return Bytes(memory).subspan(begin, end - begin); }
void expect_bytes(Bytes got, size_t begin, size_t end) {
  EXPECT_EQ(got.data() - memory.data(), static_cast<std::ptrdiff_t>(begin));
  EXPECT_EQ(got.size(), end - begin);
}

TEST(ReadAhead, WhatFollowedLastTimeIsExpected) {
  ReadAhead ahead(1);
  const std::vector<Bytes> a = {part(0, 100)}, b = {part(1000, 1300)}, c = {part(2000, 2064)};
  ahead.reading(a);
  EXPECT_TRUE(ahead.take(0, 10).empty());  // nothing is known yet
  ahead.reading(b);
  ahead.reading(a);
  expect_bytes(ahead.take(0, 4096), 1000, 1300);
  EXPECT_TRUE(ahead.take(0, 4096).empty());
  ahead.reading(c);  // not what was expected
  ahead.reading(a);
  expect_bytes(ahead.take(0, 4096), 2000, 2064);
}

TEST(ReadAhead, WorkersTakePartsInTurn) {
  ReadAhead ahead(2);
  const std::vector<Bytes> parts = {part(0, 100), part(100, 200), part(200, 300), part(300, 400), part(400, 450)};
  ahead.expect(parts);
  expect_bytes(ahead.take(1, 60), 100, 160);
  expect_bytes(ahead.take(0, 200), 0, 100);
  EXPECT_TRUE(ahead.take(1, 0).empty());
  expect_bytes(ahead.take(1, 60), 160, 200);
  expect_bytes(ahead.take(1, 60), 300, 360);
  expect_bytes(ahead.take(0, 200), 200, 300);
  expect_bytes(ahead.take(0, 200), 400, 450);
  EXPECT_TRUE(ahead.take(0, 200).empty());
  ahead.expect(std::vector<Bytes>{part(500, 600), part(600, 700)});  // all start anew
  expect_bytes(ahead.take(1, 60), 600, 660);
  expect_bytes(ahead.take(0, 60), 500, 560);
}

TEST(ReadAhead, AskingEnds) {
  const std::vector<std::byte> large(size_t{8} << 20);
  ReadAhead ahead(1);
  EXPECT_FALSE(ahead.ask(0));
  ahead.expect(std::vector<Bytes>{part(0, 1000)});
  EXPECT_TRUE(ahead.ask(0));
  EXPECT_TRUE(ahead.ask(0));
  EXPECT_FALSE(ahead.ask(0));
  ahead.expect(std::vector<Bytes>{Bytes(large)});
  int times = 0;
  while (ahead.ask(0) && times < 1 << 20) ++times;
  const Bytes next = ahead.take(0, 1);
  ASSERT_EQ(next.size(), 1U);
  const auto asked = next.data() - large.data();
  EXPECT_GE(asked, 64 << 10);
  EXPECT_LE(asked, 1 << 20);  // no more than a cache holds
}

TEST(ReadAhead, NoMorePartsThanItHasRoomFor) {
  ReadAhead ahead(1);
  const std::vector<Bytes> parts(ReadAhead::kMostParts + 10, part(0, 64));
  ahead.expect(parts);
  int count = 0;
  while (!ahead.take(0, 64).empty()) ++count;
  EXPECT_EQ(count, ReadAhead::kMostParts);
}

}  // namespace
}  // namespace hadal::cpu
