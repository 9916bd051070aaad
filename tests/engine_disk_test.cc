// The prefix cache's tier on disk: what a new process finds there gives the tokens and log-probabilities of a cold run, and
// what is damaged, cut off or somebody else's is never used.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/log.h"
#include "engine/disk_cache.h"
#include "engine_support.h"
#include "ops/cpu/context.h"

namespace hadal {
namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    static int number = 0;
    path_ = fs::temp_directory_path() / fmt::format("hadal-disk-{}-{}", ::getpid(), number++);
    fs::remove_all(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const fs::path& path() const { return path_; }
  std::vector<fs::path> files(const std::string& ending) const {
    std::vector<fs::path> found;
    for (const auto& e : fs::recursive_directory_iterator(path_))
      if (e.path().string().ends_with(ending)) found.push_back(e.path());
    std::sort(found.begin(), found.end());
    return found;
  }

 private:
  fs::path path_;
};

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void write_file(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), std::ssize(bytes));
}

std::vector<int32_t> ids(size_t begin, size_t count) { return ids_from("v41-a", begin, count); }

EngineOptions options_on(const Folder& folder, const char* prefill = "exact") {
  EngineOptions o = options_for("v41-a");
  o.prefix_cache_dir = folder.path();
  o.prefill = prefill;
  return o;
}

template <typename Run>
std::string message_of(ErrorKind kind, const Run& run) {
  try {
    run();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

// ---- the engine

TEST(DiskCache, ARestartedEngineAnswersAsAColdOne) {
  for (const char* prefill : {"full", "exact", "bounded"}) {
    const Folder folder;
    // Prompts that share beginnings, within a page, at its end and behind it; answers that the next turn continues.
    std::vector<Request> first = {request_of(ids(0, 40)), request_of(ids(0, 128), 9), request_of(ids(0, 200), 12, 6)};
    std::vector<Answer> answers;
    {
      Engine engine(options_on(folder, prefill));
      for (const Request& r : first) answers.push_back(run_all(engine, {r}).front());
    }
    std::vector<Request> second = first;
    for (size_t i = 0; i < first.size(); ++i) {
      std::vector<int32_t> turn = first[i].prompt;
      turn.insert(turn.end(), answers[i].tokens.begin(), answers[i].tokens.end());
      for (const size_t more : {0, 1, 60}) {
        second.push_back(request_of(turn, 6, 10 + i));
        for (const int32_t t : ids(230, more)) second.back().prompt.push_back(t);
      }
    }
    for (const size_t hit : {1, 38, 39, 40, 41, 126, 127, 128, 129, 198, 199, 200}) {
      second.push_back(request_of(ids(0, hit), 3, hit));
      for (const int32_t t : ids(240, 20)) second.back().prompt.push_back(t);
    }
    EngineOptions cold = options_for("v41-a");
    cold.prefill = prefill;
    const std::vector<Answer> want = run_alone(cold, second);
    int64_t hits = 0;
    std::vector<int64_t> lengths;
    for (size_t i = 0; i < second.size(); ++i) {
      Engine engine(options_on(folder, prefill));  // each in a process' first moment
      const Answer got = run_all(engine, {second[i]}).front();
      ASSERT_EQ(got, want[i]) << prefill << ", request " << i << ", " << got.usage.disk_tokens << " from disk";
      ASSERT_EQ(got.usage.cached_tokens, got.usage.disk_tokens);
      hits += got.usage.disk_tokens > 0;
      lengths.push_back(got.usage.disk_tokens);
      ASSERT_EQ(engine.stats().disk.damaged, 0);
      expect_all_given_back(engine);
    }
    // A repeated prompt runs one token; the next turn continues behind all but the answer's last token, which was not run.
    EXPECT_EQ(lengths[0], 39);
    EXPECT_EQ(lengths[1], 127);
    EXPECT_EQ(lengths[2], 199);
    if (std::string(prefill) != "bounded") {
      EXPECT_EQ(lengths[3], 40 + 4);
      EXPECT_EQ(lengths[9], 200 + 11);
    }
    EXPECT_GE(hits, 15) << prefill;
  }
}

// Memory first, disk for what memory has lost; both together; several at a time, memory short.
TEST(DiskCache, BesideMemory) {
  const Folder folder;
  std::vector<Request> requests;
  for (size_t i = 0; i < 24; ++i) {
    std::vector<int32_t> prompt = ids(0, 30 + 40 * (i % 5));
    for (const int32_t t : ids(7 * i, 1 + i % 50)) prompt.push_back(t);
    requests.push_back(request_of(std::move(prompt), 4 + static_cast<int64_t>(i % 3), i));
    if (i % 6 == 0) requests.back().n = 2;
    if (i % 7 == 0) requests.back().priority = 1;
  }
  std::vector<Request> single;
  for (const Request& r : requests)
    for (int k = 0; k < r.n; ++k) {
      single.push_back(r);
      single.back().n = 1;
      single.back().sampling.seed += static_cast<uint64_t>(k);
    }
  const std::vector<Answer> want = run_alone(options_for("v41-a"), single);
  for (const int64_t mib : {0, 512})
    for (const int64_t tokens : {1024, 8192}) {
      EngineOptions o = options_on(folder);
      o.prefix_cache_mib = mib;
      o.cache_tokens = tokens;
      o.max_requests = 4;
      o.step_tokens = 60;
      Engine engine(o);
      for (int round = 0; round < 2; ++round) {
        const std::vector<Answer> got = run_all(engine, requests);
        for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], want[i]) << i << ", " << mib << " MiB";
      }
      EXPECT_GT(engine.stats().disk.hits, 0);
      EXPECT_EQ(engine.stats().disk.failed, 0);
      expect_all_given_back(engine);
    }
}

