#include "tern/data/datasets/tagged_set.h"

#include <algorithm>
#include <set>

#include "tern/core/io/input_file.h"
#include "tern/core/io/pickle.h"
#include "tern/data/datasets/delimited.h"
#include "tern/data/datasets/label_index.h"
#include "tern/data/datasets/utf8.h"
#include "tern/kernels/base/check.h"

namespace tern::data {
namespace {

constexpr const char* kTaggedSpace = " \t\r";

/// The column of one of the names, in any case.
size_t named_column(const std::vector<std::string>& names, const std::vector<std::string>& header,
                    const Location& where) {
  for (size_t i = 0; i < header.size(); ++i)
    if (std::find(names.begin(), names.end(), lower_ascii(trim(header[i]))) != names.end()) return i;
  fail(where, ": no column ", join(names, " or "), "; found: ", join(header, ", "));
}

/// Each name's index in the row of targets of a text.
using LabelRow = std::vector<std::string>;

LabelRow split_labels(std::string_view field, char separator) {
  LabelRow labels;
  while (!field.empty()) {
    const std::string_view name = trim(field.substr(0, field.find(separator)));
    field.remove_prefix(std::min(field.find(separator), field.size() - 1) + 1);
    if (!name.empty()) labels.emplace_back(name);
  }
  return labels;
}

/// The labels whose columns hold 1.
LabelRow set_labels(const std::vector<std::string>& fields, const std::vector<size_t>& columns,
                    const std::vector<std::string>& names, const Location& where) {
  LabelRow labels;
  for (size_t i = 0; i < columns.size(); ++i) {
    const std::string_view field = trim(fields[columns[i]]);
    TERN_CHECK(field == "0" || field == "1", where, ": column ", columns[i] + 1, " (", names[i],
               "): expected 0 or 1, got \"", detail::printable(field), "\"");
    if (field == "1") labels.push_back(names[i]);
  }
  return labels;
}

Tensor label_matrix(const std::vector<LabelRow>& rows, const std::vector<std::string>& names) {
  const int64_t columns = static_cast<int64_t>(names.size());
  const Tensor targets = zeros({static_cast<int64_t>(rows.size()), columns});
  for (size_t row = 0; row < rows.size(); ++row)
    for (const std::string& label : rows[row]) {
      const auto column = std::find(names.begin(), names.end(), label) - names.begin();
      targets.data<float>()[static_cast<int64_t>(row) * columns + column] = 1;
    }
  return targets;
}

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

MultiLabelSet read_multi_label(const std::string& path, const std::vector<std::string>& columns, char separator) {
  MultiLabelSet set;
  set.texts.name = path;
  InputStream in(path);
  DelimitedReader reader(in, lower_ascii(path).ends_with(".tsv") ? '\t' : ',', path);
  std::vector<std::string> header, fields;
  TERN_CHECK(reader.next(header), path, ": the file is empty; expected a header row with a text column and labels");
  const Location top{path, reader.line()};
  const size_t text = named_column({"text", "sentence", "review"}, header, top);
  std::vector<size_t> places;
  for (const std::string& name : columns) places.push_back(named_column({lower_ascii(name)}, header, top));
  const size_t list = columns.empty() ? named_column({"labels", "label"}, header, top) : 0;
  std::vector<LabelRow> rows;
  while (reader.next(fields)) {
    const Location where{path, reader.line()};
    TERN_CHECK(fields.size() == header.size(), where, ": expected ", header.size(), " fields as in the header, got ",
               fields.size());
    set.texts.add(fields[text], 0);
    rows.push_back(columns.empty() ? split_labels(fields[list], separator)
                                   : set_labels(fields, places, columns, where));
  }
  TERN_CHECK(!rows.empty(), path, ": no rows after the header");
  set.label_names = columns;
  if (columns.empty()) {
    std::set<std::string> names;
    for (const LabelRow& row : rows) names.insert(row.begin(), row.end());
    set.label_names.assign(names.begin(), names.end());
    TERN_CHECK(!names.empty(), path, ": no row has a label");
  }
  set.texts.label_names = {""};
  set.targets = label_matrix(rows, set.label_names);
  return set;
}

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

TaggedTokens tokenize(const TaggedSet& set, const WordPiece& tokenizer, int64_t max_length) {
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

std::function<void(TokenBatch& batch)> row_targets(const Tensor& targets) {
  TERN_CHECK(targets.dim() == 2 && targets.dtype() == DType::kFloat32 && targets.device().is_cpu(),
             "row_targets: expected float32 [rows, columns] on the CPU, got ", targets.describe());
  return [targets = targets.contiguous()](TokenBatch& batch) {
    const int64_t columns = targets.size(1);
    batch.labels = full({batch.sequences(), columns}, kIgnoredLabel);
    for (size_t sequence = 0; sequence < batch.rows.size(); ++sequence) {
      const int64_t row = batch.rows[sequence];
      TERN_CHECK(row < targets.size(0), "row_targets: row ", row, " of ", targets.size(0));
      std::copy_n(targets.data<float>() + row * columns, columns,
                  batch.labels.data<float>() + static_cast<int64_t>(sequence) * columns);
    }
  };
}

}  // namespace tern::data
