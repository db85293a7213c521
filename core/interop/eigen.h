#pragma once
// Tensors as Eigen's matrices and vectors, on the same memory (https://eigen.tuxfamily.org, 3.3 or later: class Map).
// The only header of Tern that includes Eigen's: tern.h does not include it, and whoever does needs Eigen.
//
// A map does not keep the memory: a tensor on it must outlive the map. What is written through a map is not recorded by
// autograd and does not change Tensor::version(). T is the C++ type of the dtype (Eigen::half and Eigen::bfloat16 for
// the 16-bit ones). Errors: another dtype, a device other than the CPU, another number of dimensions, and the strides
// that each function names.
//
// The other direction is from_blob: a column-major Eigen::MatrixXf m is
//   from_blob(m.data(), {m.rows(), m.cols()}, {1, m.outerStride()}, float32)

#include <Eigen/Core>

#include "tern/core/tensor.h"

namespace tern {
namespace detail {

template <class T>
T* eigen_data(const char* function, const Tensor& x, int dims) {
  DType dtype{};
  if constexpr (std::is_same_v<T, Eigen::half>)
    dtype = float16;
  else if constexpr (std::is_same_v<T, Eigen::bfloat16>)
    dtype = bfloat16;
  else
    dtype = dtype_of<T>();
  TERN_CHECK(x.defined() && x.dim() == dims, function, ": expected ", dims, dims == 1 ? " dimension" : " dimensions",
             ", got ", x.describe());
  TERN_CHECK(x.dtype() == dtype, function, ": the tensor is ", x.describe(), ", not ", name_of(dtype));
  TERN_CHECK(x.device().is_cpu(), function, ": the tensor is on ", x.device().str(), "; copy it with to(cpu) first");
  return static_cast<T*>(x.raw_data());
}

/// The stride of a dimension; that of one element has no effect.
inline Eigen::Index eigen_stride(const Tensor& x, int dim, int64_t otherwise) {
  return x.size(dim) <= 1 ? otherwise : x.strides()[static_cast<size_t>(dim)];
}

}  // namespace detail

template <class T>
using EigenMatrixMap = Eigen::Map<Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>, Eigen::Unaligned,
                                  Eigen::OuterStride<>>;
template <class T>
using EigenStridedMap = Eigen::Map<Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>, Eigen::Unaligned,
                                   Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>>;
template <class T>
using EigenVectorMap = Eigen::Map<Eigen::Matrix<T, Eigen::Dynamic, 1>, Eigen::Unaligned, Eigen::InnerStride<>>;

/// A matrix [rows, cols]; elements of a row are neighbours in memory, as Eigen's products want it. Error: they are not;
/// of a transposed tensor take eigen_map<T>(x.t()).transpose().
template <class T>
EigenMatrixMap<T> eigen_map(const Tensor& x) {
  T* const data = detail::eigen_data<T>("eigen_map", x, 2);
  TERN_CHECK(detail::eigen_stride(x, 1, 1) == 1, "eigen_map: elements of a row are ", x.strides()[1],
             " apart in memory; take eigen_map(x.t()).transpose(), eigen_strided_map(x), or x.contiguous()");
  return {data, x.size(0), x.size(1), Eigen::OuterStride<>(detail::eigen_stride(x, 0, x.size(1)))};
}

/// A matrix of any strides. Eigen copies its elements in products.
template <class T>
EigenStridedMap<T> eigen_strided_map(const Tensor& x) {
  T* const data = detail::eigen_data<T>("eigen_strided_map", x, 2);
  return {data, x.size(0), x.size(1), {detail::eigen_stride(x, 0, x.size(1)), detail::eigen_stride(x, 1, 1)}};
}

/// A column vector [n], of any stride.
template <class T>
EigenVectorMap<T> eigen_vector_map(const Tensor& x) {
  T* const data = detail::eigen_data<T>("eigen_vector_map", x, 1);
  return {data, x.size(0), Eigen::InnerStride<>(detail::eigen_stride(x, 0, 1))};
}

}  // namespace tern