TEST(DiskCache, CancellingWhileTheDiskReads) {
  const Folder folder;
  Engine engine(options_on(folder));
  const Request r = request_of(ids(0, 200));
  const Answer want = run_all(engine, {r}).front();
  for (int i = 0; i < 50; ++i) {
    engine.clear_prefix_cache();
    Collector collector;
    const RequestId id = engine.submit(r, collector.handler());
    if (i % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(20 * i));
    engine.cancel(id);
    collector.wait();
  }
  EXPECT_EQ(run_all(engine, {r}).front(), want);
  expect_all_given_back(engine);
}

// Everything that the bits depend on separates entries.
TEST(DiskCache, OtherModesDoNotShare) {
  const Folder folder;
  const Request r = request_of(ids(0, 200));
  const auto disk_tokens = [&](const EngineOptions& o) {
    Engine engine(o);
    return run_all(engine, {r}).front().usage.disk_tokens;
  };
  EXPECT_EQ(disk_tokens(options_on(folder)), 0);
  EXPECT_EQ(disk_tokens(options_on(folder)), 199);
  for (const auto& change : std::vector<std::function<void(EngineOptions&)>>{
           [](EngineOptions& o) { o.prefill = "full"; }, [](EngineOptions& o) { o.numerics = "fp32"; },
           [](EngineOptions& o) { o.numerics = "official"; }, [](EngineOptions& o) { o.backend = "reference"; }}) {
    EngineOptions o = options_on(folder);
    change(o);
    EXPECT_EQ(disk_tokens(o), 0);
  }
  EXPECT_EQ(disk_tokens(options_on(folder)), 199) << "and nobody else's entries harm";

  // A checkpoint of the same shapes: one weight's bit.
  const Folder copy;
  fs::copy(model_directory("v41-a"), copy.path());
  EngineOptions o = options_on(folder);
  o.model = copy.path();
  EXPECT_EQ(disk_tokens(o), 0) << "another file, until it is known to be the same";
  EXPECT_EQ(disk_tokens(o), 199);
  const fs::path shard = copy.path() / "model-00001-of-00005.safetensors";
  const auto time = fs::last_write_time(shard);
  std::string bytes = read_file(shard);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_file(shard, bytes);
  fs::last_write_time(shard, time);
  EXPECT_EQ(disk_tokens(o), 0);
}

