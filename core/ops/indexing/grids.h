#pragma once
// Grids and combinations of elements of vectors.

#include <optional>
#include <vector>

#include "tern/core/tensor.h"

namespace tern {

/// Views of the vectors (or scalars), each along its own dimension and broadcast to the common shape. kXY exchanges the
/// first two dimensions of the results.
enum class Indexing : uint8_t { kIJ, kXY };
std::vector<Tensor> meshgrid(const std::vector<Tensor>& tensors, Indexing indexing = Indexing::kIJ);
/// All combinations of one element of each vector, the last changing fastest: [product of sizes, vectors]; of one
/// vector the vector.
Tensor cartesian_prod(const std::vector<Tensor>& tensors);
/// Views of the tensors, expanded to their common shape.
std::vector<Tensor> broadcast_tensors(const std::vector<Tensor>& tensors);
/// Rows of r elements of a vector, in the order of their indices, which increase within a row, or do not decrease with
/// replacement: [count, r].
Tensor combinations(const Tensor& x, int64_t r = 2, bool with_replacement = false);
/// The powers columns - 1, ..., 1, 0 of a vector's elements as rows, or 0, 1, ...: [size, columns]; as many columns as
/// elements unless given. Integers give int64, which wraps around.
Tensor vander(const Tensor& x, std::optional<int64_t> columns = {}, bool increasing = false);
/// The index along each dimension of elements of a tensor of this shape, given their places (int64 or int32) in
/// row-major order. The host waits for the device, to check the places.
std::vector<Tensor> unravel_index(const Tensor& index, const Shape& shape);

}  // namespace tern
