// Products of integer matrices.

#include <algorithm>

#include "tern/kernels/gemm.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

constexpr int64_t kBlock = 65536;  // multiplications per parallel block

/// The dtypes of integers; bool and floats are not products of this file.
template <class Body>
void dispatch_integer(DType dtype, const Body& body) {
  if (dtype == DType::kInt64)
    body.template operator()<uint64_t>();
  else if (dtype == DType::kInt32)
    body.template operator()<uint32_t>();
  else
    body.template operator()<uint8_t>();
}

}  // namespace

void integer_gemm(Stream, ConstView a, ConstView b, View c) {
  const int64_t rows = c.shape[1], n = c.shape[2], inner = a.shape[2];
  if (c.numel() == 0) return;
  const int64_t grain = std::max<int64_t>(1, kBlock / std::max<int64_t>(1, inner * n));
  dispatch_integer(c.dtype, [&]<class U>() {  // unsigned numbers wrap around
    parallel_for(c.rows(), grain, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const U* left = a.as<U>() + r / rows * a.strides[0] + r % rows * a.strides[1];
        const U* right = b.as<U>() + r / rows * b.strides[0];
        U* sums = c.as<U>() + r * n;
        std::fill_n(sums, n, U(0));
        for (int64_t p = 0; p < inner; ++p) {
          const U factor = left[p * a.strides[2]];
          const U* row = right + p * b.strides[1];
          const int64_t step = b.strides[2];
          for (int64_t j = 0; j < n; ++j) sums[j] = static_cast<U>(sums[j] + factor * row[j * step]);
        }
      }
    });
  });
}

}  // namespace tern::kernels::TERN_CPU
