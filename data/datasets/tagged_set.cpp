#include "tern/data/datasets/tagged_set.h"

#include <algorithm>

#include "tern/core/io/input_file.h"
#include "tern/data/datasets/label_index.h"
#include "tern/data/files/utf8.h"
#include "tern/kernels/base/check.h"

namespace tern::data {
namespace {

constexpr const char* kTaggedSpace = " \t\r";

std::vector<std::string> columns_of(const std::string& line) {
  std::vector<std::string> columns;
  for (size_t at = line.find_first_not_of(kTaggedSpace); at < line.size();) {
    const size_t end = std::min(line.find_first_of(kTaggedSpace, at), line.size());
    columns.push_back(line.substr(at, end - at));
    at = line.find_first_not_of(kTaggedSpace, end);
  }
  return columns;
}

}  // namespace

TaggedSet read_conll(const std::string& path, const std::vector<std::string>& known_tags) {
  TaggedSet set;
  InputStream in(path);
  LabelIndex index(known_tags);
  size_t count = 0;
  std::string line, valid;
  const auto end_sentence = [&] {
    if (static_cast<int64_t>(set.words.size()) > set.offsets.back())
      set.offsets.push_back(static_cast<int64_t>(set.words.size()));
  };
  for (int64_t number = 1; next_line(in, line, path, number); ++number) {
    const Location where{path, number};
    if (number == 1 && line.starts_with("\xef\xbb\xbf")) line.erase(0, 3);
    valid.clear();
    append_valid_utf8(line, valid);
    const std::vector<std::string> columns = columns_of(valid);
    if (columns.empty()) {
      end_sentence();
      continue;
    }
    if (columns[0].starts_with("-DOCSTART-")) continue;
    TERN_CHECK(columns.size() >= 2, where, ": expected a word and its tag, got one column");
    if (count == 0) count = columns.size();
    TERN_CHECK(columns.size() == count, where, ": expected ", count, " columns as in the lines before, got ",
               columns.size());
    set.words.push_back(columns[0]);
    set.tags.push_back(index.id(columns.back(), where));
  }
  end_sentence();
  TERN_CHECK(set.size() > 0, path, ": no words; expected a word and its tag a line");
  set.tag_names = index.finish(path, set.tags, LabelOrder::kByName);
  return set;
}

TaggedTokens tokenize(const TaggedSet& set, const Tokenizer& tokenizer, int64_t max_length) {
  TERN_CHECK(max_length >= 2, "tokenize: max_length must be at least 2, for [CLS] and [SEP], got ", max_length);
  TaggedTokens tagged;
  std::vector<int32_t>& ids = tagged.tokens.ids;
  std::vector<int32_t> pieces;
  for (int64_t sentence = 0; sentence < set.size(); ++sentence) {
    const auto end = static_cast<size_t>(tagged.tokens.offsets.back() + max_length - 1);  // room for [SEP]
    ids.push_back(tokenizer.cls_id());
    for (int64_t word = set.offsets[static_cast<size_t>(sentence)];
         word < set.offsets[static_cast<size_t>(sentence) + 1]; ++word) {
      pieces.clear();
      tokenizer.encode(set.words[static_cast<size_t>(word)], pieces);
      tagged.labels.resize(ids.size(), kIgnoredLabel);
      if (!pieces.empty()) tagged.labels.push_back(set.tags[static_cast<size_t>(word)]);
      ids.insert(ids.end(), pieces.begin(), pieces.end());
      if (ids.size() >= end) break;
    }
    ids.resize(std::min(ids.size(), end));
    ids.push_back(tokenizer.sep_id());
    tagged.labels.resize(ids.size() - 1, kIgnoredLabel);
    tagged.labels.push_back(kIgnoredLabel);
    tagged.tokens.offsets.push_back(static_cast<int64_t>(ids.size()));
  }
  return tagged;
}

std::function<void(TokenBatch& batch)> TaggedTokens::labels_of(std::shared_ptr<const TaggedTokens> tagged) {
  return [tagged = std::move(tagged)](TokenBatch& batch) {
    const int64_t rows = batch.tokens.size(0);
    batch.labels = full({rows}, kIgnoredLabel, {.dtype = DType::kInt64});
    for (size_t sequence = 0; sequence < batch.rows.size(); ++sequence) {
      const int64_t row = batch.rows[sequence], length = static_cast<int64_t>(tagged->tokens.row(row).size());
      std::copy_n(tagged->labels.begin() + tagged->tokens.offsets[static_cast<size_t>(row)], length,
                  batch.labels.data<int64_t>() + batch.first_rows.data<int64_t>()[sequence]);
    }
  };
}

}  // namespace tern::data
