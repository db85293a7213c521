#pragma once
// Reads and writes config.json files of Hugging Face's transformers.

#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "tern/data/datasets/labelled_set.h"
#include "tern/models/log.h"

namespace tern::models {

/// A field of a config.json and the member that holds it: one table serves reading, checking and writing.
template <class Config>
struct ConfigField {
  const char* name;
  std::variant<int64_t Config::*, double Config::*, bool Config::*, std::string Config::*> member;
  double max = 1;  // of a number; the minimum is 1 for integers and 0 for others
};

/// Typed access to the fields of a config.json; records which were read. A null field counts as absent. Every error
/// names the source and the field.
class ConfigFields {
 public:
  using Json = nlohmann::ordered_json;  // for output, keeps the order of fields

  /// Throws Error unless `text` is a JSON object (parse_json_object). `source` names it in errors.
  ConfigFields(const std::string& text, const std::string& source);

  /// Leaves `value` (int64_t, double, bool or std::string) unchanged if the field is absent. Throws Error if its type
  /// is wrong.
  template <class T>
  void read(const char* name, T& value);
  /// Reads all fields of a table.
  template <class Config, size_t n>
  void read(const ConfigField<Config> (&table)[n], Config& config) {
    for (const auto& field : table) std::visit([&](auto member) { read(field.name, config.*member); }, field.member);
  }
  /// The model_type, by default the first of `types`. Throws Error unless it is one of them.
  std::string read_type(const std::vector<std::string>& types);
  /// What text models have in common: members padding_id ("pad_token_id", -1: null), labels and label_kind.
  template <class Config>
  void read_text_fields(Config& config) {
    if (is_null("pad_token_id")) config.padding_id = -1;
    read("pad_token_id", config.padding_id);
    config.labels = read_labels();
    config.label_kind = read_label_kind(config.labels.size());
  }
  /// The field, or null if absent.
  const nlohmann::json* take(const char* name);
  bool is_null(const char* name) const;
  /// Reads the side of a square: an integer or a list of two equal ones. Throws Error for another list.
  void read_side(const char* name, int64_t& value);
  /// The label names in the order of their ids, as transformers reads them; names may repeat. They are those of
  /// id2label, whatever label2id says, else those of label2id, if it has the numbers from 0 on; but LABEL_0, LABEL_1,
  /// ... if num_labels (2 without id2label) is another number. Throws Error if the keys of id2label are not the numbers
  /// from 0 on.
  std::vector<std::string> read_labels();
  /// By problem_type; where it is absent, a number for one label, as in transformers, and one of several labels. Throws
  /// Error on another.
  data::LabelKind read_label_kind(size_t labels);
  /// Throws Error unless problem_type is absent or single_label_classification.
  void require_single_label();
  /// Throws Error for a setting of transformers that changes any model's output and that Tern does not have.
  void reject_not_implemented();
  /// Throws Error for a field that was not read, except those that never change a model's output. `family` names the
  /// configuration in the message. For configurations that are Tern's own.
  void reject_unknown(const std::string& family) const;
  /// The same fields in one line of `log`, if there are any: transformers keeps fields that it does not know and
  /// computes the same with them.
  void ignore_unknown(const Log& log) const;

 private:
  /// The names of at most 20 such fields, and how many there are.
  std::string unknown(int& count) const;

  nlohmann::json object_;
  std::string source_;
  std::set<std::string> known_;
};

template <class Config, size_t n>
void write_fields(ConfigFields::Json& json, const ConfigField<Config> (&table)[n], const Config& config) {
  for (const auto& field : table) std::visit([&](auto member) { json[field.name] = config.*member; }, field.member);
}

/// problem_type of a config.json.
const char* problem_type(data::LabelKind kind);

/// LABEL_0, LABEL_1, ...: the names of labels that have none.
std::vector<std::string> numbered_labels(int64_t count);

/// Writes id2label and label2id.
void write_labels(ConfigFields::Json& json, const std::vector<std::string>& labels);

/// Writes what ConfigFields::read_text_fields() reads.
template <class Config>
void write_text_fields(ConfigFields::Json& json, const Config& config) {
  write_labels(json, config.labels);
  json["pad_token_id"] = config.padding_id >= 0 ? ConfigFields::Json(config.padding_id) : ConfigFields::Json(nullptr);
  json["problem_type"] = problem_type(config.label_kind);
}

/// Checks of configuration values, under the field names of the model's config.json. All throw Error that begins with
/// `source`.
class ConfigRules {
 public:
  explicit ConfigRules(std::string source) : source_(std::move(source)) {}
  /// Requires that the numbers of a table are within their bounds.
  template <class Config, size_t n>
  void bounds(const ConfigField<Config> (&table)[n], const Config& config) const {
    for (const auto& field : table)
      std::visit([&](auto member) { bound(field.name, config.*member, field.max); }, field.member);
  }
  /// Requires that the heads divide the width into a head size that attention supports.
  void heads(const char* width_name, int64_t width, const char* name, int64_t heads) const;
  /// Requires -1 or a token of the vocabulary.
  void padding(int64_t padding_id, int64_t vocab_size) const;
  /// Requires gelu or relu.
  void activation(const char* name, const std::string& value) const;

 private:
  void bound(const char* name, int64_t value, double max) const;
  void bound(const char* name, double value, double max) const;
  void bound(const char*, bool, double) const {}
  void bound(const char*, const std::string&, double) const {}

  std::string source_;
};

/// Throws Error unless there are labels.
void check_labels(const std::vector<std::string>& labels, const std::string& source);

/// What an error about a folder or file that does not exist ends with: where the path may be the name of a model on
/// Hugging Face's hub (distilbert-base-uncased), "; " and how to fetch it. Otherwise empty.
std::string advice_for_missing(const std::string& path);

/// Whether the path is that of a file of weights; otherwise it is that of a model folder. Throws Error if there is
/// neither.
bool is_weights_file(const std::string& path);
/// The content of text file `name` in a model folder. Throws Error if it is missing, unreadable, empty or not a regular
/// file.
std::string read_model_text(const std::string& dir, const std::string& name);

}  // namespace tern::models
