#include "tern/core/io/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string_view>
#include <unordered_set>

#include "tern/core/io/atomic_file.h"
#include "tern/core/io/json.h"
#include "tern/core/io/mapped_file.h"
#include "tern/core/io/pickle.h"
#include "tern/core/io/state_file.h"

namespace tern {
namespace {

using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr uint64_t kMaxHeader = 100'000'000;

constexpr const char* kNames[] = {"F64", "F32", "BF16", "F16", "I64", "I32", "U8", "BOOL"};  // by DType

/// An element type of safetensors that Tern lacks, or reads as a larger one.
struct OtherType {
  const char* name;
  int bits;
  const char* torch_name;        // for messages
  std::optional<DType> widened;  // what it is read as
};
constexpr OtherType kOtherTypes[] = {{"I8", 8, "int8", DType::kInt32},
                                     {"I16", 16, "int16", DType::kInt32},
                                     {"U16", 16, "uint16", DType::kInt32},
                                     {"U32", 32, "uint32", DType::kInt64},
                                     {"U64", 64, "uint64", {}},
                                     {"C64", 64, "complex64", {}},
                                     {"F8_E4M3", 8, "float8_e4m3fn", {}},
                                     {"F8_E5M2", 8, "float8_e5m2", {}},
                                     {"F8_E8M0", 8, "float8_e8m0fnu", {}},
                                     {"F8_E4M3FNUZ", 8, "float8_e4m3fnuz", {}},
                                     {"F8_E5M2FNUZ", 8, "float8_e5m2fnuz", {}},
                                     {"F6_E2M3", 6, "float6_e2m3", {}},
                                     {"F6_E3M2", 6, "float6_e3m2", {}},
                                     {"F4", 4, "float4_e2m1", {}}};

struct Entry {
  std::string name;
  DType dtype;
  const OtherType* other;  // null: the type is `dtype`
  Shape shape;
  uint64_t begin, end;
};

uint64_t to_number(const std::string& path, const std::string& name, const Json& value, const char* what) {
  TERN_CHECK(value.is_number_unsigned(), path, ": tensor '", name, "': ", what, " must be a number >= 0, got ",
             shortened(value));
  return value.get<uint64_t>();
}

Entry parse_entry(const std::string& path, const std::string& name, const Json& value) {
  const auto member = [&](const char* key, bool array) -> const Json& {
    TERN_CHECK(value.is_object() && value.contains(key) && (array ? value[key].is_array() : value[key].is_string()),
               path, ": tensor '", name, "' has no valid \"", key, "\"");
    return value[key];
  };
  Entry entry{name, DType::kFloat32, nullptr, {}, 0, 0};
  const std::string dtype = member("dtype", false).get<std::string>();
  const auto known = std::find(std::begin(kNames), std::end(kNames), dtype);
  if (known != std::end(kNames)) {
    entry.dtype = static_cast<DType>(known - std::begin(kNames));
  } else {
    entry.other = std::find_if(std::begin(kOtherTypes), std::end(kOtherTypes),
                               [&](const OtherType& type) { return dtype == type.name; });
    TERN_CHECK(entry.other != std::end(kOtherTypes), path, ": tensor '", name, "' has dtype ", detail::printable(dtype),
               ", which the format does not have; Tern reads F64, F32, BF16, F16, I64, I32, ",
               "I16, I8, U32, U16, U8 and BOOL");
    entry.dtype = entry.other->widened.value_or(DType::kUInt8);
  }
  std::vector<int64_t> sizes;
  for (const Json& size : member("shape", true)) {
    const uint64_t n = to_number(path, name, size, "a size");
    TERN_CHECK(n <= INT64_MAX, path, ": tensor '", name, "': size ", n, " is too large");
    sizes.push_back(static_cast<int64_t>(n));
  }
  try {
    entry.shape = Shape(sizes);
  } catch (const Error& error) {
    fail(path, ": tensor '", name, "': ", error.what());
  }
  const Json& offsets = member("data_offsets", true);
  TERN_CHECK(offsets.size() == 2, path, ": tensor '", name, "': data_offsets must be two numbers");
  entry.begin = to_number(path, name, offsets[0], "an offset");
  entry.end = to_number(path, name, offsets[1], "an offset");
  int64_t bits = 0;
  TERN_CHECK(
      !__builtin_mul_overflow(entry.shape.numel(), entry.other ? entry.other->bits : 8 * size_of(entry.dtype), &bits) &&
          bits % 8 == 0 && entry.begin <= entry.end && entry.end - entry.begin == static_cast<uint64_t>(bits / 8),
      path, ": tensor '", name, "': data_offsets [", entry.begin, ", ", entry.end, "] do not hold ", entry.shape,
      " of ", entry.other ? entry.other->torch_name : name_of(entry.dtype));
  return entry;
}

/// The format allows neither overlaps nor holes: sorted by offset, each tensor starts where the previous one ends.
void check_offsets(const std::string& path, const std::vector<Entry>& entries, uint64_t bytes) {
  uint64_t next = 0;
  for (const Entry& entry : entries) {
    TERN_CHECK(entry.end <= bytes, path, ": tensor '", entry.name, "' ends at byte ", entry.end, " of ", bytes,
               " bytes of data: the file is truncated or damaged");
    TERN_CHECK(entry.begin == next, path, ": tensor '", entry.name, "' begins at byte ", entry.begin, ", expected ",
               next, entry.begin < next ? " (it overlaps another)" : " (there is a hole before it)");
    next = entry.end;
  }
  TERN_CHECK(next == bytes, path, ": ", bytes - next, " bytes after the last tensor belong to none");
}

template <class From, class To>
void widen(const char* from, Tensor& to) {
  To* out = to.data<To>();
  for (int64_t i = 0; i < to.numel(); ++i) {
    From value;  // the address may be odd
    std::memcpy(&value, from + i * static_cast<int64_t>(sizeof(From)), sizeof(From));
    out[i] = value;
  }
}

/// A copy with elements of the larger type.
Tensor widened(const Entry& entry, const char* data) {
  Tensor tensor = empty(entry.shape, {.dtype = entry.dtype});
  const std::string_view type = entry.other->name;
  if (type == "I8")
    widen<int8_t, int32_t>(data, tensor);
  else if (type == "I16")
    widen<int16_t, int32_t>(data, tensor);
  else if (type == "U16")
    widen<uint16_t, int32_t>(data, tensor);
  else
    widen<uint32_t, int64_t>(data, tensor);
  return tensor;
}

}  // namespace

SafetensorsFile load_safetensors(const std::string& path) {
  auto mapping = std::make_shared<MappedFile>(path);
  TERN_CHECK(mapping->bytes() >= 8, path, ": ", mapping->bytes(), " bytes are too few for a safetensors file");
  uint64_t length = 0;
  std::memcpy(&length, mapping->data(), 8);
  TERN_CHECK(length <= kMaxHeader, path, ": the header claims ", length, " bytes; at most ", kMaxHeader,
             " are allowed");
  TERN_CHECK(length <= mapping->bytes() - 8, path, ": the header claims ", length, " bytes, the file has ",
             mapping->bytes() - 8, " after its length: truncated or not a safetensors file");
  const char* text = mapping->data() + 8;
  TERN_CHECK(length > 0 && text[0] == '{', path, ": the header must start with '{': not a safetensors file");
  const Json header = parse_json({text, length}, path + ": the header");

  SafetensorsFile file;
  std::vector<Entry> entries;
  for (const auto& [name, value] : header.items()) {
    if (name != "__metadata__") {
      entries.push_back(parse_entry(path, name, value));
      continue;
    }
    TERN_CHECK(value.is_object(), path, ": __metadata__ must be an object of strings");
    for (const auto& [key, item] : value.items()) {
      TERN_CHECK(item.is_string(), path, ": __metadata__ must be an object of strings");
      file.metadata[key] = item.get<std::string>();
    }
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  check_offsets(path, entries, mapping->bytes() - 8 - length);

  char* data = mapping->data() + 8 + length;
  for (const Entry& entry : entries) {
    if (entry.other && !entry.other->widened) {
      std::ostringstream reason;
      reason << entry.other->torch_name << " " << entry.shape << ": Tern has no " << entry.other->torch_name;
      file.unreadable.push_back({entry.name, reason.str()});
      continue;
    }
    if (entry.other) {
      file.tensors.push_back({entry.name, widened(entry, data + entry.begin)});
      file.widened[entry.name] = entry.other->torch_name;
      continue;
    }
    if (entry.dtype == DType::kBool)  // values other than 0 and 1 are invalid bools; the mapping is private
      for (char* byte = data + entry.begin; byte < data + entry.end; ++byte)
        if (*byte != 0 && *byte != 1) *byte = 1;
    char* begin = data + entry.begin;
    Tensor tensor = from_blob(begin, entry.shape, entry.dtype, [mapping] {});
    // The format does not guarantee alignment; typed access needs it.
    const auto address = reinterpret_cast<uintptr_t>(begin);
    if (address % static_cast<uintptr_t>(size_of(entry.dtype)) != 0) {
      tensor = empty(entry.shape, {.dtype = entry.dtype});
      if (tensor.nbytes() > 0) std::memcpy(tensor.raw_data(), begin, static_cast<size_t>(tensor.nbytes()));
    }
    file.tensors.push_back({entry.name, tensor});
  }
  mapping->check();
  return file;
}

void save_safetensors(const StateView& tensors, const std::string& path,
                      const std::map<std::string, std::string>& metadata) {
  // Sorted by decreasing element size, then name, like the reference implementation: data stays aligned.
  std::vector<NamedTensor> sorted;
  for (const NamedTensor& entry : tensors) {
    TERN_CHECK(entry.tensor.defined(), path, ": tensor '", entry.name, "' is undefined");
    TERN_CHECK(entry.name != "__metadata__", path, ": '__metadata__' cannot name a tensor");
    sorted.push_back({entry.name, entry.tensor.detach().to(cpu).contiguous()});
  }
  std::sort(sorted.begin(), sorted.end(), [](const NamedTensor& a, const NamedTensor& b) {
    const int64_t sa = size_of(a.tensor.dtype()), sb = size_of(b.tensor.dtype());
    return sa != sb ? sa > sb : a.name < b.name;
  });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  // A vector of pairs, in which every look-up of a name would go through all of them.
  auto& members = header.get_ref<nlohmann::ordered_json::object_t&>();
  if (!metadata.empty()) members.emplace_back("__metadata__", metadata);
  std::unordered_set<std::string_view> names;
  int64_t offset = 0;
  for (const NamedTensor& entry : sorted) {
    TERN_CHECK(names.insert(entry.name).second, path, ": two tensors are named '", entry.name, "'");
    const Tensor& t = entry.tensor;
    members.emplace_back(entry.name, nlohmann::ordered_json{{"dtype", kNames[static_cast<int>(t.dtype())]},
                                                            {"shape", t.shape().vec()},
                                                            {"data_offsets", {offset, offset + t.nbytes()}}});
    offset += t.nbytes();
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception&) {
    fail(path, ": a tensor name or metadata value is not valid UTF-8");
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  write_atomically(path, [&](const auto& append) {
    append(&length, 8);
    append(text.data(), text.size());
    try {
      for (const NamedTensor& entry : sorted)
        append(entry.tensor.raw_data(), static_cast<size_t>(entry.tensor.nbytes()));
    } catch (const Error&) {
      verify_files_of(sorted);  // names a file whose lost memory caused the error
      throw;
    }
    verify_files_of(sorted);
  });
}

}  // namespace tern
