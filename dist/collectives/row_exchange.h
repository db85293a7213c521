#pragma once
// Exchange of a part of an embedding's gradient, on the CPU. A step's gradient is zero except in the rows of the words
// that occur, a small part of a vocabulary: ranks agree on the rows that any of them has, and exchange only these (as
// TensorFlow's IndexedSlices and PyTorch's sparse gradients do). The sums are bit-equal to those of all rows: the rows
// left out are +0 on every rank.

#include <cstdint>
#include <optional>
#include <vector>

#include "tern/core/tensor.h"

namespace tern::dist {

/// Smaller gradients are exchanged whole.
inline constexpr int64_t kMinRowExchangeBytes = 1 << 20;

/// bool [rows]: whether a row of the contiguous gradient [rows, width] has a bit set (true for -0 and NaN).
Tensor touched_rows(const Tensor& gradient);
/// The ascending row numbers where `touched` is true; nothing if more than half are, since all should be exchanged
/// then.
std::optional<std::vector<int64_t>> rows_to_exchange(const Tensor& touched);
/// packed[i] = from[rows[i]]: [rows.size(), width] of contiguous [count, width].
Tensor take_rows(const Tensor& from, const std::vector<int64_t>& rows);
/// to[rows[i]] = packed[i]; both contiguous and of one dtype.
void put_rows(const Tensor& packed, const std::vector<int64_t>& rows, const Tensor& to);

}  // namespace tern::dist
