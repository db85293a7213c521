#pragma once
// One element of each fibre of a tensor, by its place in sorted order.

#include "tern/core/ops/sort/sort.h"
#include "tern/kernels/sort.h"

namespace tern::detail {

/// Elements and their indices along dim, which has size 1 in the results. x has a dimension of at least one element;
/// `place` is used by kPlace.
SortResult select_along(const char* op, const Tensor& x, int dim, kernels::Selection which, int64_t place = 0);

}  // namespace tern::detail
