#include "checkpoint/safetensors.h"

#include "base/error.h"
#include "checkpoint/json.h"

#include <algorithm>
#include <cstring>

namespace hadal {
namespace {

struct TypeRow {
  TensorType type;
  std::string_view name;
  size_t size;
};
constexpr TypeRow type_table[] = {
    {TensorType::boolean, "BOOL", 1},    {TensorType::u8, "U8", 1},           {TensorType::i8, "I8", 1},
    {TensorType::f8_e5m2, "F8_E5M2", 1}, {TensorType::f8_e4m3, "F8_E4M3", 1}, {TensorType::f8_e8m0, "F8_E8M0", 1},
    {TensorType::i16, "I16", 2},         {TensorType::u16, "U16", 2},         {TensorType::f16, "F16", 2},
    {TensorType::bf16, "BF16", 2},       {TensorType::i32, "I32", 4},         {TensorType::u32, "U32", 4},
    {TensorType::f32, "F32", 4},         {TensorType::f64, "F64", 8},         {TensorType::i64, "I64", 8},
    {TensorType::u64, "U64", 8},
};

// The member `name` of a tensor's description, or a message that says which one is missing.
const json::value& member(const json::object& object, std::string_view name, std::string_view what,
                          std::string_view tensor) {
  const json::value* value = object.if_contains({name.data(), name.size()});
  if (!value) fail(ErrorKind::invalid_data, "{}: tensor {} has no \"{}\"", what, tensor, name);
  return *value;
}

uint64_t to_unsigned(const json::value& value, std::string_view what, std::string_view tensor, std::string_view name) {
  if (value.is_uint64()) return value.get_uint64();
  if (value.is_int64() && value.get_int64() >= 0) return uint64_t(value.get_int64());
  fail(ErrorKind::invalid_data, "{}: tensor {}: {} has {}, expected an integer that is not negative", what, tensor,
       name, show(value));
}

const json::array& to_array(const json::value& value, std::string_view what, std::string_view tensor,
                            std::string_view name) {
  if (!value.is_array())
    fail(ErrorKind::invalid_data, "{}: tensor {}: {} is {}, expected an array", what, tensor, name, show(value));
  return value.get_array();
}

TensorView parse_tensor(const json::value& value, std::string_view name, std::string_view what,
                        std::span<const std::byte> data) {
  if (!value.is_object())
    fail(ErrorKind::invalid_data, "{}: tensor {} is {}, expected an object", what, name, show(value));
  const json::object& object = value.get_object();
  TensorView tensor;
  tensor.name = name;

  const json::value& type = member(object, "dtype", what, name);
  if (!type.is_string() || !parse_type({type.get_string().data(), type.get_string().size()}, tensor.type))
    fail(ErrorKind::invalid_data, "{}: tensor {} has unknown dtype {}", what, name, show(type));

  constexpr size_t max_dimensions = 8;
  const json::array& shape = to_array(member(object, "shape", what, name), what, name, "shape");
  if (shape.size() > max_dimensions)
    fail(ErrorKind::invalid_data, "{}: tensor {} has {} dimensions, at most {} are supported", what, name, shape.size(),
         max_dimensions);
  // Zero extents first: [2^62, 0] has no elements and must not count as an overflow.
  uint64_t elements = 1;
  bool empty = false, overflow = false;
  for (const json::value& v : shape) {
    const uint64_t extent = to_unsigned(v, what, name, "shape");
    empty |= extent == 0;
    overflow |= extent > uint64_t{1} << 62 || __builtin_mul_overflow(elements, extent, &elements);
    tensor.shape.push_back(int64_t(extent & (~uint64_t{0} >> 1)));
  }
  uint64_t expected = 0;
  if (empty) elements = 0;
  if ((!empty && overflow) || __builtin_mul_overflow(elements, type_size(tensor.type), &expected))
    fail(ErrorKind::invalid_data, "{}: tensor {}: the size of shape {} overflows 64 bits", what, name,
         show_shape(tensor.shape));

  const json::array& offsets = to_array(member(object, "data_offsets", what, name), what, name, "data_offsets");
  if (offsets.size() != 2)
    fail(ErrorKind::invalid_data, "{}: tensor {} has {} data_offsets, expected 2", what, name, offsets.size());
  const uint64_t begin = to_unsigned(offsets[0], what, name, "data_offsets");
  const uint64_t end = to_unsigned(offsets[1], what, name, "data_offsets");
  if (begin > end)
    fail(ErrorKind::invalid_data, "{}: tensor {}: data_offsets are reversed: begin {} is after end {}", what, name,
         begin, end);
  if (end > data.size())
    fail(ErrorKind::invalid_data,
         "{}: tensor {} ends at data byte {}, but the file has only {} data bytes (truncated?)", what, name, end,
         data.size());
  if (end - begin != expected)
    fail(ErrorKind::invalid_data, "{}: tensor {} occupies {} bytes, but {} {} needs {}", what, name, end - begin,
         type_name(tensor.type), show_shape(tensor.shape), expected);
  tensor.data = data.data() + begin;
  tensor.bytes = size_t(end - begin);
  return tensor;
}

void parse_metadata(const json::value& value, std::string_view what, SafetensorsHeader& header) {
  if (!value.is_object())
    fail(ErrorKind::invalid_data, "{}: __metadata__ is {}, expected an object", what, show(value));
  for (const auto& m : value.get_object()) {
    if (!m.value().is_string())
      fail(ErrorKind::invalid_data, "{}: __metadata__ has {}, expected strings", what, show(m.value()));
    const json::string& text = m.value().get_string();
    header.metadata.emplace_back(std::string(m.key().data(), m.key().size()), std::string(text.data(), text.size()));
  }
}

// Tensors must tile the data exactly, as the format asks: no overlap (aliases), no gap, nothing after the
// end.
void check_layout(std::vector<TensorView>& tensors, std::string_view what, std::span<const std::byte> data) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const TensorView& a, const TensorView& b) {
    return a.data != b.data ? a.data < b.data : a.bytes < b.bytes;
  });
  const std::byte* end = data.data();
  std::string_view before;
  for (const TensorView& t : tensors) {
    if (t.data < end) fail(ErrorKind::invalid_data, "{}: tensors {} and {} overlap", what, before, t.name);
    if (t.data > end)
      fail(ErrorKind::invalid_data, "{}: {} bytes before tensor {} belong to no tensor", what, t.data - end, t.name);
    end = t.data + t.bytes;
    before = t.name;
  }
  if (const ptrdiff_t rest = data.data() + data.size() - end; rest > 0)
    fail(ErrorKind::invalid_data, "{}: {} bytes after the last tensor belong to no tensor", what, rest);
}

}  // namespace

