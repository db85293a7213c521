#include "tern/data/datasets/target_set.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tern/core/io/file_kind.h"
#include "tern/core/io/json.h"
#include "tern/core/io/pickle.h"
#include "tern/data/datasets/columns.h"
#include "tern/data/datasets/label_index.h"
#include "tern/data/datasets/table.h"
#include "tern/data/files/delimited.h"
#include "tern/data/files/json_lines.h"
#include "tern/kernels/base/check.h"

namespace tern::data {
namespace {

const ColumnKind kListColumn = {"labels", {"labels", "label"}};
const ColumnKind kNumberColumn = {"number", {"label", "score"}};

/// The labels of a text.
using LabelRow = std::vector<std::string>;

std::string extension_of(const std::string& path) {
  return lower_ascii(std::filesystem::path(path).extension().string());
}

/// Reads a .csv or .tsv file: `on_header` gets the names of the columns, `on_row` the fields of each record.
void read_records(const std::string& path, const LogLine& log,
                  const std::function<void(const std::vector<std::string>& header, const Location& where)>& on_header,
                  const std::function<void(const std::vector<std::string>& fields, const Location& where)>& on_row) {
  DelimitedFile reader(path, log);
  std::vector<std::string> header, fields;
  TERN_CHECK(reader.next(header), path, ": the file is empty; expected a header row with a text column and labels");
  on_header(header, {path, reader.line()});
  int64_t rows = 0;
  for (; reader.next(fields); ++rows) {
    const Location where{path, reader.line()};
    TERN_CHECK(fields.size() == header.size(), where, ": expected ", header.size(), " fields as in the header, got ",
               fields.size());
    on_row(fields, where);
  }
  TERN_CHECK(rows > 0, path, ": no rows after the header");
}

/// Reads a .jsonl file. `on_object` may return false, which ends the reading.
void read_objects(const std::string& path,
                  const std::function<bool(const nlohmann::json& object, const std::vector<std::string>& names,
                                           const Location& where)>& on_object) {
  JsonLines lines(path);
  bool any = false;
  for (std::string line; lines.next(line); any = true) {
    const nlohmann::json object = parse_json_object(line, tern::detail::concatenate(lines.where()));
    std::vector<std::string> names;
    for (const auto& item : object.items()) names.push_back(item.key());
    if (!on_object(object, names, lines.where())) return;
  }
  TERN_CHECK(any, path, ": no rows; expected one JSON object a line");
}

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
               "): expected 0 or 1, got \"", tern::detail::printable(field), "\"");
    if (field == "1") labels.push_back(names[i]);
  }
  return labels;
}

LabelRow listed_labels(const nlohmann::json& value, char separator, const Location& where) {
  if (value.is_string()) return split_labels(value.get_ref<const std::string&>(), separator);
  TERN_CHECK(value.is_array(), where, ": the labels must be a list or a string of names separated by '", separator,
             "', got ", value.type_name());
  LabelRow labels;
  for (const nlohmann::json& label : value) {
    const std::optional<std::string> name = label_name(label);
    TERN_CHECK(name, where, ": each label must be a string, a number, true or false, got ", shortened(label));
    TERN_CHECK(!trim(*name).empty(), where, ": a label is empty");
    labels.emplace_back(trim(*name));
  }
  return labels;
}

/// Collects the labels of texts; their ids are known at the end.
class LabelRows {
 public:
  /// The columns of 0 and 1 are known labels too.
  explicit LabelRows(const MultiLabelOptions& options)
      : index_(options.known_labels.empty() ? options.columns : options.known_labels, options.log),
        any_name_(options.known_labels.empty() && options.columns.empty()) {}

  void add(const LabelRow& labels, const Location& where) {
    for (const std::string& label : labels) ids_.push_back(index_.id(label, where));
    ends_.push_back(ids_.size());
  }
  void finish(TargetSet& set) {
    TERN_CHECK(!ids_.empty() || !any_name_, set.texts.name, ": no row has a label");
    set.label_names =
        index_.finish(set.texts.name, ids_, any_name_ ? LabelOrder::kByName : LabelOrder::kIntegersByValue);
    const auto width = static_cast<int64_t>(set.label_names.size());
    set.targets = zeros({static_cast<int64_t>(ends_.size()), width});
    float* row = set.targets.data<float>();
    size_t next = 0;
    for (const size_t end : ends_) {
      for (; next < end; ++next) row[ids_[next]] = 1;
      row += width;
    }
  }

 private:
  LabelIndex index_;
  const bool any_name_;
  std::vector<int32_t> ids_;  // of all rows
  std::vector<size_t> ends_;  // of each row's ids
};

void read_delimited_labels(const std::string& path, const MultiLabelOptions& options, TargetSet& set, LabelRows& rows) {
  TextColumns texts;
  size_t list = 0;
  std::vector<size_t> places;
  read_records(
      path, options.log,
      [&](const std::vector<std::string>& header, const Location& where) {
        texts = TextColumns::find(header, where);
        for (const std::string& name : options.columns)
          places.push_back(find_column({"label", {lower_ascii(name)}}, header, where));
        if (places.empty()) list = find_column(kListColumn, header, where);
      },
      [&](const std::vector<std::string>& fields, const Location& where) {
        add_row(set.texts, texts.of(fields), 0, where);
        rows.add(places.empty() ? split_labels(fields[list], options.separator)
                                : set_labels(fields, places, options.columns, where),
                 where);
      });
}

float finite(double value, std::string_view text, const Location& where) {
  const auto rounded = static_cast<float>(value);
  TERN_CHECK(std::isfinite(rounded), where, ": the label \"", tern::detail::printable(text),
             "\" is not finite in float32; correct it, or leave the row out");
  return rounded;
}

