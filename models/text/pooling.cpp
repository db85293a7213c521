#include "tern/models/text/pooling.h"

#include <cmath>

#include "tern/core/io/pickle.h"
#include "tern/core/ops/ops.h"
#include "tern/models/families.h"

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
  const std::vector<int64_t> offsets = input.layout.offsets.to_vector<int64_t>();
  const std::vector<int64_t> mask =
      input.padded() ? input.layout.key_mask.to_vector<int64_t>() : std::vector<int64_t>();
  PooledRows kept;
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    int64_t count = 0;
    for (int64_t row = offsets[s]; row < offsets[s + 1]; ++row) {
      if (!mask.empty() && mask[static_cast<size_t>(row)] == 0) continue;
      if (count++ == 0) kept.first.push_back(row);
      kept.rows.push_back(row);
      kept.sequence.push_back(static_cast<int64_t>(s));
      kept.place.push_back(static_cast<float>(count));
    }
    TERN_CHECK(count > 0, "pool: sequence ", s, " has no token");
    kept.last.push_back(kept.rows.back());
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
