#include "tern/data/datasets/text_set.h"

#include <limits>

#include "tern/data/files/sha256.h"
#include "tern/data/files/text.h"
#include "tern/data/files/utf8.h"
#include "tern/kernels/base/check.h"

namespace tern::data {

void TextSet::append(std::string_view text, int32_t label) {
  TERN_CHECK(size() < std::numeric_limits<int32_t>::max(), name, ": more than 2^31 - 1 rows");
  invalid_utf8 += append_valid_utf8(text, bytes);
  offsets.push_back(bytes.size());
  labels.push_back(label);
}

void TextSet::add(std::string_view text, int32_t label) {
  TERN_CHECK(!has_pairs(), name, ": a row with one text after rows with two");
  append(text, label);
}

void TextSet::add(std::string_view text, std::string_view text_pair, int32_t label) {
  TERN_CHECK(has_pairs() || size() == 0, name, ": a row with two texts after rows with one");
  append(text, label);
  invalid_utf8 += append_valid_utf8(text_pair, pair_bytes);
  pair_offsets.push_back(pair_bytes.size());
}

int64_t TextSet::empty_texts() const {
  int64_t count = 0;
  for (int64_t row = 0; row < size(); ++row)
    count += trim(text(row)).empty() && (!has_pairs() || trim(text_pair(row)).empty());
  return count;
}

void TextSet::check_texts(const std::function<void(const std::string&)>& log) const {
  const int64_t empty = empty_texts();
  TERN_CHECK(empty < size(), name, ": all ", size(), " texts are empty");
  if (log && empty > 0) log(name + ": " + std::to_string(empty) + " of " + std::to_string(size()) + " texts are empty");
}

std::string TextSet::content_hash() const {
  Sha256 digest;
  digest.update(static_cast<uint64_t>(size()));
  for (int64_t row = 0; row < size(); ++row) digest.update(static_cast<uint64_t>(text(row).size()));
  digest.update(bytes);
  if (has_pairs()) {
    for (int64_t row = 0; row < size(); ++row) digest.update(static_cast<uint64_t>(text_pair(row).size()));
    digest.update(pair_bytes);
  }
  return digest.hex();
}

}  // namespace tern::data