float number_of(std::string_view text, const Location& where) {
  TERN_CHECK(!text.empty(), where, ": the label is empty; expected a number");
  const std::optional<double> value = parse_decimal(text);
  TERN_CHECK(value, where, ": the label must be a number, got \"", tern::detail::printable(text), "\"");
  return finite(*value, text, where);
}

void check_extension(const std::string& path, const char* what) {
  TERN_CHECK(is_text_table(path), "\"", path, "\": ", what, " are read from a .csv, .tsv or .jsonl file");
}

}  // namespace

bool is_text_table(const std::string& path) {
  const std::string extension = extension_of(path);
  return extension == ".csv" || extension == ".tsv" || extension == ".jsonl";
}

void read_texts(const std::string& path, const std::function<void(const TextRow& row)>& use) {
  check_extension(path, "texts");
  if (extension_of(path) == ".jsonl") {
    read_objects(path, [&](const nlohmann::json& object, const std::vector<std::string>& names, const Location& where) {
      use(text_row(object, names, where));
      return true;
    });
    return;
  }
  TextColumns texts;
  read_records(
      path, {},
      [&](const std::vector<std::string>& header, const Location& where) { texts = TextColumns::find(header, where); },
      [&](const std::vector<std::string>& fields, const Location&) { use(texts.of(fields)); });
}

TargetSet read_multi_label(const std::string& path, const MultiLabelOptions& options) {
  check_extension(path, "several labels for each text");
  TargetSet set;
  set.texts.name = path;
  LabelRows rows(options);
  if (extension_of(path) == ".jsonl") {
    TERN_CHECK(options.columns.empty(), path, ": columns of 0 and 1 are for .csv and .tsv files");
    read_objects(path, [&](const nlohmann::json& object, const std::vector<std::string>& names, const Location& where) {
      add_row(set.texts, text_row(object, names, where), 0, where);
      const nlohmann::json& labels = object[names[find_column(kListColumn, names, where)]];
      rows.add(listed_labels(labels, options.separator, where), where);
      return true;
    });
  } else {
    read_delimited_labels(path, options, set, rows);
  }
  set.texts.label_names = {""};
  rows.finish(set);
  return set;
}

TargetSet read_numbers(const std::string& path, const LogLine& log) {
  check_extension(path, "a number for each text");
  TargetSet set;
  set.texts.name = path;
  std::vector<float> values;
  if (extension_of(path) == ".jsonl") {
    read_objects(path, [&](const nlohmann::json& object, const std::vector<std::string>& names, const Location& where) {
      add_row(set.texts, text_row(object, names, where), 0, where);
      const nlohmann::json& label = object[names[find_column(kNumberColumn, names, where)]];
      TERN_CHECK(label.is_number(), where, ": the label must be a number, got ", shortened(label));
      values.push_back(finite(label.get<double>(), label.dump(), where));
      return true;
    });
  } else {
    TextColumns texts;
    size_t column = 0;
    read_records(
        path, log,
        [&](const std::vector<std::string>& header, const Location& where) {
          texts = TextColumns::find(header, where);
          column = find_column(kNumberColumn, header, where);
        },
        [&](const std::vector<std::string>& fields, const Location& where) {
          add_row(set.texts, texts.of(fields), 0, where);
          values.push_back(number_of(trim(fields[column]), where));
        });
  }
  set.texts.label_names = {""};
  set.label_names = {"LABEL_0"};
  set.targets = from_vector(values, {static_cast<int64_t>(values.size()), 1});
  return set;
}

LabelKind label_kind_of(const std::string& source) {
  const std::string extension = extension_of(source);
  if (!tern::detail::name_exists(source) || std::filesystem::is_directory(source)) return LabelKind::kOne;
  const auto by_names = [](const std::vector<std::string>& names) {
    bool several = false, one = false;
    for (const std::string& name : names) {
      const std::string lower = lower_ascii(trim(name));
      several = several || lower == "labels";
      one = one || lower == "label" || lower == "sentiment";
    }
    return several && !one ? LabelKind::kSeveral : LabelKind::kOne;
  };
  LabelKind kind = LabelKind::kOne;
  if (extension == ".jsonl") {
    read_objects(source, [&](const nlohmann::json& object, const std::vector<std::string>& names, const Location&) {
      kind = by_names(names);
      for (const auto& item : object.items())
        if (lower_ascii(item.key()) == "label" && item.value().is_array()) kind = LabelKind::kSeveral;
      return false;
    });
  } else if (extension == ".csv" || extension == ".tsv") {
    DelimitedFile reader(source);
    std::vector<std::string> header;
    if (reader.next(header)) kind = by_names(header);
  }
  return kind;
}

std::function<void(TokenBatch& batch)> row_targets(const Tensor& targets, float filler) {
  TERN_CHECK(targets.dim() == 2 && targets.dtype() == DType::kFloat32 && targets.device().is_cpu(),
             "row_targets: expected float32 [rows, columns] on the CPU, got ", targets.describe());
  return [targets = targets.contiguous(), filler](TokenBatch& batch) {
    const int64_t columns = targets.size(1);
    batch.labels = full({batch.sequences(), columns}, filler);
    for (size_t sequence = 0; sequence < batch.rows.size(); ++sequence) {
      const int64_t row = batch.rows[sequence];
      TERN_CHECK(row < targets.size(0), "row_targets: row ", row, " of ", targets.size(0));
      std::copy_n(targets.data<float>() + row * columns, columns,
                  batch.labels.data<float>() + static_cast<int64_t>(sequence) * columns);
    }
  };
}

}  // namespace tern::data