TEST(DiskCache, OptionsThatCannotBe) {
  const Folder folder;
  EngineOptions o = options_on(folder);
  o.prefix_cache = false;
  EXPECT_NE(message_of(ErrorKind::invalid_argument, [&] { Engine engine(o); }).find("prefix cache is off"),
            std::string::npos);
  o = options_on(folder);
  o.prefix_cache_disk_bytes = 1000;
  EXPECT_NE(message_of(ErrorKind::invalid_argument, [&] { Engine engine(o); }).find("1000 bytes"), std::string::npos);
  fs::create_directories(folder.path());
  write_file(folder.path() / "file", "x");
  o = options_on(folder);
  o.prefix_cache_dir = folder.path() / "file" / "cache";
  EXPECT_NE(message_of(ErrorKind::io, [&] { Engine engine(o); }).find("file/cache"), std::string::npos);
  const Engine first(options_on(folder));
  EXPECT_NE(message_of(ErrorKind::io, [&] { Engine second(options_on(folder)); })
                .find(fmt::format("in use by process {}", ::getpid())),
            std::string::npos);
}

// ---- the tier by itself, over pools with rows of its own making

class Tier {
 public:
  explicit Tier(const fs::path& folder, int64_t limit = 1 << 30, const std::string& identity = "test")
      : context_(Numerics::bf16, 1), pools_(context_, layout(), 3, 64) {
    cache_.emplace(pools_, folder, identity, limit, [] {});
  }

  static CacheLayout layout() {
    CacheLayout l;
    l.layers = 2;
    l.window = 4;
    l.head_dim = 32;
    l.index_dim = 32;
    l.owners = {{0, 1}, {1, 2}};
    return l;
  }
  static int64_t page_tokens() { return layout().page_tokens; }

