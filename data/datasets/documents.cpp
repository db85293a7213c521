#include "tern/data/datasets/documents.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "tern/data/files/files.h"
#include "tern/data/files/text.h"
#include "tern/data/files/utf8.h"
#include "tern/kernels/base/check.h"

namespace tern::data {
namespace fs = std::filesystem;
namespace {

/// The .txt files below a folder. Links to folders are not followed, so the search ends.
void add_text_files(const fs::path& folder, std::vector<fs::path>& files) {
  for (const fs::path& entry : sorted_entries(folder)) {
    std::error_code ignored;
    if (fs::is_directory(fs::symlink_status(entry, ignored)))
      add_text_files(entry, files);
    else if (lower_ascii(entry.extension().string()) == ".txt")
      files.push_back(entry);
  }
}

void add_document(std::string_view text, std::vector<std::string>& documents) {
  if (!trim(text).empty()) documents.emplace_back(text);
}

/// Adds the parts between empty lines (of white space alone).
void add_paragraphs(std::string_view text, std::vector<std::string>& documents) {
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (trim(text.substr(at, end - at)).empty()) {
      add_document(text.substr(begin, at - begin), documents);
      begin = end + 1;
    }
    at = end + 1;
  }
  if (begin < text.size()) add_document(text.substr(begin), documents);
}

/// The code points of well-formed UTF-8, each given to use(). Throws Error at a byte that is not.
template <class Use>
void each_character(std::string_view text, const Use& use) {
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    const auto place = at - text.data();
    const char32_t character = unicode::decode_utf8(at, end);
    TERN_CHECK(character != unicode::kInvalid, "characters: byte ", place, " is not well-formed UTF-8");
    use(character);
  }
}

/// "U+20AC".
std::string name_of(char32_t character) {
  char text[16];
  std::snprintf(text, sizeof text, "U+%04X", static_cast<unsigned>(character));
  return text;
}

}  // namespace

std::vector<std::string> read_documents(const std::string& path, DocumentEnd end) {
  std::vector<fs::path> files = {path};
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    files.clear();
    add_text_files(path, files);
  }
  std::vector<std::string> documents;
  for (const fs::path& file : files) {
    std::string bytes, text;
    read_file(file, bytes);
    append_valid_utf8(std::string_view(bytes).substr(bytes.starts_with("\xef\xbb\xbf") ? 3 : 0), text);
    end == DocumentEnd::kFile ? add_document(text, documents) : add_paragraphs(text, documents);
  }
  TERN_CHECK(!documents.empty(), path, ": no text; expected a text file or a folder of .txt files");
  return documents;
}

std::vector<int32_t> token_stream(const std::vector<std::string>& documents, const Encode& encode, int32_t separator) {
  std::vector<int32_t> ids;
  for (const std::string& document : documents) {
    encode(document, ids);
    ids.push_back(separator);
  }
  return ids;
}

TokenBlocks::TokenBlocks(std::vector<int32_t> ids, int64_t length, int64_t stride)
    : ids_(std::move(ids)), length_(length), stride_(stride > 0 ? stride : length) {
  TERN_CHECK(length >= 1 && stride >= 0, "token blocks: length must be >= 1 and stride >= 0, got ", length, " and ",
             stride);
  const int64_t count = static_cast<int64_t>(ids_.size());
  TERN_CHECK(count > length, "token blocks: ", count, " ids are too few for a block of ", length,
             " and the target of its last id");
  size_ = (count - length - 1) / stride_ + 1;
}

std::vector<Tensor> TokenBlocks::get(const ItemKey& key) const {
  TERN_CHECK(key.row >= 0 && key.row < size_, "token blocks: block ", key.row, " of ", size_);
  std::vector<Tensor> sample;
  for (const int64_t shift : {0, 1}) {
    sample.push_back(empty({length_}, {.dtype = DType::kInt64}));
    std::copy_n(ids_.begin() + key.row * stride_ + shift, length_, sample.back().data<int64_t>());
  }
  return sample;
}

CharVocabulary::CharVocabulary(std::string_view text) {
  TERN_CHECK(!text.empty(), "characters: the text is empty");
  std::vector<bool> seen(unicode::kLastCodePoint + 1);
  each_character(text, [&](char32_t character) { seen[character] = true; });
  for (char32_t character = 0; character <= unicode::kLastCodePoint; ++character)
    if (seen[character]) characters_.push_back(character);
}

void CharVocabulary::operator()(std::string_view text, std::vector<int32_t>& ids) const {
  each_character(text, [&](char32_t character) {
    const auto found = std::lower_bound(characters_.begin(), characters_.end(), character);
    TERN_CHECK(found != characters_.end() && *found == character, "characters: ", name_of(character),
               " is not in the vocabulary");
    ids.push_back(static_cast<int32_t>(found - characters_.begin()));
  });
}

std::string CharVocabulary::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) {
    TERN_CHECK(id >= 0 && id < size(), "characters: id ", id, " of ", size());
    unicode::append_utf8(text, characters_[static_cast<size_t>(id)]);
  }
  return text;
}

}  // namespace tern::data
