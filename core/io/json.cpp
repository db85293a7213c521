#include "tern/core/io/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "tern/core/io/input_file.h"
#include "tern/core/io/pickle.h"
#include "tern/kernels/base/check.h"

namespace tern {
namespace {

using Json = nlohmann::json;

constexpr int kNumberOverflow = 406;  // the parser's error number for this

/// Builds the value from the parser's events, with the checks that the library's builder lacks.
class Builder {
 public:
  Builder(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  Json take() { return std::move(root_); }

  // The parser's callbacks, by the required names. False would end parsing without a message: errors are thrown.
  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(int64_t value) { return add(value); }
  bool number_unsigned(uint64_t value) { return add(value); }
  bool number_float(double value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(Json::binary_t&) { return false; }  // cannot occur in text
  bool start_object(size_t) { return open(Json::object()); }
  bool start_array(size_t) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    const auto [place, added] = open_.back()->get_ref<Json::object_t&>().emplace(name, nullptr);
    TERN_CHECK(added, source_, ": the name '", detail::printable(name), "' occurs twice in an object");
    member_ = &place->second;
    return true;
  }

  bool parse_error(size_t position, const std::string& token, const nlohmann::detail::exception& error) {
    const std::string where = place_of(position);
    TERN_CHECK(error.id != kNumberOverflow, source_, ": the number ", detail::printable(token, 40),
               " is too large for 64 bits of floating point (", where, ")");
    fail(source_, ": not valid JSON (", where, ")");
  }

 private:
  /// The location of an error after `position` bytes.
  std::string place_of(size_t position) const {
    const std::string_view before = text_.substr(0, position > 0 ? position - 1 : 0);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const size_t start = line > 1 ? before.rfind('\n') + 1 : 0;
    const std::string byte = "byte " + std::to_string(position - std::min(position, start));
    return line > 1 ? "line " + std::to_string(line) + ", " + byte : "at " + byte;
  }

  bool add(Json value) {
    place(std::move(value));
    return true;
  }

  bool open(Json container) {
    TERN_CHECK(open_.size() < kMaxJsonDepth, source_, ": nested more than ", kMaxJsonDepth, " levels deep");
    open_.push_back(place(std::move(container)));
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  /// Stores a value. The pointer is valid until the enclosing container grows, and by then the value is closed.
  Json* place(Json value) {
    Json* target = &root_;
    if (!open_.empty() && open_.back()->is_array()) {
      auto& items = open_.back()->get_ref<Json::array_t&>();
      items.push_back(std::move(value));
      return &items.back();
    }
    if (!open_.empty()) target = member_;
    *target = std::move(value);
    return target;
  }

  const std::string_view text_;
  const std::string& source_;
  Json root_;
  std::vector<Json*> open_;  // the containers that enclose the next value
  Json* member_ = nullptr;   // the member of the innermost object whose name was read last
};

template <class AnyJson>
std::string start_of(const AnyJson& value) {
  return detail::printable(value.dump(-1, ' ', false, AnyJson::error_handler_t::replace), 60);
}

}  // namespace

Json parse_json(std::string_view text, const std::string& source) {
  Builder builder(text, source);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

Json parse_json_object(std::string_view text, const std::string& source) {
  Json value = parse_json(text, source);
  TERN_CHECK(value.is_object(), source, ": not a JSON object");
  return value;
}

Json read_json_object(const std::string& path) {
  const std::string text = read_whole_file(path);
  TERN_CHECK(!text.empty(), path, ": the file is empty");
  return parse_json_object(text, path);
}

std::string shortened(const nlohmann::json& value) { return start_of(value); }
std::string shortened(const nlohmann::ordered_json& value) { return start_of(value); }

}  // namespace tern