  // A state of these tokens, all of its rows and its slot filled with a function of seed, place and token.
  Snapshot snapshot(const std::vector<int32_t>& tokens, uint64_t seed) {
    RequestState state(pools_);
    state.propose(tokens);
    state.commit(std::ssize(tokens));
    const std::vector<uint8_t> slot = slot_of(tokens, seed);
    pools_.load_slot(state.slot(), slot.data());
    for (size_t p = 0; p < state.pages().size(); ++p) {
      const std::vector<uint8_t> rows = page_of(tokens, p, seed);
      pools_.load_page(state.pages()[p], used(tokens, p), rows.data());
    }
    return state.snapshot();
  }
  bool equal(const Snapshot& s, const std::vector<int32_t>& tokens, uint64_t seed) {
    bool same = std::equal(s.tokens().begin(), s.tokens().end(), tokens.begin(), tokens.end()) &&
                *s.slot() == slot_of(tokens, seed);
    for (size_t p = 0; p < s.pages().size(); ++p) {
      std::vector<uint8_t> rows(pools_.page_bytes(used(tokens, p)));
      pools_.save_page(s.pages()[p], used(tokens, p), rows.data());
      same = same && rows == page_of(tokens, p, seed);
    }
    return same;
  }
  std::optional<Snapshot> restore(std::span<const int32_t> tokens) {
    return cache_->restore(tokens, [](int64_t, int64_t) { return true; });
  }
  int64_t find(std::span<const int32_t> tokens) {
    return cache_->find(tokens, [](int64_t, int64_t) { return true; }).length;
  }
  // Until everything is written.
  void settle(int64_t states) {
    for (int i = 0; i < 60000; ++i) {
      const DiskCache::Stats s = cache_->stats();
      if (s.written + s.failed + s.dropped >= states) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ADD_FAILURE() << "not written";
  }
  DiskCache& cache() { return *cache_; }
  CachePools& pools() { return pools_; }

 private:
  static int64_t used(const std::vector<int32_t>& tokens, size_t page) {
    return std::min<int64_t>(page_tokens(), std::ssize(tokens) - static_cast<int64_t>(page) * page_tokens());
  }
  // Rows of a page depend on the tokens up to its end, as a model's do.
  static std::vector<uint8_t> noise(size_t bytes, std::span<const int32_t> tokens, uint64_t seed) {
    std::seed_seq mixed(tokens.begin(), tokens.end());
    std::mt19937_64 random(mixed);
    random.discard(seed % 7);
    std::vector<uint8_t> out(bytes);
    for (uint8_t& b : out) b = static_cast<uint8_t>(random() ^ seed);
    return out;
  }
  std::vector<uint8_t> slot_of(const std::vector<int32_t>& tokens, uint64_t seed) const {
    return noise(pools_.slot_bytes(), tokens, seed + 1);
  }
  std::vector<uint8_t> page_of(const std::vector<int32_t>& tokens, size_t page, uint64_t seed) const {
    const auto end = static_cast<size_t>(static_cast<int64_t>(page) * page_tokens() + used(tokens, page));
    return noise(pools_.page_bytes(used(tokens, page)), std::span(tokens).first(end), seed);
  }

  CpuContext context_;
  CachePools pools_;
  std::optional<DiskCache> cache_;
};

std::vector<int32_t> text(int32_t first, size_t count) {
  std::vector<int32_t> tokens(count);
  for (size_t i = 0; i < count; ++i) tokens[i] = first + static_cast<int32_t>(i * i % 91);
  return tokens;
}

TEST(DiskCache, KeepsStatesAndSharesTheirPages) {
  const Folder folder;
  const std::vector<int32_t> longest = text(1, 700);
  const std::vector<size_t> lengths = {1, 2, 127, 128, 129, 255, 256, 400, 700};
  {
    Tier tier(folder.path());
    for (const size_t n : lengths) tier.cache().store(tier.snapshot({longest.begin(), longest.begin() + n}, 3));
    tier.cache().store(tier.snapshot(longest, 3));  // known
  }
  EXPECT_EQ(folder.files(".state").size(), lengths.size());
  EXPECT_EQ(folder.files(".page").size(), 5u);
  Tier tier(folder.path());
  for (const size_t n : lengths) {
    const std::vector<int32_t> tokens(longest.begin(), longest.begin() + n);
    const std::optional<Snapshot> s = tier.restore(tokens);
    ASSERT_TRUE(s);
    EXPECT_TRUE(tier.equal(*s, tokens, 3)) << n;
  }
  EXPECT_EQ(tier.find(std::span(longest).first(399)), 256);
  EXPECT_EQ(tier.find(text(2, 700)), 0);
  EXPECT_EQ(tier.pools().free_pages(), 64);
  // Pages that memory has are shared with it.
  const Snapshot near = tier.snapshot({longest.begin(), longest.begin() + 300}, 3);
  const auto load = tier.cache().load(longest, tier.cache().find(longest, [](int64_t, int64_t) { return true; }));
  while (!load->done()) std::this_thread::yield();
  const Snapshot s = tier.cache().take(*load, &near);
  EXPECT_TRUE(tier.equal(s, longest, 3));
  EXPECT_EQ(tier.pools().free_pages(), 64 - 3 - 4);
}

// An entry that is not as it was written is not used, and is reported. Every byte is changed for the store, some of them
// for the tier above it.
TEST(DiskCache, DamageIsNeverUsed) {
  const Folder folder;
  const std::vector<int32_t> tokens = text(1, 150);
  {
    Tier tier(folder.path());
    tier.cache().store(tier.snapshot(tokens, 3));
  }
  std::vector<fs::path> files = folder.files(".state");
  ASSERT_EQ(files.size(), 1u);
  ASSERT_EQ(folder.files(".page").size(), 1u);
  files.push_back(folder.files(".page").front());
  const auto level = log::get_level();
  log::set_level(log::level::off);  // thousands of reports
  for (const fs::path& file : files) {
    const std::string whole = read_file(file);
    const BlockKey key = *BlockKey::parse(file.stem().string());
    const BlockKind kind = file.extension() == ".page" ? BlockKind::page : BlockKind::state;
    const auto unused = [&](const std::string& bytes, bool by_tier, const std::string& what) {
      write_file(file, bytes);
      if (by_tier) {
        Tier tier(folder.path());
        EXPECT_FALSE(tier.restore(tokens)) << file << ", " << what;
        EXPECT_EQ(tier.cache().stats().damaged, 1) << file << ", " << what;
        EXPECT_EQ(tier.pools().free_pages(), 64);
      } else {
        BlockStore store(folder.path(), "test", 1 << 30, 0);
        EXPECT_FALSE(store.read(kind, key)) << file << ", " << what;
        EXPECT_EQ(store.stats().damaged, 1) << file << ", " << what;
        EXPECT_FALSE(store.contains(kind, key));
      }
      EXPECT_FALSE(fs::exists(file)) << what;
    };
    for (size_t i = 0; i < whole.size(); ++i) {
      std::string bytes = whole;
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << i % 8));
      unused(bytes, i % 61 == 0, fmt::format("byte {}", i));
      if (i < 200 || i % 97 == 0) unused(whole.substr(0, i), i % 7 == 0, fmt::format("cut to {}", i));
    }
    unused(whole + "x", true, "longer");
    unused(std::string(whole.size(), '\0'), true, "zeros");
    write_file(file, whole);
  }
  log::set_level(level);
  Tier tier(folder.path());
  const std::optional<Snapshot> s = tier.restore(tokens);
  ASSERT_TRUE(s);
  EXPECT_TRUE(tier.equal(*s, tokens, 3));
}

