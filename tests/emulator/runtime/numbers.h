#pragma once
// Numbers in memory, by NVIDIA's names of their types, for the stand-ins of its libraries.

#include <library_types.h>

#include <cstdint>

#include "tern/kernels/types.h"

namespace tern::standin {

inline int64_t bytes_of(cudaDataType_t type) {
  if (type == CUDA_R_64F || type == CUDA_R_64I) return 8;
  return type == CUDA_R_16BF || type == CUDA_R_16F ? 2 : 4;
}

/// Calls f<T>() with the type of the numbers.
template <class F>
auto with_type(cudaDataType_t type, F&& f) {
  switch (type) {
    case CUDA_R_64F:
      return f.template operator()<double>();
    case CUDA_R_16BF:
      return f.template operator()<BFloat16>();
    case CUDA_R_16F:
      return f.template operator()<Float16>();
    case CUDA_R_32I:
      return f.template operator()<int32_t>();
    case CUDA_R_64I:
      return f.template operator()<int64_t>();
    default:
      return f.template operator()<float>();
  }
}

/// Element `index`, as an F.
template <class F>
F load(cudaDataType_t type, const void* data, int64_t index) {
  return with_type(
      type, [&]<class T>() { return static_cast<F>(static_cast<ComputeType<T>>(static_cast<const T*>(data)[index])); });
}
template <class F>
void store(cudaDataType_t type, void* data, int64_t index, F value) {
  with_type(type, [&]<class T>() { static_cast<T*>(data)[index] = T(static_cast<ComputeType<T>>(value)); });
}

}  // namespace tern::standin
