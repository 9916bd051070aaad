#include "engine/block_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/output_file.h"

namespace hadal {

namespace fs = std::filesystem;

namespace {

constexpr char kMagic[8] = {'h', 'a', 'd', 'a', 'l', 'k', 'v', '\n'};
constexpr uint32_t kVersion = 1;
constexpr const char* kSuffix[] = {".page", ".state"};  // by BlockKind
constexpr const char* kPartial = ".partial";            // as OutputFile names what is not complete

class File {
 public:
  explicit File(const fs::path& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  explicit operator bool() const { return fd_ >= 0; }
  int64_t size() const {
    struct stat s {};
    return ::fstat(fd_, &s) == 0 ? s.st_size : -1;
  }
  // False at the end of the file or a failure of the disk.
  bool read(void* to, size_t bytes) {
    auto* p = static_cast<char*>(to);
    while (bytes > 0) {
      const ssize_t n = ::read(fd_, p, bytes);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      p += n;
      bytes -= static_cast<size_t>(n);
    }
    return true;
  }

 private:
  int fd_;
};

int64_t nanoseconds(const timespec& t) { return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec; }

}  // namespace

BlockKey BlockKey::of(const BlockKey& before, std::span<const std::byte> bytes) {
  std::vector<std::byte> all(sizeof before + bytes.size());
  std::memcpy(all.data(), &before, sizeof before);
  if (!bytes.empty()) std::memcpy(all.data() + sizeof before, bytes.data(), bytes.size());
  const XXH128_hash_t hash = XXH3_128bits(all.data(), all.size());
  return {hash.high64, hash.low64};
}

BlockKey BlockKey::of(std::string_view text) { return of({}, std::as_bytes(std::span(text))); }

std::string BlockKey::hex() const { return fmt::format("{:016x}{:016x}", high, low); }

std::optional<BlockKey> BlockKey::parse(std::string_view hex) {
  if (hex.size() != 32) return {};
  uint64_t words[2] = {};
  for (size_t i = 0; i < 32; ++i) {
    const char c = hex[i];
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return {};
    words[i / 16] = words[i / 16] << 4 | static_cast<uint64_t>(digit);
  }
  return BlockKey{words[0], words[1]};
}

struct BlockStore::Header {
  char magic[8];
  uint32_t version;
  uint32_t kind;
  BlockKey identity, key;
  uint64_t payload;   // bytes behind the header
  uint64_t checksum;  // XXH3 of the payload, seeded with that of the header before this field

