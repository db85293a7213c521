// The cache of token ids: whatever is in the file, what comes out is what the texts give, or what a file with right
// checksums says. The first byte chooses whether the header is made right, and whether rows are pairs with types.

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

struct Case {
  data::TextSet set;
  data::TokenizeOptions options{.max_length = 6, .around = {{1}, {2}}, .threads = 1, .tokenizer_key = "key"};
  std::filesystem::path path;

  explicit Case(bool pairs) {
    set.label_names = {"a"};
    for (const char* text : {"one", "another"}) {
      if (pairs)
        set.add(text, "two", 0);
      else
        set.add(text, 0);
    }
    options.pair = data::bert_pair(1, 2);
    path = data::token_cache_path(set, options);
    std::filesystem::create_directories(path.parent_path());
  }
};

}  // namespace

void tern::fuzz::try_input(std::string_view input) {
  if (input.empty()) return;
  static const bool ready = setenv("XDG_CACHE_HOME", folder().c_str(), 1) == 0;
  require(ready);
  static const Case single(false), pairs(true);
  const bool typed = static_cast<uint8_t>(input[0]) % 4 >= 2;
  const Case& chosen = typed ? pairs : single;
  const size_t id_bytes = typed ? 8 : 4;
  std::string bytes(input.substr(1));
  const bool right = static_cast<uint8_t>(input[0]) % 2 == 1 && bytes.size() >= 24;
  if (right) {
    Header header{};
    std::memcpy(header.magic, "TERNTOK1", 8);
    std::memcpy(header.key, chosen.path.stem().c_str(), sizeof header.key);
    bytes.resize(24 + (bytes.size() - 24) / id_bytes * id_bytes);
    data::Sha256 digest;
    digest.update(std::string_view(bytes));
    std::memcpy(header.payload, digest.hex().data(), sizeof header.payload);
    header.rows = 2;
    header.ids = static_cast<int64_t>((bytes.size() - 24) / id_bytes);
    bytes.insert(0, reinterpret_cast<const char*>(&header), sizeof header);
  }
  write_file((std::filesystem::path("tern") / "tokens" / chosen.path.filename()).string(), bytes);
  const auto encode = [](std::string_view text, std::vector<int32_t>& ids) {
    for (const char c : text) ids.push_back(c);
  };
  read([&] {
    const data::TokenSet tokens = data::tokenize(chosen.set, encode, chosen.options);
    require(tokens.size() == 2 && tokens.offsets[0] == 0);
    require(tokens.offsets[2] == static_cast<int64_t>(tokens.ids.size()));
    require(tokens.types.size() == (typed ? tokens.ids.size() : 0));
    for (const int32_t length : tokens.lengths()) require(length >= (typed ? 3 : 2) && length <= 6);
  });
}
