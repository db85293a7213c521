// The cache of token ids: whatever is in the file, what comes out is what the texts give, or what a file with right
// checksums says. The first byte chooses whether the header is made right.

#include <cstring>

#include "tern/data/datasets/token_set.h"
#include "tern/data/files/sha256.h"
#include "tern/tests/fuzz/fuzz.h"

namespace {

using namespace tern;

/// As token_set.cpp writes it.
struct Header {
  char magic[8];
  char key[64];
  char payload[64];
  int64_t rows, ids;
};

data::TextSet two_rows() {
  data::TextSet set;
  set.label_names = {"a"};
  set.add("one", 0);
  set.add("another", 0);
  return set;
}

}  // namespace

void tern::fuzz::try_input(std::string_view input) {
  if (input.empty()) return;
  static const data::TextSet set = two_rows();
  static const data::TokenizeOptions options{
      .max_length = 6, .around = {{1}, {2}}, .threads = 1, .tokenizer_key = "key"};
  static const std::filesystem::path path = [] {
    setenv("XDG_CACHE_HOME", folder().c_str(), 1);
    const auto found = data::token_cache_path(set, options);
    std::filesystem::create_directories(std::filesystem::path(found).parent_path());
    return found;
  }();
  std::string bytes(input.substr(1));
  const bool right = static_cast<uint8_t>(input[0]) % 2 == 1 && bytes.size() >= 24;
  if (right) {
    Header header{};
    std::memcpy(header.magic, "TERNTOK1", 8);
    std::memcpy(header.key, path.stem().c_str(), sizeof header.key);
    bytes.resize(24 + (bytes.size() - 24) / 4 * 4);
    data::Sha256 digest;
    digest.update(std::string_view(bytes));
    std::memcpy(header.payload, digest.hex().data(), sizeof header.payload);
    header.rows = 2;
    header.ids = static_cast<int64_t>(bytes.size() - 24) / 4;
    bytes.insert(0, reinterpret_cast<const char*>(&header), sizeof header);
  }
  write_file((std::filesystem::path("tern") / "tokens" / path.filename()).string(), bytes);
  const auto encode = [](std::string_view text, std::vector<int32_t>& ids) {
    for (const char c : text) ids.push_back(c);
  };
  read([&] {
    const data::TokenSet tokens = data::tokenize(set, encode, options);
    require(tokens.size() == 2 && tokens.offsets[0] == 0);
    require(tokens.offsets[2] == static_cast<int64_t>(tokens.ids.size()));
    for (const int32_t length : tokens.lengths()) require(length >= 2 && length <= 6);
  });
}