  uint64_t seed() const { return XXH3_64bits(this, offsetof(Header, checksum)); }
};

BlockStore::Header BlockStore::header_of(const Id& id, size_t payload) const {
  Header h{};
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  h.version = kVersion;
  h.kind = static_cast<uint32_t>(id.kind);
  h.identity = identity_;
  h.key = id.key;
  h.payload = payload;
  return h;
}

int64_t BlockStore::file_bytes(size_t payload) { return static_cast<int64_t>(sizeof(Header) + payload); }

BlockStore::BlockStore(const fs::path& directory, const std::string& identity, int64_t limit, size_t probe_bytes)
    : directory_(directory), identity_(BlockKey::of(identity)), limit_(limit) {
  const fs::path own = directory / identity_.hex();
  std::error_code error;
  fs::create_directories(own, error);
  if (error)
    fail(ErrorKind::io, "the prefix cache on disk cannot make the folder {}: {}", own.string(), error.message());
  const fs::path lock = directory / "lock";
  lock_ = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock_ < 0)
    fail(ErrorKind::io, "the prefix cache on disk cannot write {}: {}", lock.string(),
         std::generic_category().message(errno));
  try {
    if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
      const int reason = errno;
      char owner[32] = {};
      if (reason == EWOULDBLOCK && ::pread(lock_, owner, sizeof owner - 1, 0) > 0)
        fail(ErrorKind::io,
             "the prefix cache on disk {} is in use by process {}; give each process a directory of its own",
             directory.string(), std::string_view(owner, std::strcspn(owner, "\n")));
      fail(ErrorKind::io, "the prefix cache on disk cannot lock {}: {}", lock.string(),
           std::generic_category().message(reason));
    }
    const std::string owner = fmt::format("{}\n", ::getpid());
    [[maybe_unused]] const bool named =
        ::ftruncate(lock_, 0) == 0 && ::pwrite(lock_, owner.data(), owner.size(), 0) > 0;
    folders_.push_back(own);
    scan();
    // Not left to the first request: the folder may belong to somebody else, or the disk may be full.
    make_room(0);
    const std::vector<std::byte> probe(probe_bytes);
    OutputFile(own / "probe").write(probe);
    OutputFile about(own / "about.txt");
    about.write(std::as_bytes(std::span(identity)));
    about.commit();
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

BlockStore::~BlockStore() { ::close(lock_); }

fs::path BlockStore::path(const Id& id) const {
  return folders_[static_cast<size_t>(id.folder)] / (id.key.hex() + kSuffix[static_cast<size_t>(id.kind)]);
}

void BlockStore::scan() {
  std::multimap<int64_t, std::pair<Id, int64_t>> found;  // by time of use
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory_, error)) {
    const std::string name = entry.path().filename().string();
    if (!BlockKey::parse(name) || !entry.is_directory(error)) {
      if (name != "lock") ++stats_.left_alone;
      continue;
    }
    int folder = 0;
    if (entry.path() != folders_[0]) {
      folder = static_cast<int>(folders_.size());
      folders_.push_back(entry.path());
    }
    scan_folder(folder, found);
  }
  if (error) fail(ErrorKind::io, "the prefix cache on disk cannot read {}: {}", directory_.string(), error.message());
  for (const auto& [time, item] : found) {
    add(item.first, item.second);
    clock_ = time;
  }
  if (stats_.left_alone > 0)
    log::warn("prefix cache on disk: {} files in {} are not its own and are left alone", stats_.left_alone,
              directory_.string());
}

void BlockStore::scan_folder(int folder, std::multimap<int64_t, std::pair<Id, int64_t>>& found) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folders_[static_cast<size_t>(folder)], error)) {
    std::string name = entry.path().filename().string();
    if (name.ends_with(kPartial)) {
      fs::remove(entry.path(), error);  // of a process that died
      continue;
    }
    struct stat s {};
    const std::string_view stem = std::string_view(name).substr(0, name.rfind('.'));
    const std::optional<BlockKey> key = BlockKey::parse(stem);
    const std::string suffix = name.substr(stem.size());
    const auto* const kind = std::find(std::begin(kSuffix), std::end(kSuffix), suffix);
    if (!key || kind == std::end(kSuffix) || ::lstat(entry.path().c_str(), &s) != 0 || !S_ISREG(s.st_mode)) {
      if (name != "about.txt") ++stats_.left_alone;
      continue;
    }
    const Id id{folder, static_cast<BlockKind>(kind - std::begin(kSuffix)), *key};
    found.emplace(nanoseconds(s.st_mtim), std::pair(id, int64_t{s.st_size}));
  }
  if (error)
    fail(ErrorKind::io, "the prefix cache on disk cannot read {}: {}", folders_[static_cast<size_t>(folder)].string(),
         error.message());
}

std::vector<BlockKey> BlockStore::keys(BlockKind kind) const {
  std::vector<BlockKey> keys;
  for (const Id& id : by_use_)
    if (id.folder == 0 && id.kind == kind) keys.push_back(id.key);
  return keys;
}

void BlockStore::add(const Id& id, int64_t bytes) {
  if (entries_.contains(id)) forget(id);
  by_use_.push_back(id);
  entries_[id] = {bytes, std::prev(by_use_.end())};
  ++stats_.entries;
  stats_.bytes += bytes;
}

