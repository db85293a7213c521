#pragma once
// Numbers from CSV and TSV files, for regression and for classifiers of tables.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tern/core/tensor.h"
#include "tern/data/samples/dataset.h"

namespace tern::data {

struct TableOptions {
  std::vector<std::string> targets = {};   // columns by name; empty: the last one
  std::vector<std::string> features = {};  // columns by name, in this order; empty: all that are not targets
  /// Accepts "nan", "inf" and "infinity" (any case, with a sign), and takes an empty field as NaN. Otherwise each is an
  /// error, as is a number beyond the range of float32, which becomes an infinity here.
  bool non_finite = false;
  std::function<void(const std::string&)> log = {};  // one line each: how the file is read, where that can be doubted
};

struct Table {
  std::vector<std::string> feature_names, target_names;
  Tensor features, targets;  // float32 [rows, feature_names.size()] and [rows, target_names.size()]

  /// Samples {features [f], targets [t]}.
  TensorDataset dataset() const { return TensorDataset({features, targets}); }
};

/// Reads a .csv or .tsv file (see delimited.h) with a header row; all fields of the chosen columns are decimal numbers
/// ("1", "-2.5", "1e-3"), rounded to float64 and then to float32, as PyTorch does; other columns are not read. Throws
/// Error with line and column: no number, a non-finite one, a row with more or fewer fields; a column that is missing,
/// named twice, or both target and feature; no rows.
Table read_table(const std::string& path, const TableOptions& options = {});

/// The value of a decimal number, "nan" or "inf" (any case, with a sign); nothing if the text is none.
std::optional<double> parse_decimal(std::string_view text);

}  // namespace tern::data
