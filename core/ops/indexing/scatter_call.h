#pragma once
// The writes behind scatter, index_add and the like: checked once, then recorded as an op whose result is a new tensor,
// or made in place.

#include <string>

#include "tern/core/tensor.h"
#include "tern/kernels/index_fault.h"
#include "tern/kernels/scatter_mode.h"

namespace tern::detail {

/// x without dimensions as one of one element.
inline Tensor with_dims(const Tensor& x) { return x.dim() == 0 ? x.reshape({1}) : x; }

/// Describes a bad index and its position. An index expanded along other dimensions than dim counts once. Valid indices
/// are in [low, high).
std::string describe_fault(const kernels::IndexFault& fault, const Tensor& index, int dim, int64_t low, int64_t high);

/// kernels::scatter to y with its workspace. Faults are recorded in the device's memory, unless it is null.
void scatter_into(const Tensor& y, kernels::ScatterMode mode, int dim, const Tensor& index, const Tensor& source,
                  kernels::IndexFault* fault);

/// A scatter along a dimension: index (int64) and source have one shape, in which the index fits x. A tensor without
/// dimensions counts as one of one element.
struct ScatterCall {
  const char* op;
  kernels::ScatterMode mode;
  int dim;
  Tensor index, source;
};
/// Checks the arguments of the scatter family; the source is cut to the index's shape.
ScatterCall scatter_call(const char* op, kernels::ScatterMode mode, const Tensor& x, int dim, const Tensor& index,
                         const Tensor& source);
/// The same for an index with one dimension, each of whose elements names a slice of x (index_add).
ScatterCall slices_call(const char* op, kernels::ScatterMode mode, const Tensor& x, int dim, const Tensor& index,
                        const Tensor& source);

/// What the write makes of x, in a new tensor; recorded.
Tensor written(const Tensor& x, const ScatterCall& call);
/// Writes to y, without recording; the source must not share y's memory.
void write(const Tensor& y, const ScatterCall& call);

}  // namespace tern::detail
