// Pickles alone, and inside a zip file as written by torch.save, with valid checksums: otherwise no mutated pickle
// would be accepted.

#include <zlib.h>

#include "tern/core/io/pickle.h"
#include "tern/tests/fuzz/state_file.h"

namespace tern {
namespace {

void walk(const PickleValue& value, int depth) {
  fuzz::require(value.describe().size() < 10'000);
  if (value.is(PickleKind::kTensor) && value.tensor_problem().empty()) fuzz::touch(value.as_tensor());
  if (depth == 0) return;
  const bool dict = value.is(PickleKind::kDict);
  if (!dict && !value.is(PickleKind::kList) && !value.is(PickleKind::kTuple) && !value.is(PickleKind::kSet)) return;
  for (size_t i = 0; i < std::min<size_t>(value.size(), 5); ++i) {
    if (dict) walk(value.key(i), depth - 1);
    walk(value[i], depth - 1);
  }
}

template <class T>
void put(std::string& text, std::initializer_list<T> values) {
  for (const T value : values) text.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// Entries that are stored, not compressed.
std::string zip_of(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string zip, directory;
  for (const auto& [name, bytes] : entries) {
    const auto at = static_cast<uint32_t>(zip.size()), size = static_cast<uint32_t>(bytes.size());
    const auto crc = static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), size));
    std::string common;
    put<uint16_t>(common, {20, 0, 0});
    put<uint32_t>(common, {0, crc, size, size});
    put<uint16_t>(common, {static_cast<uint16_t>(name.size()), 0});
    zip += "PK\3\4" + common + name + bytes;
    directory += "PK\1\2";
    put<uint16_t>(directory, {20});
    directory += common;
    put<uint16_t>(directory, {0, 0, 0});
    put<uint32_t>(directory, {0, at});
    directory += name;
  }
  const auto at = static_cast<uint32_t>(zip.size()), size = static_cast<uint32_t>(directory.size());
  const auto count = static_cast<uint16_t>(entries.size());
  zip += directory + "PK\5\6";
  put<uint32_t>(zip, {0});
  put<uint16_t>(zip, {count, count});
  put<uint32_t>(zip, {size, at});
  put<uint16_t>(zip, {0});
  return zip;
}

}  // namespace
}  // namespace tern

void tern::fuzz::try_input(std::string_view bytes) {
  read([&] { walk(load_pickle(write_file("input.pkl", bytes)), 6); });
  const std::string storage(256, '\x3f');
  const std::string zip = zip_of({{"a/data.pkl", std::string(bytes)},
                                  {"a/byteorder", "little"},
                                  {"a/data/0", storage},
                                  {"a/data/1", storage},
                                  {"a/version", "3\n"}});
  read([&] { touch(load_state_file(write_file("input.pt", zip), {.whole = true})); });
}
