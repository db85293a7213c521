// Conversions of many tensors in one launch. The list of tensors is a kernel parameter, so a captured step does not
// have to copy it.

#include <algorithm>

#include "tern/kernels/copy.h"
#include "tern/kernels/cuda/support/launch.h"
#include "tern/kernels/cuda/values.h"

namespace tern::kernels::cuda {
namespace {

constexpr int kThreads = 256, kWidth = 8;
constexpr int64_t kChunk = 16384;  // elements of a tensor per block
// CUDA allows 32,764 bytes of kernel parameters (12.1 and later, sm_70 and later).
constexpr int kMaxTensors = 400;

struct CopyEntry {
  const void* x;
  void* y;
  int64_t size;
  int32_t first_block;  // blocks are numbered over all tensors in order
  DType from;
  bool aligned;  // both pointers are aligned to 16 bytes
};
struct CopyList {
  int32_t count;
  CopyEntry tensors[kMaxTensors];
};
static_assert(sizeof(CopyList) <= 32764);

template <class From, class To>
__device__ void convert(const CopyEntry& t, int64_t begin, int64_t end) {
  using F = std::conditional_t<std::is_same_v<From, double> || std::is_same_v<To, double>, double, float>;
  const From* x = static_cast<const From*>(t.x);
  To* y = static_cast<To*>(t.y);
  const auto run = [&]<int kCount>(int64_t at) {
    F values[kCount];
    load_readonly_values(x + at, values);
    store_values(y + at, values);
  };
  int64_t rest = begin;
  if (t.aligned) {
    rest = end - (end - begin) % kWidth;
    for (int64_t at = begin + static_cast<int64_t>(threadIdx.x) * kWidth; at < rest; at += kThreads * kWidth)
      run.template operator()<kWidth>(at);
  }
  for (int64_t at = rest + static_cast<int64_t>(threadIdx.x); at < end; at += kThreads) run.template operator()<1>(at);
}

template <class To>
__global__ void __launch_bounds__(kThreads) copy_many_kernel(TERN_GRID_CONSTANT(CopyList) list) {
  const int block = static_cast<int>(blockIdx.x);
  int low = 0, high = list.count;  // tensors[low].first_block <= block < tensors[high].first_block
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (list.tensors[middle].first_block <= block ? low : high) = middle;
  }
  const CopyEntry& t = list.tensors[low];
  const int64_t begin = (block - t.first_block) * kChunk, end = begin + kChunk < t.size ? begin + kChunk : t.size;
  switch (t.from) {
    case DType::kFloat64:
      return convert<double, To>(t, begin, end);
    case DType::kBFloat16:
      return convert<BFloat16, To>(t, begin, end);
    case DType::kFloat16:
      return convert<Float16, To>(t, begin, end);
    default:
      return convert<float, To>(t, begin, end);
  }
}

}  // namespace

void copy_many(Stream stream, const ConstView* x, const View* y, int64_t count) {
  for (int64_t first = 0; first < count; first += kMaxTensors) {
    CopyList list{};
    int64_t blocks = 0;
    for (int64_t i = first; i < std::min<int64_t>(count, first + kMaxTensors); ++i) {
      const int64_t size = y[i].numel();
      if (size == 0) continue;
      list.tensors[list.count++] = {x[i].data,  y[i].data,
                                    size,       static_cast<int32_t>(blocks),
                                    x[i].dtype, aligned16(x[i].data) && aligned16(y[i].data)};
      blocks += (size + kChunk - 1) / kChunk;
    }
    if (list.count == 0) continue;
    dispatch_float(y[first].dtype, [&]<class To>() {
      launch(copy_many_kernel<To>, dim3(grid_blocks(blocks)), dim3(kThreads), 0, stream, list);
    });
  }
}

}  // namespace tern::kernels::cuda
