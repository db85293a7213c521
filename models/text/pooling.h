#pragma once

#include <string>
#include <vector>

#include "tern/data/samples/token_batch.h"

namespace tern::models {

/// How the states of a sequence's tokens become one row: sentence-transformers' pooling modes.
enum class PoolMode : uint8_t {
  kCls,             // the first token's state: "cls"
  kMax,             // "max"
  kMean,            // "mean"
  kMeanSqrtLength,  // the sum divided by the square root of the number of tokens: "mean_sqrt_len_tokens"
  kWeightedMean,    // the mean with weights 1, 2, 3...: "weightedmean"
  kLastToken        // "lasttoken"
};

/// The mode of a name of sentence-transformers. Throws Error, which begins with `source`, that lists them.
PoolMode pool_mode(const std::string& name, const std::string& source);

/// All names.
std::vector<std::string> pool_mode_names();

/// states: [rows, width] of the input's tokens; result [sequences, width], float32 for states of 16 bits. Every
/// sequence must have a token. Padding is left out. Reads the layout on the host. Differentiable.
Tensor pool(const Tensor& states, const data::TokenInput& input, PoolMode mode);

}  // namespace tern::models
