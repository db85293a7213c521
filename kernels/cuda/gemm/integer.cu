// Products of integer matrices: a thread for each element. They are rare, and no library has them.

#include <algorithm>

#include "tern/kernels/cuda/support/launch.h"
#include "tern/kernels/gemm.h"

namespace tern::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 1 << 16;

/// A matrix stack: pointer and strides.
template <class U>
struct Stack {
  const U* data;
  int64_t batch, row, column;
  explicit Stack(ConstView x) : data(x.as<U>()), batch(x.strides[0]), row(x.strides[1]), column(x.strides[2]) {}
};

template <class U>
__global__ void __launch_bounds__(kThreads)
    integer_gemm_kernel(Stack<U> a, Stack<U> b, int64_t count, int64_t m, int64_t n, int64_t inner, U* c) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += step) {
    const int64_t j = i % n, row = i / n % m, batch = i / n / m;
    const U* left = a.data + batch * a.batch + row * a.row;
    const U* right = b.data + batch * b.batch + j * b.column;
    U sum = 0;
    for (int64_t p = 0; p < inner; ++p) sum = static_cast<U>(sum + left[p * a.column] * right[p * b.row]);
    c[i] = sum;
  }
}

}  // namespace

void integer_gemm(Stream stream, ConstView a, ConstView b, View c) {
  const int64_t count = c.numel();
  if (count == 0) return;
  const auto blocks = static_cast<unsigned>(std::min((count + kThreads - 1) / kThreads, kMaxBlocks));
  const auto run = [&]<class U>() {  // unsigned numbers wrap around
    launch(integer_gemm_kernel<U>, dim3(blocks), dim3(kThreads), 0, stream, Stack<U>(a), Stack<U>(b), count, c.shape[1],
           c.shape[2], a.shape[2], c.as<U>());
  };
  if (c.dtype == DType::kInt64)
    run.template operator()<uint64_t>();
  else if (c.dtype == DType::kInt32)
    run.template operator()<uint32_t>();
  else
    run.template operator()<uint8_t>();
}

}  // namespace tern::kernels::cuda