// Entries that are whole, and somebody else's: of another identity, or under another name.
TEST(DiskCache, ForeignEntriesAreNotUsed) {
  const Folder folder, other;
  const std::vector<int32_t> tokens = text(1, 100), different = text(5, 100);
  {
    Tier a(folder.path()), b(other.path(), 1 << 30, "another model");
    a.cache().store(a.snapshot(tokens, 3));
    b.cache().store(b.snapshot(tokens, 3));
  }
  const fs::path ours = folder.files(".state").front();
  fs::copy_file(other.files(".state").front(), ours.parent_path() / other.files(".state").front().filename());
  const std::string bytes = read_file(ours);
  write_file(ours.parent_path() / (BlockKey::of("else").hex() + ".state"), bytes);
  write_file(ours.parent_path() / "notes.txt", "mine");
  {
    Tier tier(folder.path());
    EXPECT_EQ(tier.cache().stats().damaged, 2);
    EXPECT_EQ(tier.find(different), 0);
    const std::optional<Snapshot> s = tier.restore(tokens);
    ASSERT_TRUE(s);
    EXPECT_TRUE(tier.equal(*s, tokens, 3));
  }
  EXPECT_EQ(read_file(ours.parent_path() / "notes.txt"), "mine");
}

// The longest unused go first; a prefix outlives what continues it; other identities' entries count.
TEST(DiskCache, TheSizeIsBounded) {
  const Folder folder;
  int64_t one = 0;
  {
    Tier tier(folder.path());
    tier.cache().store(tier.snapshot(text(0, 200), 1));
    tier.settle(1);
    one = tier.cache().stats().bytes;
  }
  fs::remove_all(folder.path());
  const int64_t limit = 5 * one + one / 2;
  for (int round = 0; round < 2; ++round) {  // the second finds the first one's files
    Tier tier(folder.path(), limit, fmt::format("model {}", round));
    for (int32_t i = 0; i < 20; ++i) {
      tier.cache().store(tier.snapshot(text(100 * i, 200), 1));
      tier.settle(i + 1);
      EXPECT_LE(tier.cache().stats().bytes, limit);
      if (i > 0) { EXPECT_TRUE(tier.restore(text(0, 200))) << "used all the time, " << i; }
    }
    EXPECT_GT(tier.cache().stats().evicted, 10);
    EXPECT_EQ(tier.find(text(100 * 19, 200)), 200);
    EXPECT_EQ(tier.find(text(100 * 10, 200)), 0);
    int64_t bytes = 0;
    for (const char* ending : {".page", ".state"})
      for (const fs::path& file : folder.files(ending)) bytes += static_cast<int64_t>(fs::file_size(file));
    EXPECT_EQ(bytes, tier.cache().stats().bytes);
    EXPECT_EQ(tier.cache().stats().dropped, 0);
    tier.cache().store(tier.snapshot(text(7, 128 * 20), 1));  // larger than all
    tier.settle(21);
    EXPECT_EQ(tier.cache().stats().dropped, 1);
  }
  // A smaller limit is kept from the start.
  const Tier tier(folder.path(), 2 * one);
  int64_t bytes = 0;
  for (const char* ending : {".page", ".state"})
    for (const fs::path& file : folder.files(ending)) bytes += static_cast<int64_t>(fs::file_size(file));
  EXPECT_LE(bytes, 2 * one);
}