void BlockStore::forget(const Id& id) {
  const auto entry = entries_.find(id);
  --stats_.entries;
  stats_.bytes -= entry->second.bytes;
  by_use_.erase(entry->second.use);
  entries_.erase(entry);
}

void BlockStore::remove(const Id& id) {
  ::unlink(path(id).c_str());
  forget(id);
  if (id.folder == 0 && removed_) removed_(id.kind, id.key);
}

void BlockStore::reject(BlockKind kind, const BlockKey& key, std::string_view reason) {
  const Id id{0, kind, key};
  log::warn("prefix cache on disk: {} {}; it is removed", path(id).string(), reason);
  ++stats_.damaged;
  remove(id);
}

std::optional<std::vector<std::byte>> BlockStore::read(const Id& id, size_t most, bool whole) {
  const auto entry = entries_.find(id);
  if (entry == entries_.end()) return {};
  File file(path(id));
  if (!file && errno == ENOENT) {  // somebody else removed it
    remove(id);
    return {};
  }
  const auto wrong = [&](std::string_view reason) {
    reject(id.kind, id.key, reason);
    return std::nullopt;
  };
  Header h{};
  if (!file || !file.read(&h, sizeof h)) return wrong("cannot be read or is cut off");
  const Header expected = header_of(id, h.payload);
  if (std::memcmp(h.magic, kMagic, sizeof kMagic) != 0 || h.version != kVersion)
    return wrong("is not an entry of this version");
  if (h.identity != identity_) return wrong("belongs to another model, mode or program");
  if (std::memcmp(&h, &expected, offsetof(Header, checksum)) != 0) return wrong("is not what its name says");
  const int64_t size = file.size();
  if (size < file_bytes(0) || static_cast<uint64_t>(size) - sizeof h != h.payload)
    return wrong(fmt::format("has {} bytes behind its header, which says {}", size - file_bytes(0), h.payload));
  std::vector<std::byte> payload(static_cast<size_t>(std::min<uint64_t>(h.payload, most)));
  if (!file.read(payload.data(), payload.size())) return wrong("cannot be read");
  if (whole && XXH3_64bits_withSeed(payload.data(), payload.size(), h.seed()) != h.checksum)
    return wrong("is damaged: its checksum is not that of its bytes");
  return payload;
}

std::optional<std::vector<std::byte>> BlockStore::read(BlockKind kind, const BlockKey& key) {
  return read({0, kind, key}, SIZE_MAX, true);
}

std::optional<std::vector<std::byte>> BlockStore::read_head(BlockKind kind, const BlockKey& key, size_t most) {
  return read({0, kind, key}, most, false);
}

void BlockStore::make_room(int64_t bytes) {
  while (!by_use_.empty() && stats_.bytes + bytes > limit_) {
    remove(Id(by_use_.front()));
    ++stats_.evicted;
  }
}

void BlockStore::write(BlockKind kind, const BlockKey& key, std::span<const std::byte> payload) {
  const Id id{0, kind, key};
  const int64_t bytes = file_bytes(payload.size());
  HADAL_CHECK(bytes <= limit_);
  make_room(bytes);
  Header h = header_of(id, payload.size());
  h.checksum = XXH3_64bits_withSeed(payload.data(), payload.size(), h.seed());
  OutputFile file(path(id));
  file.write(std::as_bytes(std::span(&h, 1)));
  file.write(payload);
  file.commit();
  add(id, bytes);
  touch(kind, key);
}

void BlockStore::touch(BlockKind kind, const BlockKey& key) {
  const Id id{0, kind, key};
  const auto entry = entries_.find(id);
  if (entry == entries_.end()) return;
  by_use_.splice(by_use_.end(), by_use_, entry->second.use);
  const int64_t now = std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  clock_ = std::max(now, clock_ + 1);  // no two alike
  const timespec time{clock_ / 1'000'000'000, clock_ % 1'000'000'000};
  const timespec times[] = {time, time};
  ::utimensat(AT_FDCWD, path(id).c_str(), times, 0);
}

}  // namespace hadal
