#include "tern/data/datasets/table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "tern/core/io/pickle.h"
#include "tern/data/files/delimited.h"
#include "tern/data/files/text.h"
#include "tern/kernels/base/check.h"

namespace tern::data {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// The columns of the names, in their order.
std::vector<size_t> find_columns(const std::vector<std::string>& names, const std::vector<std::string>& header,
                                 const Location& where) {
  std::vector<size_t> columns;
  for (const std::string& name : names) {
    const auto found = std::find(header.begin(), header.end(), name);
    TERN_CHECK(found != header.end(), where, ": no column \"", name, "\"; found: ", shown_names(header));
    TERN_CHECK(std::find(found + 1, header.end(), name) == header.end(), where, ": more than one column \"", name,
               "\"; rename one");
    const auto column = static_cast<size_t>(found - header.begin());
    TERN_CHECK(std::find(columns.begin(), columns.end(), column) == columns.end(), "column \"", name,
               "\" is chosen twice");
    columns.push_back(column);
  }
  return columns;
}

/// Reads the fields of chosen columns.
class NumberReader {
 public:
  NumberReader(const std::vector<std::string>& header, bool non_finite) : header_(header), non_finite_(non_finite) {}

  void add(const std::vector<std::string>& fields, const std::vector<size_t>& columns, const Location& where,
           std::vector<float>& out) const {
    for (const size_t column : columns) out.push_back(number(trim(fields[column]), column, where));
  }

 private:
  float number(std::string_view text, size_t column, const Location& where) const {
    const auto place = [&] {
      return detail::concatenate(where, ": column ", column + 1, " (", header_[column], "): ");
    };
    if (text.empty() && non_finite_) return std::numeric_limits<float>::quiet_NaN();
    TERN_CHECK(!text.empty(), place(), "the field is empty; fill it, or take it as NaN (non_finite)");
    const std::optional<double> value = parse_decimal(text);
    TERN_CHECK(value, place(), "expected a number, got \"", detail::printable(text), "\"");
    const auto rounded = static_cast<float>(*value);
    TERN_CHECK(non_finite_ || std::isfinite(rounded), place(), "\"", detail::printable(text),
               "\" is not finite in float32; correct it, or accept it (non_finite)");
    return rounded;
  }

  const std::vector<std::string>& header_;
  bool non_finite_;
};

Tensor matrix(const std::vector<float>& values, int64_t rows, size_t columns) {
  return from_vector(values, {rows, static_cast<int64_t>(columns)});
}

}  // namespace

std::optional<double> parse_decimal(std::string_view text) {
  const bool signed_text = text.starts_with('-') || text.starts_with('+');
  const std::string_view digits = text.substr(signed_text ? 1 : 0);
  if (digits.starts_with('-') || digits.ends_with(')')) return std::nullopt;  // from_chars takes "nan(x)"
  long double value = 0;  // has the range to tell a number that is too large from one that is too small
  double rounded = 0;
  const char* const end = digits.data() + digits.size();
  auto [stop, error] = std::from_chars(digits.data(), end, rounded);
  if (error == std::errc::result_out_of_range && stop == end) {
    if (std::from_chars(digits.data(), end, value).ec != std::errc()) return std::nullopt;
    rounded = value > 1 ? kInfinite : 0;
    error = std::errc();
  }
  if (error != std::errc() || stop != end || digits.empty()) return std::nullopt;
  return text.starts_with('-') ? -rounded : rounded;
}

Table read_table(const std::string& path, const TableOptions& options) {
  DelimitedFile reader(path, options.log);
  std::vector<std::string> header, fields;
  TERN_CHECK(reader.next(header), path, ": the file is empty; expected a header row with the names of the columns");
  const Location top{path, reader.line()};
  for (std::string& name : header) name = std::string(trim(name));
  TERN_CHECK(
      !std::all_of(header.begin(), header.end(), [](const auto& name) { return parse_decimal(name).has_value(); }), top,
      ": all fields are numbers; expected a header row with the names of the columns");
  std::vector<size_t> targets = {header.size() - 1}, features;
  if (!options.targets.empty()) targets = find_columns(options.targets, header, top);
  const auto is_target = [&](size_t i) { return std::find(targets.begin(), targets.end(), i) != targets.end(); };
  for (size_t i = 0; i < header.size(); ++i)
    if (!is_target(i)) features.push_back(i);
  if (!options.features.empty()) features = find_columns(options.features, header, top);
  TERN_CHECK(!features.empty(), top, ": no column is left for the features");

  Table table;
  for (const size_t i : features) {
    TERN_CHECK(!is_target(i), top, ": column \"", header[i], "\" is a target and a feature");
    table.feature_names.push_back(header[i]);
  }
  for (const size_t i : targets) table.target_names.push_back(header[i]);
  const NumberReader numbers(header, options.non_finite);
  std::vector<float> inputs, outputs;
  int64_t rows = 0;
  for (; reader.next(fields); ++rows) {
    const Location where{path, reader.line()};
    TERN_CHECK(fields.size() == header.size(), where, ": expected ", header.size(), " fields as in the header, got ",
               fields.size());
    numbers.add(fields, features, where, inputs);
    numbers.add(fields, targets, where, outputs);
  }
  TERN_CHECK(rows > 0, path, ": no rows after the header");
  table.features = matrix(inputs, rows, features.size());
  table.targets = matrix(outputs, rows, targets.size());
  return table;
}

}  // namespace tern::data
