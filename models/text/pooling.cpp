#include "tern/models/text/pooling.h"

#include <cmath>

#include "tern/core/io/pickle.h"
#include "tern/core/ops/ops.h"
#include "tern/models/families.h"
#include "tern/models/text/sequence_rows.h"

namespace tern::models {
namespace {

constexpr std::pair<PoolMode, const char*> kPoolModes[] = {{PoolMode::kCls, "cls"},
                                                           {PoolMode::kMax, "max"},
                                                           {PoolMode::kMean, "mean"},
                                                           {PoolMode::kMeanSqrtLength, "mean_sqrt_len_tokens"},
                                                           {PoolMode::kWeightedMean, "weightedmean"},
                                                           {PoolMode::kLastToken, "lasttoken"}};

/// The rows of tokens that are not padding, sequence by sequence.
struct PooledRows {
  std::vector<int64_t> rows, sequence;  // of each token
  std::vector<int64_t> first, last;     // of each sequence, rows
  std::vector<float> place;             // of each token in its sequence, from 1
  std::vector<float> tokens, weight;    // of each sequence: how many, and the sum of their places
};

PooledRows pooled_rows(const data::TokenInput& input) {
  const std::vector<std::vector<int64_t>> rows = rows_of_sequences(input.layout);
  PooledRows kept;
  for (size_t s = 0; s < rows.size(); ++s) {
    const int64_t count = std::ssize(rows[s]);
    TERN_CHECK(count > 0, "pool: sequence ", s, " has no token");
    for (int64_t place = 1; place <= count; ++place) kept.place.push_back(static_cast<float>(place));
    kept.rows.insert(kept.rows.end(), rows[s].begin(), rows[s].end());
    kept.sequence.insert(kept.sequence.end(), rows[s].size(), static_cast<int64_t>(s));
    kept.first.push_back(rows[s].front());
    kept.last.push_back(rows[s].back());
    kept.tokens.push_back(static_cast<float>(count));
    kept.weight.push_back(static_cast<float>(count) * static_cast<float>(count + 1) / 2);
  }
  return kept;
}

}  // namespace

std::vector<std::string> pool_mode_names() {
  std::vector<std::string> names;
  for (const auto& [mode, name] : kPoolModes) names.emplace_back(name);
  return names;
}

PoolMode pool_mode(const std::string& name, const std::string& source) {
  for (const auto& [mode, known] : kPoolModes)
    if (name == known) return mode;
  fail(source, ": the pooling mode '", tern::detail::printable(name), "' is unknown; Tern has ",
       in_words(pool_mode_names(), " and "));
}

Tensor pool(const Tensor& states, const data::TokenInput& input, PoolMode mode) {
  TERN_CHECK(states.dim() == 2 && states.size(0) == input.tokens.size(0), "pool: states must be [",
             input.tokens.size(0), ", width], got ", states.describe());
  const PooledRows kept = pooled_rows(input);
  const auto tensor_of = [&](const auto& values, bool column = false) {
    const auto n = static_cast<int64_t>(values.size());
    return from_vector(values, column ? Shape{n, 1} : Shape{n}).to(states.device());
  };
  if (mode == PoolMode::kCls) return index_select(states, 0, tensor_of(kept.first));
  if (mode == PoolMode::kLastToken) return index_select(states, 0, tensor_of(kept.last));
  Tensor rows =
      kept.rows.size() == static_cast<size_t>(states.size(0)) ? states : index_select(states, 0, tensor_of(kept.rows));
  if (rows.dtype() == float16 || rows.dtype() == bfloat16) rows = rows.to(float32);
  if (mode == PoolMode::kWeightedMean) rows = rows * tensor_of(kept.place, true);
  const auto reduction = mode == PoolMode::kMax    ? ScatterReduction::kMax
                         : mode == PoolMode::kMean ? ScatterReduction::kMean
                                                   : ScatterReduction::kSum;
  const Tensor pooled = index_reduce(zeros({input.sequences(), rows.size(1)}, rows.options()), 0,
                                     tensor_of(kept.sequence), rows, reduction, false);
  if (mode == PoolMode::kMeanSqrtLength) return pooled / sqrt(tensor_of(kept.tokens, true));
  return mode == PoolMode::kWeightedMean ? pooled / tensor_of(kept.weight, true) : pooled;
}

}  // namespace tern::models
