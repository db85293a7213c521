#pragma once
// Which rows of a batch are tokens.

#include <cstdint>
#include <vector>

#include "tern/core/ops/attention/attention.h"

namespace tern::models {

/// The rows of each sequence's tokens, without those that the mask leaves out. The host waits for the layout.
std::vector<std::vector<int64_t>> rows_of_sequences(const SequenceLayout& layout);

}  // namespace tern::models