// The system refuses to write: reported, and what is there goes on to serve.
TEST(DiskCache, AFullDiskEndsNothing) {
  const Folder folder;
  Tier tier(folder.path());
  tier.cache().store(tier.snapshot(text(0, 200), 1));
  tier.settle(1);
  ASSERT_EQ(tier.cache().stats().written, 1);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit little{64, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &little);
  tier.cache().store(tier.snapshot(text(900, 200), 1));
  tier.settle(2);
  const std::string at_start = message_of(ErrorKind::io, [&] { Tier other(folder.path() / "other"); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_NE(at_start.find("File too large"), std::string::npos) << at_start;
  EXPECT_EQ(tier.cache().stats().failed, 1);
  EXPECT_EQ(tier.find(text(900, 200)), 0);
  EXPECT_TRUE(tier.restore(text(0, 200)));
  EXPECT_TRUE(folder.files(".partial").empty());
  tier.cache().store(tier.snapshot(text(900, 200), 1));  // there is room again
  tier.settle(3);
  const std::optional<Snapshot> s = tier.restore(text(900, 200));
  ASSERT_TRUE(s);
  EXPECT_TRUE(tier.equal(*s, text(900, 200), 1));
}

// A process that writes is killed again and again: what the next one finds is whole, and it goes on.
TEST(DiskCache, KilledAtAnyMoment) {
  const Folder folder;
  fs::create_directories(folder.path());
  std::mt19937 random(3);
  int64_t found = 0, torn = 0;
  for (int round = 0; round < 40; ++round) {
    std::array<int, 2> written{};  // a byte for every state
    ASSERT_EQ(::pipe(written.data()), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        Tier tier(folder.path(), 2 << 20);
        int64_t told = 0;
        for (int32_t i = 0;; i = (i + 1) % 200) {
          tier.cache().store(tier.snapshot(text(i, 100 + static_cast<size_t>(i) * 5 % 600), 1));
          if (i % 8 == 0) ::usleep(2000);
          for (const int64_t now = tier.cache().stats().written; told < now; ++told)
            if (::write(written[1], "w", 1) != 1) ::_exit(2);
        }
      } catch (...) { ::_exit(1); }
    }
    ::close(written[1]);
    // At its start in some rounds, in others somewhere in its work.
    char byte = 0;
    for (auto left = round % 8 == 0 ? 0 : random() % 150; left > 0 && ::read(written[0], &byte, 1) == 1; --left) {}
    ::usleep(static_cast<useconds_t>(random() % 5000));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ::close(written[0]);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself";
    torn += std::ssize(folder.files(".partial"));
    Tier tier(folder.path(), 2 << 20);
    EXPECT_EQ(tier.cache().stats().damaged, 0);
    EXPECT_TRUE(folder.files(".partial").empty());
    for (int32_t i = round % 7; i < 200; i += 7) {
      const std::vector<int32_t> tokens = text(i, 100 + static_cast<size_t>(i) * 5 % 600);
      const std::optional<Snapshot> s = tier.restore(tokens);
      if (!s) continue;
      ++found;
      ASSERT_TRUE(tier.equal(*s, {s->tokens().begin(), s->tokens().end()}, 1)) << i;
    }
    EXPECT_EQ(tier.cache().stats().damaged, 0);
  }
  EXPECT_GT(found, 100);
  RecordProperty("torn_files", static_cast<int>(torn));
}

}  // namespace
}  // namespace hadal
