#pragma once
// Reading and writing a config.json as Hugging Face's transformers keeps it beside the weights.

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace tern::models {

/// Typed access to the fields of a config.json; remembers which were read. A field that is JSON's null counts as
/// absent. Every error names the source and the field.
class ConfigFields {
 public:
  using Json = nlohmann::ordered_json;  // what is written, in the order of its fields

  /// Throws Error unless `text` is a JSON object (parse_json_object). `source` names it in errors.
  ConfigFields(const std::string& text, const std::string& source);

  // Each leaves `value` as it is where the field is absent, and throws Error where its type is another.
  void read(const char* name, int64_t& value);
  void read(const char* name, double& value);
  void read(const char* name, bool& value);
  void read(const char* name, std::string& value);
  /// The field, or null when it is absent.
  const nlohmann::json* take(const char* name);
  bool is_null(const char* name) const;
  /// The label names in the order of their numbers, from id2label, label2id or num_labels; LABEL_0 and LABEL_1 where
  /// there are none of them. Throws Error where they contradict each other.
  std::vector<std::string> read_labels();
  /// Throws Error unless problem_type, where given, is single_label_classification.
  void require_single_label();
  /// Throws Error for a field that was not read, unless it is one that does not change what any model computes.
  /// `family` names the configuration in the message.
  void reject_unknown(const std::string& family) const;

 private:
  nlohmann::json object_;
  std::string source_;
  std::set<std::string> known_;
};

/// id2label and label2id.
void write_labels(ConfigFields::Json& json, const std::vector<std::string>& labels);

/// Rules for values of a configuration, whose names are those of the model's own config.json. All throw Error, which
/// begins with `source`.
class ConfigRules {
 public:
  explicit ConfigRules(std::string source) : source_(std::move(source)) {}
  /// In [1, most].
  void positive(const char* name, int64_t value, int64_t most) const;
  /// In [0, 1].
  void fraction(const char* name, double value) const;
  /// Divide the width into as many dimensions as attention takes.
  void heads(const char* width_name, int64_t width, const char* name, int64_t heads) const;
  /// gelu or relu.
  void activation(const char* name, const std::string& value) const;
  void initializer_range(double value) const;

 private:
  std::string source_;
};

/// Throws Error unless there are labels, all distinct.
void check_labels(const std::vector<std::string>& labels, const std::string& source);

/// The whole text file `name` of a model folder. Throws Error when it is missing, unreadable, empty or no regular file.
std::string read_model_text(const std::string& dir, const std::string& name);

}  // namespace tern::models
