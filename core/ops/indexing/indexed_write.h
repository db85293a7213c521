#pragma once
// The writes behind scatter, index_add, index_put and the like: checked once, then recorded as an op whose result is a
// new tensor, or made in place.

#include <string>
#include <vector>

#include "tern/core/tensor.h"
#include "tern/kernels/index_fault.h"
#include "tern/kernels/scatter_mode.h"

namespace tern::detail {

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

/// The entries of x[...]: what numbers, slices and new dimensions make of x, and the tensors that index the view.
struct IndexCall {
  /// A step of the view.
  struct Step {
    enum Kind : uint8_t { kSelect, kSlice, kNewAxis } kind;
    int dim;
    Slice range;  // kSelect: only begin
  };
  std::vector<Step> steps;
  std::vector<Tensor> indices;  // int64, contiguous, of one shape
  std::vector<int> dims;        // of the view
  Tensor values = {};           // for a write: of x's dtype
  bool accumulate = false;
};
/// Checks and converts entries for x.
IndexCall index_call(const char* op, const Tensor& x, const std::vector<TensorIndex>& entries);
/// The same for a write of values, which must broadcast to the shape of what is indexed.
IndexCall index_put_call(const char* op, const Tensor& x, const std::vector<TensorIndex>& entries, const Tensor& values,
                         bool accumulate);

/// What the write makes of x, in a new tensor; recorded.
Tensor written(const Tensor& x, const ScatterCall& call);
Tensor written(const Tensor& x, const IndexCall& call);
/// Writes to y, without recording; the sources must not share y's memory.
void write(const Tensor& y, const ScatterCall& call);
void write(const Tensor& y, const IndexCall& call);

}  // namespace tern::detail
