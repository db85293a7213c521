#pragma once
// Values of the options in the table: random ones that an option accepts, and the ends of its bounds.

#include <cmath>
#include <cstdio>
#include <random>
#include <string>

#include "tern/models/cli/options/options.h"

namespace tern::cli {

inline bool is_whole(const OptionRow& row) {
  return std::holds_alternative<int>(row.initial) || std::holds_alternative<int64_t>(row.initial) ||
         std::holds_alternative<uint64_t>(row.initial);
}
inline bool is_real(const OptionRow& row) {
  return std::holds_alternative<double>(row.initial) || std::holds_alternative<std::optional<double>>(row.initial);
}

/// The text of a double, from which it is read again.
inline std::string real_text(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

/// The ends of a number's bounds, and the numbers next to them outside.
struct Ends {
  std::string minimum, maximum, below, above;
};
inline Ends ends_of(const OptionRow& row) {
  const auto [minimum, maximum] = row.spec.bounds;
  if (is_real(row))
    return {real_text(minimum), real_text(maximum), real_text(std::nextafter(minimum, -INFINITY)),
            real_text(std::nextafter(maximum, INFINITY))};
  if (std::holds_alternative<uint64_t>(row.initial) && !std::isfinite(maximum))
    return {"0", "18446744073709551615", "-1", "18446744073709551616"};
  const auto text = [](double whole) { return std::to_string(static_cast<long long>(whole)); };
  return {text(minimum), text(maximum), text(minimum - 1), text(maximum + 1)};
}

inline int64_t random_whole(int64_t minimum, int64_t maximum, std::mt19937_64& random) {
  return std::uniform_int_distribution<int64_t>(minimum, maximum)(random);
}

/// A text of the option's form; empty for a form that is not known here.
inline std::string random_of_form(const std::string& name, std::mt19937_64& random) {
  const auto one_of = [&](const Words& words) { return words[random() % words.size()]; };
  const std::string number = std::to_string(random_whole(1, 1'000'000, random));
  if (name == "--split") return one_of({"official", "all", "80/10/10", "0.7/0.2/0.1", number + "/5/" + number});
  if (name == "--fold") return std::to_string(random_whole(1, 9, random)) + "/" + number;
  if (name == "--freeze") return one_of({"*.bias", "layer[1-3].*,bn1.*", "part" + number + ".*"});
  if (name == "--recompute") return one_of({"none", "block", "every-" + number});
  if (name == "--schedule-milestones") return one_of({"0.5", "1," + number, "0.25,0.75," + number});
  if (name == "--checkpoint-every") return number + one_of({"", "s", "m", "h"});
  if (name == "--image-cache" || name == "--memory-limit")
    return one_of({"0", number + "kB", number + "MB", number + "TB"});
  if (name == "--device") return one_of({"auto", "cpu", "cuda", "cuda:" + std::to_string(random_whole(0, 99, random))});
  return "";
}

/// A text that the option accepts, as it is typed. Empty for a flag and for a form that is not known here.
inline std::string random_text(const OptionRow& row, std::mt19937_64& random) {
  const auto [minimum, maximum] = row.spec.bounds;
  if (row.is_flag()) return "";
  if (is_real(row))
    return real_text(
        std::uniform_real_distribution<double>(minimum, random() % 2 == 0 ? maximum : std::min(maximum, 2.0))(random));
  if (is_whole(row) && !std::isfinite(maximum)) return std::to_string(random());
  if (is_whole(row))
    return std::to_string(random_whole(static_cast<int64_t>(minimum), static_cast<int64_t>(maximum), random));
  if (!row.spec.words.empty()) return row.spec.words[random() % row.spec.words.size()];
  if (row.spec.form.accepts) return random_of_form(row.spec.name, random);
  return "text " + std::to_string(random()) + (random() % 2 == 0 ? " \"\\\n\xc3\xa4" : "");
}

/// Gives the option another value than it has; false when none is known here.
inline bool change(Options& options, const OptionRow& row, std::mt19937_64& random) {
  for (int i = 0; i < 100; ++i) {
    const std::string text = random_text(row, random);
    if (text.empty() && !row.is_flag()) return false;
    const OptionValue before = row.get(options);
    options.take(row.spec.name, {text});
    if (row.get(options) != before) return true;
  }
  return false;
}

}  // namespace tern::cli