size_t type_size(TensorType type) { return type_table[size_t(type)].size; }
std::string_view type_name(TensorType type) { return type_table[size_t(type)].name; }

bool parse_type(std::string_view name, TensorType& type) {
  if (name == "F8_E4M3FN") name = "F8_E4M3";
  if (name == "F8_E8M0FNU") name = "F8_E8M0";
  for (const TypeRow& row : type_table) {
    if (row.name == name) {
      type = row.type;
      return true;
    }
  }
  return false;
}

std::string show_shape(std::span<const int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

SafetensorsHeader parse_safetensors(std::span<const std::byte> image, std::string_view what,
                                    const SafetensorsLimits& limits) {
  if (image.empty()) fail(ErrorKind::invalid_data, "{}: the file is empty", what);
  if (image.size() < 8)
    fail(ErrorKind::invalid_data, "{}: {} bytes are too few for a safetensors header", what, image.size());
  if (std::memcmp(image.data(), "GGUF", 4) == 0)
    fail(ErrorKind::unsupported, "{} is a GGUF file; Hadal reads the published safetensors checkpoint", what);
  uint64_t length = 0;
  std::memcpy(&length, image.data(), 8);
  if (length > image.size() - 8)
    fail(ErrorKind::invalid_data,
         "{}: the header length {} goes beyond the file of {} bytes (truncated, or not safetensors)", what, length,
         image.size());
  if (length > limits.max_header_bytes)
    fail(ErrorKind::invalid_data, "{}: the header length {} is above the limit of {} bytes", what, length,
         limits.max_header_bytes);
  if (length == 0 || char(image[8]) != '{')
    fail(ErrorKind::invalid_data, "{}: the header does not start with '{{': not a safetensors file", what);

  const std::string_view text(reinterpret_cast<const char*>(image.data()) + 8, size_t(length));
  const json::value root = parse_json(text, what);
  const std::span<const std::byte> data = image.subspan(8 + size_t(length));
  SafetensorsHeader header;
  header.data_begin = 8 + size_t(length);
  header.names = std::make_unique<char[]>(size_t(length));  // unescaped names are never longer than the text
  char* next = header.names.get();
  for (const auto& m : root.as_object()) {
    if (m.key() == "__metadata__") {
      parse_metadata(m.value(), what, header);
      continue;
    }
    std::memcpy(next, m.key().data(), m.key().size());
    header.tensors.push_back(parse_tensor(m.value(), {next, m.key().size()}, what, data));
    next += m.key().size();
  }
  check_layout(header.tensors, what, data);
  return header;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path, const SafetensorsLimits& limits)
    : file_(path), header_(parse_safetensors(file_.bytes(), path.string(), limits)) {
  by_name_.reserve(header_.tensors.size());
  for (size_t i = 0; i < header_.tensors.size(); ++i) by_name_.emplace(header_.tensors[i].name, i);
}

const TensorView* SafetensorsFile::find(std::string_view name) const {
  const auto i = by_name_.find(name);
  return i == by_name_.end() ? nullptr : &header_.tensors[i->second];
}

}  // namespace hadal
