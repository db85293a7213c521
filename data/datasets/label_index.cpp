#include "tern/data/datasets/label_index.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include "tern/core/io/pickle.h"
#include "tern/data/datasets/utf8.h"
#include "tern/kernels/base/check.h"

namespace tern::data {
namespace {

/// Two names with the same key are the same label: letter case is ignored, and "neg" and "pos" are expanded.
std::string label_key(std::string_view name) {
  std::string key = lower_ascii(name);
  if (key == "neg") return "negative";
  if (key == "pos") return "positive";
  return key;
}

bool all_integers(const std::vector<std::string>& names) {
  int64_t value = 0;
  return std::all_of(names.begin(), names.end(), [&](const std::string& name) { return parse_integer(name, value); });
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Location& location) {
  out << location.file;
  if (location.line > 0) out << ':' << location.line;
  return out;
}

bool parse_integer(std::string_view text, int64_t& value) {
  const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
  if (digits.empty() || digits.size() > 18 || (digits[0] == '0' && text != "0")) return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  const size_t begin = text.find_first_not_of(kSpace);
  return begin == text.npos ? std::string_view() : text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::string lower_ascii(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += separator;
    text += parts[i];
  }
  return text;
}

std::string shown_names(const std::vector<std::string>& names) {
  constexpr size_t kMax = 20;
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(names.size(), kMax); ++i) shown.push_back(tern::detail::printable(names[i]));
  const std::string text = join(shown, ", ");
  return names.size() <= kMax ? text : text + ", ... (" + std::to_string(names.size()) + " in all)";
}

LabelIndex::LabelIndex(std::vector<std::string> known) : known_(std::move(known)) {
  int64_t value = 0;
  placeholders_ = !known_.empty();
  for (size_t i = 0; i < known_.size(); ++i) {
    placeholders_ = placeholders_ && known_[i] == "LABEL_" + std::to_string(i);
    known_integers_ = known_integers_ || parse_integer(known_[i], value);
  }
}

int32_t LabelIndex::known_id(const std::string& label, const Location& where) const {
  const int64_t count = static_cast<int64_t>(known_.size());
  const auto named = std::find(known_.begin(), known_.end(), label);
  TERN_CHECK(std::count(named, known_.end(), label) <= 1, where, ": label \"", label,
             "\" is the name of two labels of the model, so which one is meant is not clear; give them names of their "
             "own in id2label of its config.json");
  if (named != known_.end()) return static_cast<int32_t>(named - known_.begin());
  const std::string key = label_key(label);
  for (int64_t i = 0; i < count; ++i) {
    if (label_key(known_[i]) == key) return static_cast<int32_t>(i);
  }
  int64_t value = 0;
  const bool index = !known_integers_ && parse_integer(label, value) && value >= 0 && value < count;
  TERN_CHECK(index, where, ": unknown label \"", tern::detail::printable(label),
             "\"; the model has: ", shown_names(known_));
  return static_cast<int32_t>(value);
}

int32_t LabelIndex::id(std::string_view label, const Location& where) {
  const std::string name(trim(label));
  TERN_CHECK(!name.empty(), where, ": the label is empty");
  std::string valid;
  TERN_CHECK(append_valid_utf8(name, valid) == 0, where, ": the label is not UTF-8, it reads \"", valid, "\"");
  const auto found = ids_.find(name);
  if (found != ids_.end()) return found->second;
  const bool free = known_.empty() || placeholders_;
  const int32_t id = free ? static_cast<int32_t>(names_.size()) : known_id(name, where);
  names_.push_back(name);
  ids_.emplace(name, id);
  return id;
}

std::vector<std::string> LabelIndex::finish(std::string_view source, std::vector<int32_t>& labels,
                                            LabelOrder label_order) {
  if (!known_.empty() && !placeholders_) return known_;
  const bool numeric = label_order == LabelOrder::kIntegersByValue && all_integers(names_);
  std::vector<int32_t> order(names_.size());
  std::iota(order.begin(), order.end(), 0);
  const auto number = [&](int32_t i) {
    int64_t value = 0;
    parse_integer(names_[i], value);
    return value;
  };
  std::sort(order.begin(), order.end(),
            [&](int32_t a, int32_t b) { return numeric ? number(a) < number(b) : names_[a] < names_[b]; });
  std::vector<std::string> sorted;
  std::vector<int64_t> rank(names_.size());
  for (size_t i = 0; i < order.size(); ++i) {
    // The outputs have no names, so an integer label is the output's index.
    rank[order[i]] = placeholders_ && numeric ? number(order[i]) : static_cast<int64_t>(i);
    sorted.push_back(names_[order[i]]);
  }
  if (placeholders_) {
    const int64_t count = static_cast<int64_t>(known_.size());
    const bool fits = std::all_of(rank.begin(), rank.end(), [&](int64_t id) { return id >= 0 && id < count; });
    TERN_CHECK(fits, source, ": has the labels ", shown_names(sorted), ", but the model has ", count,
               " outputs without names");
  }
  for (int32_t& label : labels) label = static_cast<int32_t>(rank[label]);
  return placeholders_ ? known_ : sorted;
}

}  // namespace tern::data
