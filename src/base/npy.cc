#include "base/npy.h"

#include "base/error.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

namespace hadal {
namespace {

static_assert(std::endian::native == std::endian::little);
constexpr std::string_view magic("\x93NUMPY", 6);
constexpr size_t max_header = 1 << 16;

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Close>;

// The text after "'key':" in the Python dictionary of the header, from its first character that is not white
// space.
std::string_view after_key(std::string_view header, std::string_view key, const std::string& path) {
  for (const char quote : {'\'', '"'}) {
    const std::string quoted = fmt::format("{0}{1}{0}", quote, key);
    size_t at = header.find(quoted);
    if (at == std::string_view::npos) continue;
    at = header.find(':', at + quoted.size());
    if (at == std::string_view::npos) break;
    at = header.find_first_not_of(" \t\n", at + 1);
    if (at == std::string_view::npos) break;
    return header.substr(at);
  }
  fail(ErrorKind::invalid_data, "{}: the .npy header has no '{}'", path, key);
}

std::vector<int64_t> parse_shape(std::string_view text, const std::string& path) {
  std::vector<int64_t> shape;
  const size_t close = text.find(')');
  if (text.empty() || text[0] != '(' || close == std::string_view::npos)
    fail(ErrorKind::invalid_data, "{}: the .npy header has no shape in parentheses", path);
  int64_t value = -1;
  for (const char c : text.substr(1, close - 1)) {
    if (std::isdigit(static_cast<unsigned char>(c))) {
      value = (value < 0 ? 0 : value) * 10 + (c - '0');
      if (value > int64_t{1} << 40) fail(ErrorKind::invalid_data, "{}: the .npy shape is too large", path);
    } else if (c == ',' && value >= 0) {
      shape.push_back(value);
      value = -1;
    } else if (c != ' ') {
      fail(ErrorKind::invalid_data, "{}: the .npy shape has the character '{}'", path, c);
    }
  }
  if (value >= 0) shape.push_back(value);
  return shape;
}

template <typename T>
NpyArray<T> read(const std::filesystem::path& path, std::string_view type) {
  const std::string name = path.string();
  const File file(std::fopen(path.c_str(), "rb"));
  if (!file) fail(ErrorKind::io, "cannot open {}: {}", name, std::generic_category().message(errno));
  struct stat info = {};
  if (::fstat(::fileno(file.get()), &info) != 0 || !S_ISREG(info.st_mode))
    fail(ErrorKind::io, "cannot read {}: it is not a regular file", name);
  const auto get = [&](void* to, size_t bytes) {
    if (std::fread(to, 1, bytes, file.get()) != bytes)
      fail(ErrorKind::invalid_data, "{}: the .npy file is truncated", name);
  };
  char start[8] = {};
  get(start, sizeof start);
  if (std::string_view(start, 6) != magic) fail(ErrorKind::invalid_data, "{} is not a .npy file", name);
  const int version = static_cast<unsigned char>(start[6]);
  if (version != 1 && version != 2)
    fail(ErrorKind::invalid_data, "{}: .npy version {} is not supported", name, version);
  uint32_t length = 0;
  get(&length, version == 1 ? 2 : 4);
  if (length > max_header) fail(ErrorKind::invalid_data, "{}: the .npy header length {} is too large", name, length);
  std::string header(length, '\0');
  get(header.data(), length);

  const std::string_view descr = after_key(header, "descr", name);
  if (descr.size() < 5 || descr.substr(1, 3) != type)
    fail(ErrorKind::invalid_data, "{}: the .npy dtype is {}, expected '{}'", name,
         descr.substr(0, descr.find_first_of(",}")), type);
  if (!after_key(header, "fortran_order", name).starts_with("False"))
    fail(ErrorKind::invalid_data, "{}: the .npy array is in Fortran order, which is not supported", name);

  NpyArray<T> array;
  array.shape = parse_shape(after_key(header, "shape", name), name);
  uint64_t bytes = sizeof(T);
  for (const int64_t extent : array.shape)
    if (__builtin_mul_overflow(bytes, uint64_t(extent), &bytes))
      fail(ErrorKind::invalid_data, "{}: the size of the .npy shape overflows", name);
  const uint64_t have = uint64_t(info.st_size) - uint64_t(std::ftell(file.get()));
  if (bytes != have)
    fail(ErrorKind::invalid_data, "{}: the .npy shape needs {} bytes, but the file has {}", name, bytes, have);
  array.data.resize(size_t(bytes) / sizeof(T));
  if (bytes > 0) get(array.data.data(), size_t(bytes));
  return array;
}

void write(const std::filesystem::path& path, std::string_view type, const std::string& shape,
           std::span<const std::byte> bytes) {
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", type, shape);
  constexpr size_t align = 64, prefix = 10;
  header.append(align - 1 - (prefix + header.size()) % align, ' ');
  header += '\n';
  const std::filesystem::path temporary = path.string() + ".tmp";
  const auto refuse = [&](const char* step) {
    const int reason = errno;
    std::remove(temporary.c_str());
    fail(ErrorKind::io, "cannot {} {}: {}", step, path.string(), std::generic_category().message(reason));
  };
  File file(std::fopen(temporary.c_str(), "wb"));
  if (!file) refuse("write");
  const uint16_t length = uint16_t(header.size());
  const char version[2] = {1, 0};
  bool good = std::fwrite(magic.data(), 1, magic.size(), file.get()) == magic.size();
  good = good && std::fwrite(version, 1, 2, file.get()) == 2 && std::fwrite(&length, 1, 2, file.get()) == 2;
  good = good && std::fwrite(header.data(), 1, header.size(), file.get()) == header.size();
  good = good && (bytes.empty() || std::fwrite(bytes.data(), 1, bytes.size(), file.get()) == bytes.size());
  if (!good || std::fclose(file.release()) != 0) refuse("write");
  if (std::rename(temporary.c_str(), path.c_str()) != 0) refuse("rename a file to");
}

}  // namespace

NpyArray<float> read_npy_f32(const std::filesystem::path& path) { return read<float>(path, "<f4"); }
NpyArray<int32_t> read_npy_i32(const std::filesystem::path& path) { return read<int32_t>(path, "<i4"); }

void write_npy(const std::filesystem::path& path, std::span<const float> values, int64_t rows, int64_t columns) {
  HADAL_CHECK(rows >= 0 && columns >= 0 && int64_t(values.size()) == rows * columns);
  write(path, "<f4", fmt::format("{}, {}", rows, columns), std::as_bytes(values));
}

void write_npy(const std::filesystem::path& path, std::span<const int32_t> values) {
  write(path, "<i4", fmt::format("{},", values.size()), std::as_bytes(values));
}

}  // namespace hadal
