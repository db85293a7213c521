#pragma once
// Tensor::index and index_put: numbers, slices and new dimensions make a view, whose other entries are tensors. Both
// are checked once; a write is then recorded as an op whose result is a new tensor, or made in place.

#include <vector>

#include "tern/core/tensor.h"

namespace tern::detail {

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

/// What the entries name, a view where there are no tensors; recorded. op: for errors.
Tensor read(const Tensor& x, const char* op, const IndexCall& call);
/// What the write makes of x, in a new tensor; recorded.
Tensor written(const Tensor& x, const IndexCall& call);
/// Writes to y, without recording; the values must not share y's memory.
void write(const Tensor& y, const IndexCall& call);

}  // namespace tern::detail
