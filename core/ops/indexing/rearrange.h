#pragma once
// Tensors made of the elements of others: flipped, rolled, repeated, padded, triangles and diagonals. The names and
// rules are PyTorch's. All dtypes; differentiable any number of times. The results are new tensors. Dimensions may be
// negative (from the end).

#include <vector>

#include "tern/core/tensor.h"

namespace tern {

/// Reverses the order of elements along dims.
Tensor flip(const Tensor& x, const std::vector<int>& dims);
/// A quarter turn, k times, in the plane of two dimensions, from the first towards the second.
Tensor rot90(const Tensor& x, int64_t k = 1, int dim0 = 0, int dim1 = 1);
/// Moves elements by shifts[i] along dims[i]; those that leave at one end enter at the other. Without dims the tensor
/// is flattened for the time being, and there is one shift.
Tensor roll(const Tensor& x, const std::vector<int64_t>& shifts, const std::vector<int>& dims = {});
/// Copies x repeats[d] times along dimension d; the last of the repeats belongs to the last dimension, and there may be
/// more of them than dimensions (PyTorch's Tensor.repeat).
Tensor repeat(const Tensor& x, const std::vector<int64_t>& repeats);
/// As repeat, where missing leading repeats are 1.
Tensor tile(const Tensor& x, const std::vector<int64_t>& repeats);
/// Repeats each element, next to itself; without a dimension, of the flattened tensor. `repeats` is a number, or an
/// integer tensor of one number for each element along dim or of x (or of one element): then the result's size depends
/// on values, for which the host waits.
Tensor repeat_interleave(const Tensor& x, int64_t repeats);
Tensor repeat_interleave(const Tensor& x, int64_t repeats, int dim);
Tensor repeat_interleave(const Tensor& x, const Tensor& repeats);
Tensor repeat_interleave(const Tensor& x, const Tensor& repeats, int dim);

/// What pad puts outside of x: a value; what lies on the other side of the edge (which is not repeated); the edge; or
/// the other end of x.
enum class PadMode : uint8_t { kConstant, kReflect, kReplicate, kCircular };
/// Adds padding[0] elements before and padding[1] after those of the last dimension, padding[2] and padding[3] for the
/// dimension before it, and so on. kConstant: a negative number removes elements. kReflect takes fewer than the
/// dimension's size, kCircular at most the size; these work on any number of dimensions.
Tensor pad(const Tensor& x, const std::vector<int64_t>& padding, PadMode mode = PadMode::kConstant, double value = 0);

/// The matrices [..., rows, cols] with 0 above (tril) or below (triu) the diagonal; diagonal 1 is the one above the
/// main one, -1 the one below.
Tensor tril(const Tensor& x, int64_t diagonal = 0);
Tensor triu(const Tensor& x, int64_t diagonal = 0);
/// Matrices of zeros with x's last dimension on the diagonal that Tensor::diagonal gives.
Tensor diag_embed(const Tensor& x, int64_t offset = 0, int dim1 = -2, int dim2 = -1);
/// A vector as the diagonal of a square matrix, or a copy of the diagonal of a matrix.
Tensor diag(const Tensor& x, int64_t diagonal = 0);
/// The rows and columns of the elements that tril (triu) keeps of a matrix, in row-major order: int64 [2, count].
Tensor tril_indices(int64_t rows, int64_t cols, int64_t diagonal = 0,
                    const TensorOptions& options = {.dtype = DType::kInt64});
Tensor triu_indices(int64_t rows, int64_t cols, int64_t diagonal = 0,
                    const TensorOptions& options = {.dtype = DType::kInt64});
/// The sum of the main diagonal of a matrix.
Tensor trace(const Tensor& x);

}  // namespace tern
