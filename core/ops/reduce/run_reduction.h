#pragma once
// What the ops that reduce dimensions have in common.

#include <vector>

#include "tern/core/tensor.h"
#include "tern/kernels/reduce.h"

namespace tern::detail {

/// Bits of the dimensions to reduce; all when `dims` is empty. Throws Error for `op` when one is out of range or given
/// twice.
uint32_t dimension_bits(const char* op, const Tensor& x, const std::vector<int>& dims);

/// The shape without the dimensions of `bits`, or with size 1 there.
Shape reduced_shape(const Shape& shape, uint32_t bits, bool keepdim);

/// fp32 for 16-bit floats, otherwise the type itself.
DType accumulation_type(DType dtype);

/// The reduction of x over the dimensions of `bits`, unrecorded.
Tensor run_reduction(kernels::Reduction reduction, const Tensor& x, uint32_t bits, bool keepdim, DType dtype);

}  // namespace tern::detail
