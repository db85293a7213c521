#include "tern/models/cli/options/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "tern/core/io/pickle.h"
#include "tern/kernels/base/check.h"
#include "tern/models/families.h"

namespace tern::cli {
namespace {

template <class T>
constexpr bool is_text = std::is_same_v<T, std::string>;
template <class T>
constexpr bool is_whole = std::is_integral_v<T> && !std::is_same_v<T, bool>;
template <class T>
constexpr bool is_real = std::is_same_v<T, double> || std::is_same_v<T, std::optional<double>>;

/// The shortest text that is read as the same number.
template <class T>
std::string number_text(T value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

template <class T>
std::string bound_text(double bound, T limit) {
  return number_text(std::isfinite(bound) ? static_cast<T>(bound) : limit);
}

/// Sets `value` to the number that the whole text is; false when it is none that T holds. Nothing is rounded to a whole
/// number, wrapped or cut to fit.
template <class T>
bool parse_number(const std::string& text, T& value) {
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stopped == end;
}

/// Sets a value of the row's type from a text; false when the text is no such value.
bool parse(const std::string& text, OptionValue& value) {
  const auto from_text = [&](auto& stored) {
    using T = std::decay_t<decltype(stored)>;
    if constexpr (is_text<T>) {
      stored = text;
      return true;
    } else if constexpr (is_whole<T> || std::is_same_v<T, double>) {
      return parse_number(text, stored);
    } else if constexpr (is_real<T>) {
      return parse_number(text, stored.emplace());
    } else {
      return false;
    }
  };
  return std::visit(from_text, value);
}

constexpr size_t kLongestWord = 100;  // a longer word is near no option

int64_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<int64_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int64_t>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    int64_t diagonal = row[0];
    row[0] = static_cast<int64_t>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int64_t substitute = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string OptionRow::recorded_name() const {
  std::string name = spec.name;
  for (const char* prefix : {"--", "no-"})
    if (name.starts_with(prefix)) name.erase(0, std::string_view(prefix).size());
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

bool OptionRow::accepts(const OptionValue& value) const {
  const auto in_bounds = [&](double number) {
    return std::isfinite(number) && number >= spec.bounds.minimum && number <= spec.bounds.maximum;
  };
  const auto accepted = [&](const auto& stored) {
    using T = std::decay_t<decltype(stored)>;
    if constexpr (is_text<T>) {
      if (spec.form.accepts) return spec.form.accepts(stored);
      return spec.words.empty() || std::find(spec.words.begin(), spec.words.end(), stored) != spec.words.end();
    } else if constexpr (std::is_same_v<T, std::optional<double>>) {
      return stored && in_bounds(*stored);
    } else if constexpr (is_whole<T> || is_real<T>) {
      return in_bounds(static_cast<double>(stored));
    } else {
      return true;
    }
  };
  return std::visit(accepted, value);
}

std::string OptionRow::accepted() const {
  const auto text = [&](const auto& stored) -> std::string {
    using T = std::decay_t<decltype(stored)>;
    using Limits = std::numeric_limits<T>;
    if constexpr (is_text<T>)
      return spec.form.accepts ? spec.form.description : spec.words.empty() ? "a text" : models::in_words(spec.words);
    else if constexpr (is_whole<T>)
      return "a whole number from " + bound_text(spec.bounds.minimum, Limits::min()) + " to " +
             bound_text(spec.bounds.maximum, Limits::max());
    else if constexpr (is_real<T>)
      return "a number from " + number_text(spec.bounds.minimum) + " to " + number_text(spec.bounds.maximum);
    else
      return std::is_same_v<T, bool> ? "true or false" : "a list of texts";
  };
  return std::visit(text, initial);
}

std::string OptionRow::help() const { return spec.help.ends_with(":") ? spec.help + " " + accepted() : spec.help; }

std::string OptionRow::shown_default() const {
  if (spec.required || !accepts(initial)) return "";
  const auto text = [&](const auto& stored) -> std::string {
    using T = std::decay_t<decltype(stored)>;
    if constexpr (is_text<T>)
      return stored;
    else if constexpr (std::is_same_v<T, std::optional<double>>)
      return number_text(stored.value());
    else if constexpr (is_whole<T> || is_real<T>)
      return number_text(stored);
    else
      return "";
  };
  return std::visit(text, initial);
}

const OptionRow* Options::find(std::string_view name) const {
  const auto row = std::find_if(rows_.begin(), rows_.end(), [&](const OptionRow& r) { return r.spec.name == name; });
  return row == rows_.end() ? nullptr : &*row;
}

std::vector<std::string> Options::flags() const {
  std::vector<std::string> names;
  for (const OptionRow& row : rows_)
    if (row.spec.name.starts_with("--")) names.push_back(row.spec.name);
  return names;
}

bool Options::given(std::string_view name) const {
  const OptionRow* const row = find(name);
  TERN_CHECK(row, "options: there is no option ", name);
  return row->given;
}

void Options::take(std::string_view name, const std::vector<std::string>& texts) {
  const OptionRow* const found = find(name);
  TERN_CHECK(found, "options: there is no option ", name);
  OptionRow& row = rows_[static_cast<size_t>(found - rows_.data())];
  OptionValue value = row.initial;
  // Where the parser gives an empty text for a flag without a value, check_no_empty_value() has seen the words.
  if (!row.is_flag() && row.spec.bare.empty() && std::find(texts.begin(), texts.end(), "") != texts.end())
    throw empty_value(row, row.spec.name);
  if (row.is_flag()) {
    value = !std::get<bool>(row.initial);
  } else if (row.is_list()) {
    value = texts;
  } else {
    std::string text = texts.empty() ? "" : texts[0];
    if (text.empty()) text = row.spec.bare;
    if (!row.spec.words.empty()) check_word(row.spec.name, text, row.spec.words);
    if (!parse(text, value) || !row.accepts(value))
      throw UsageError(row.spec.name + ": must be " + row.accepted() + ", got '" + tern::detail::printable(text) + "'");
  }
  row.set(*this, value);
  row.given = true;
}

UsageError empty_value(const OptionRow& row, const std::string& where) {
  return UsageError(where + ": must be " + (row.is_flag() ? "given without a value" : row.accepted()) +
                    ", got an empty value, as an unset variable of the shell gives; leave the option out, or fill it");
}

void check_no_empty_value(const Options& options, const std::vector<std::string>& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    const OptionRow* const row = words[i].starts_with("--") ? options.find(words[i].substr(0, equals)) : nullptr;
    if (!row) continue;
    const bool next_is_value = equals == std::string::npos && !row->is_flag() && i + 1 < words.size();
    if (equals + 1 == words[i].size() || (next_is_value && words[i + 1].empty()))
      throw empty_value(*row, row->spec.name);
    i += next_is_value && !words[i + 1].starts_with("-") ? 1 : 0;
  }
}

void check_options_are_for(For model, const Options& options) {
  for (const OptionRow& row : options.rows()) {
    if (!row.given || row.spec.models == For::kAllModels || row.spec.models == model) continue;
    throw UsageError(row.spec.name + (row.spec.models == For::kTexts ? " is for models that take texts"
                                                                     : " is for models that take images"));
  }
}

void check_word(const std::string& name, const std::string& value, const std::vector<std::string>& words) {
  if (std::find(words.begin(), words.end(), value) != words.end()) return;
  const std::string near = nearest(value, words);
  throw UsageError(name + ": unknown '" + tern::detail::printable(value) + "'" +
                   (near.empty() ? "" : ", did you mean '" + near + "'?") +
                   "; known: " + models::in_words(words, ", "));
}

std::string meant_flag(const std::string& flag, const std::vector<std::string>& known) {
  static const std::map<std::string, std::string> elsewhere = {{"--learning-rate", "--lr"},
                                                               {"--num-epochs", "--epochs"},
                                                               {"--num-train-epochs", "--epochs"},
                                                               {"--output-dir", "--out"},
                                                               {"--output", "--out"},
                                                               {"-o", "--out"},
                                                               {"--pretrained", "--init"},
                                                               {"--model-name-or-path", "--init"},
                                                               {"--checkpoint", "--init"},
                                                               {"--dataset", "--data"},
                                                               {"--train-file", "--data"},
                                                               {"--data-dir", "--data"},
                                                               {"--max-seq-length", "--max-length"},
                                                               {"--warmup-steps", "--warmup"},
                                                               {"--warmup-ratio", "--warmup"},
                                                               {"--max-grad-norm", "--clip"},
                                                               {"--grad-clip", "--clip"},
                                                               {"--wd", "--weight-decay"},
                                                               {"--lr-scheduler", "--schedule"},
                                                               {"--lr-scheduler-type", "--schedule"},
                                                               {"--num-workers", "--workers"},
                                                               {"--gradient-accumulation-steps", "--accumulate"},
                                                               {"--img-size", "--image-size"},
                                                               {"--precision", "--dtype"},
                                                               {"--per-device-train-batch-size", "--batch-size"},
                                                               {"--resume-from-checkpoint", "--resume"},
                                                               {"-n", "--nproc"},
                                                               {"-np", "--nproc"},
                                                               {"--num-processes", "--nproc"},
                                                               {"--nproc-per-node", "--nproc"},
                                                               {"-j", "--workers"},
                                                               {"-q", "--quiet"}};
  std::string name = flag;
  std::replace(name.begin(), name.end(), '_', '-');
  const auto found = elsewhere.find(name);
  if (found != elsewhere.end() && std::find(known.begin(), known.end(), found->second) != known.end())
    return found->second;
  return nearest(flag, known);
}

std::string nearest(const std::string& word, const std::vector<std::string>& candidates) {
  std::string best;
  if (word.size() > kLongestWord) return best;
  int64_t best_distance = std::max<int64_t>(3, static_cast<int64_t>(word.size()) / 3);
  for (const std::string& candidate : candidates) {
    // A beginning of a known word is near, however much is missing.
    const int64_t distance = word.size() >= 4 && candidate.starts_with(word) ? 1 : edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace tern::cli
