#include "ops/cpu/read_ahead.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace hadal::cpu {
namespace {

constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

const std::vector<uint8_t> memory(8 << 20);

Read rows(int64_t begin, int64_t end, const uint8_t* scale = nullptr) {
  return {memory.data() + begin, end - begin, scale};
}
void expect_read(const Read& got, int64_t begin, int64_t end) {
  ASSERT_NE(got.data, nullptr);
  EXPECT_EQ(got.data - memory.data(), begin);
  EXPECT_EQ(got.bytes, end - begin);
}
// Reads so much, and asks for as much.
Read more(Reader& reader, int64_t bytes) {
  reader.pass(bytes);
  return reader.more(bytes);
}
// Asks until nothing is left that is known; in all.
int64_t ask_all(Reader& reader) {
  int64_t before = 0;
  while (reader.ask(kAll)) ++before;
  return before;
}

TEST(ReadAhead, AsksForAsMuchAsIsReadInFrontOfIt) {
  ReadAhead ahead(1);
  Reader& reader = ahead.reader(0);
  ahead.reading({.parts = std::vector<Read>{rows(0, 65536), rows(100000, 110000)}});
  reader.begin(rows(0, 65536), 8192);  // and asks for 8 KB
  expect_read(more(reader, 4096), 8192, 12288);
  expect_read(more(reader, 4096), 12288, 16384);
  for (int i = 2; i < 14; ++i) EXPECT_EQ(more(reader, 4096).bytes, 4096);
  expect_read(more(reader, 4096), 100000, 104096);  // what the worker reads next
  expect_read(more(reader, 4096), 104096, 108192);
  reader.begin(rows(100000, 110000), 8192);
  EXPECT_FALSE(reader.far());
  expect_read(more(reader, 4096), 108192, 110000);  // in one piece
  EXPECT_EQ(more(reader, 4096).bytes, 0);           // nothing more is known
}

TEST(ReadAhead, WhatFollowedLastTimeIsExpected) {
  ReadAhead ahead(1);
  Reader& reader = ahead.reader(0);
  const std::vector<Read> a = {rows(0, 4096)}, b = {rows(100000, 104096)}, c = {rows(200000, 204096)};
  ahead.reading({.parts = a});
  reader.begin(a[0], 4096);
  EXPECT_EQ(more(reader, 4096).bytes, 0);  // nothing is known yet
  ahead.reading({.parts = b});
  ahead.reading({.parts = a});
  reader.begin(a[0], 4096);
  expect_read(more(reader, 4096), 100000, 104096);
  ahead.reading({.parts = c});  // not what was expected: what was asked for does not count
  reader.begin(c[0], 1024);
  expect_read(more(reader, 1024), 201024, 202048);
  ahead.reading({.parts = a});
  reader.begin(a[0], 4096);
  expect_read(more(reader, 4096), 200000, 204096);
  ahead.reading({.parts = a}, {.parts = b});  // known otherwise
  reader.begin(a[0], 4096);
  expect_read(more(reader, 4096), 100000, 104096);
}

TEST(ReadAhead, WhatWasAskedForIsNotAskedForAgain) {
  ReadAhead ahead(1);
  Reader& reader = ahead.reader(0);
  const std::vector<Read> a = {rows(0, 4096)}, b = {rows(100000, 108192), rows(200000, 208192)};
  for (int step = 0; step < 2; ++step) {
    ahead.reading({.parts = a});
    reader.begin(a[0], 4096);
    reader.pass(4096);
    ahead.reading({.parts = b});
  }
  ahead.reading({.parts = a});
  reader.begin(a[0], 4096);
  reader.pass(4096);
  for (int i = 0; i < 30; ++i) EXPECT_TRUE(reader.ask(kAll));  // 512 bytes each
  ahead.reading({.parts = b});
  reader.begin(b[0], 1024);
  EXPECT_TRUE(reader.far());
  expect_read(more(reader, 1024), 200000 + 30 * 512 - 8192, 208192);
}

TEST(ReadAhead, WorkersTakeTasksInTurn) {
  ReadAhead ahead(2);
  // Three tasks of two parts.
  const std::vector<Read> parts = {rows(0, 512),     rows(1024, 1536), rows(2048, 2560),
                                   rows(3072, 3584), rows(4096, 4608), rows(5120, 5632)};
  ahead.reading({.parts = parts, .parts_of_task = 2});
  ahead.reader(0).begin(parts[0], 512);
  expect_read(more(ahead.reader(0), 512), 1024, 1536);
  ahead.reader(0).begin(parts[1], 512);
  expect_read(more(ahead.reader(0), 512), 4096, 4608);
  ahead.reader(1).begin(parts[2], 512);
  expect_read(more(ahead.reader(1), 512), 3072, 3584);
  // Worker 0 is late, and worker 1 takes its task.
  ahead.reader(1).begin(parts[4], 512);
  expect_read(more(ahead.reader(1), 512), 5120, 5632);
}

TEST(ReadAhead, RowsThatNobodyListedAreReadAlone) {
  ReadAhead ahead(1);
  Reader& reader = ahead.reader(0);
  ahead.reading({.parts = std::vector<Read>{rows(0, 4096), rows(10000, 14096)}});
  reader.begin(rows(50000, 52048), 1024);
  expect_read(more(reader, 512), 51024, 51536);
  expect_read(more(reader, 1024), 51536, 52048);
  EXPECT_EQ(more(reader, 512).bytes, 0);
  reader.begin(rows(10000, 14096), 1024);  // listed again
  expect_read(more(reader, 512), 11024, 11536);
}

TEST(ReadAhead, OnlyStableTasksAreExpectedAgain) {
  ReadAhead ahead(1);
  Reader& reader = ahead.reader(0);
  int key = 0;
  const std::vector<Read> a = {rows(0, 4096)};
  for (const int64_t chosen : {100000, 200000}) {
    ahead.reading({.parts = a});
    reader.begin(a[0], 4096);
    reader.pass(4096);
    EXPECT_EQ(ask_all(reader), chosen == 100000 ? 0 : 8);  // the first task, once it is known
    const std::vector<Read> b = {rows(50000, 54096), rows(chosen, chosen + 4096)};
    ahead.reading({.parts = b, .stable_tasks = 1, .key = &key});
    reader.begin(b[0], 4096);
    expect_read(more(reader, 4096), chosen, chosen + 4096);  // goes on with the others, now that they are known
  }
}

TEST(ReadAhead, ScalesLieBesideTheirRows) {
  ReadAhead ahead(1);
  Reader& reader = ahead.reader(0);
  const uint8_t* scale = memory.data() + 500000;
  const std::vector<Read> a = {rows(0, 16384, scale)};
  ahead.reading({.parts = a});
  reader.begin(a[0], 8192);
  EXPECT_EQ(more(reader, 4096).scale, scale + 8192 / 16);
}

TEST(ReadAhead, AskingEnds) {
  ReadAhead ahead(1);
  Reader& reader = ahead.reader(0);
  EXPECT_FALSE(reader.ask(1 << 20));  // nothing is known
  ahead.reading({.parts = std::vector<Read>{rows(0, 4 << 20)}});
  int64_t asked = 0;
  while (reader.ask(1 << 20) && asked < 1 << 30) asked += 512;
  EXPECT_EQ(asked, 1 << 20);
}

TEST(ReadAhead, NoMorePartsThanItHasRoomFor) {
  ReadAhead ahead(1);
  std::vector<Read> parts;
  for (int i = 0; i < ReadAhead::kMostParts + 10; ++i) parts.push_back(rows(64 * i, 64 * i + 64));
  ahead.reading({.parts = parts});
  EXPECT_EQ(ask_all(ahead.reader(0)), ReadAhead::kMostParts);
  const Read& last = parts.back();
  ahead.reader(0).begin(last, 64);  // not known, and read all the same
  EXPECT_EQ(more(ahead.reader(0), 64).bytes, 0);
}

}  // namespace
}  // namespace hadal::cpu
