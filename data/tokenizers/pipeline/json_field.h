#pragma once
// A value of a JSON file together with its place, so that every error says where it is.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "tern/core/io/json.h"
#include "tern/core/io/pickle.h"
#include "tern/data/files/utf8.h"
#include "tern/kernels/base/check.h"

namespace tern::data {

/// A value in a file of JSON. It refers to the value and the file's name, which must outlive it.
class JsonField {
 public:
  JsonField(const nlohmann::json& value, const std::string& file, std::string path = "")
      : value_(&value), file_(&file), path_(std::move(path)) {}

  const nlohmann::json& value() const { return *value_; }
  std::string where() const { return *file_ + ": " + (path_.empty() ? "/" : path_); }
  [[noreturn]] void reject(const std::string& expected) const {
    fail(where(), ": expected ", expected, ", got ", shortened(*value_));
  }

  /// The member of an object; nothing if it is absent or null.
  std::optional<JsonField> find(const char* key) const {
    if (!value_->is_object()) reject("an object");
    const auto found = value_->find(key);
    if (found == value_->end() || found->is_null()) return std::nullopt;
    return JsonField(*found, *file_, path_ + "/" + key);
  }
  JsonField at(const char* key) const {
    std::optional<JsonField> found = find(key);
    if (!found) fail(where(), ": \"", key, "\" is missing; got ", shortened(*value_));
    return *found;
  }
  /// The elements of an array.
  std::size_t size() const {
    if (!value_->is_array()) reject("an array");
    return value_->size();
  }
  JsonField operator[](std::size_t i) const { return JsonField((*value_)[i], *file_, path_ + "/" + std::to_string(i)); }
  /// A member whose name is a token of a vocabulary.
  JsonField member(const std::string& key, const nlohmann::json& value) const {
    return JsonField(value, *file_, path_ + "/" + detail::printable(key));
  }

  const std::string& text() const {
    if (!value_->is_string()) reject("a text");
    return value_->get_ref<const std::string&>();
  }
  bool boolean() const {
    if (!value_->is_boolean()) reject("true or false");
    return value_->get<bool>();
  }
  std::int64_t integer(std::int64_t least, std::int64_t greatest) const {
    const std::optional<std::int64_t> number = integer_in(*value_);
    if (!number || *number < least || *number > greatest)
      reject("a whole number from " + std::to_string(least) + " to " + std::to_string(greatest));
    return *number;
  }
  std::int32_t token_id() const { return static_cast<std::int32_t>(integer(0, INT32_MAX - 1)); }
  double number() const {
    if (!value_->is_number()) reject("a number");
    return value_->get<double>();
  }

  bool boolean_or(const char* key, bool other) const {
    const auto found = find(key);
    return found ? found->boolean() : other;
  }
  std::string text_or(const char* key, const std::string& other) const {
    const auto found = find(key);
    return found ? found->text() : other;
  }
  /// A text of one code point.
  const std::string& one_character() const {
    const std::string& found = text();
    const char *p = found.data(), *end = p + found.size();
    if (p < end) unicode::decode_utf8(p, end);
    if (found.empty() || p != end) reject("one character");
    return found;
  }

 private:
  const nlohmann::json* value_;
  const std::string* file_;
  std::string path_;
};

}  // namespace tern::data
