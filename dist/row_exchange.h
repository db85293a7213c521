#pragma once
// Which rows of an embedding's gradient travel, on the CPU. A step's gradient is zero in all rows but those of its own
// words, a small part of a vocabulary: ranks agree on the rows that any of them has, and exchange these alone (as
// TensorFlow's IndexedSlices and PyTorch's sparse gradients do). The sums are the same bits as of all rows: what is
// left out is +0 on every rank.

#include <cstdint>
#include <optional>
#include <vector>

#include "tern/core/tensor.h"

namespace tern::dist {

/// Gradients of fewer bytes travel whole.
inline constexpr int64_t kLeastRowExchangeBytes = 1 << 20;

/// bool [rows]: whether a row of gradient [rows, width], contiguous, has a bit set (-0 and NaN have).
Tensor touched_rows(const Tensor& gradient);
/// Where `touched` is true, ascending; nothing when that is so for more than half of the rows: then all should travel.
std::optional<std::vector<int64_t>> rows_to_exchange(const Tensor& touched);
/// packed[i] = from[rows[i]]: [rows.size(), width] of contiguous [count, width].
Tensor take_rows(const Tensor& from, const std::vector<int64_t>& rows);
/// to[rows[i]] = packed[i]; both contiguous and of one dtype.
void put_rows(const Tensor& packed, const std::vector<int64_t>& rows, const Tensor& to);

}  // namespace tern::dist
