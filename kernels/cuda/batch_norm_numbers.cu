// What batch normalisation computes for each channel between its passes over the images: a thread for each.

#include "tern/kernels/batch_norm.h"
#include "tern/kernels/cuda/strided.h"
#include "tern/kernels/cuda/support/rows.h"

namespace tern::kernels::cuda {
namespace {

constexpr int kThreads = 128;

/// Numbers of the channels, of any floating dtype. data == nullptr: none.
struct Numbers {
  void* data = nullptr;
  int64_t stride = 1;
  DType dtype = DType::kFloat32;
  Numbers(const ConstView& view)  // NOLINT: converts by intent
      : data(const_cast<void*>(view.data)), stride(view ? view.strides[0] : 1), dtype(view.dtype) {}
};

/// change.operator()<T>(number) of channel c, if there are numbers.
template <class Change>
__device__ void change_number(const Numbers& numbers, int64_t c, const Change& change) {
  if (numbers.data == nullptr) return;
  elementwise::with_storage<float>(numbers.dtype, [&]<class T>() {
    if constexpr (!std::is_integral_v<T>) change(static_cast<T*>(numbers.data) + c * numbers.stride);
  });
}
template <class F>
__device__ void write_number(const Numbers& numbers, int64_t c, F value) {
  change_number(numbers, c, [&]<class T>(T* number) { store_one(number, convert<F, T>(value)); });
}
/// running += momentum * (now - running), in the precision of the running number.
template <class F>
__device__ void follow(const Numbers& running, int64_t c, double momentum, F now) {
  change_number(running, c, [&]<class T>(T* number) {
    using C = ComputeType<T>;
    const C old = convert<T, C>(load_one(number));
    store_one(number, convert<C, T>(old + static_cast<C>(momentum) * (static_cast<C>(now) - old)));
  });
}

template <class F>
struct Count {
  const F* count;
  F rows;
  explicit Count(const BatchNormCount& c) : count(c.count ? c.count.as<F>() : nullptr), rows(static_cast<F>(c.rows)) {}
  __device__ F values() const { return count != nullptr ? load_one(count) : rows; }
};

template <class F>
__global__ void __launch_bounds__(kThreads)
    numbers_kernel(const F* mean, const F* squares, const Count<F> count, int64_t channels, const Numbers weight, F eps,
                   F* rstd, F* scale, const Numbers running_mean, const Numbers running_variance, double momentum) {
  const int64_t c = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (c >= channels) return;
  const F n = count.values(), sum = load_one(squares + c), factor = F(1) / std::sqrt(sum / n + eps);
  store_one(rstd + c, factor);
  change_number(weight, c,
                [&]<class T>(const T* number) { store_one(scale + c, factor * convert<T, F>(load_one(number))); });
  follow(running_mean, c, momentum, load_one(mean + c));
  follow(running_variance, c, momentum, sum / (n - 1));
}

template <class F>
__global__ void __launch_bounds__(kThreads)
    gradients_kernel(const F* sums, const F* total, const Count<F> count, int64_t channels, const F* rstd,
                     const F* scale, const Numbers weight, const Numbers bias, F* offset, F* slope) {
  const int64_t c = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (c >= channels) return;
  const F factor = load_one(rstd + c);
  write_number(weight, c, load_one(sums + channels + c) * factor);
  write_number(bias, c, load_one(sums + c));
  if (offset == nullptr) return;
  const F n = count.values(), by = -load_one(scale + c);
  store_one(offset + c, by * (load_one(total + c) / n));
  store_one(slope + c, by * (factor * factor) * (load_one(total + channels + c) / n));
}

/// run.operator()<F>() with the type of the channels' numbers.
template <class Run>
void dispatch_numbers(DType dtype, const Run& run) {
  dtype == DType::kFloat64 ? run.template operator()<double>() : run.template operator()<float>();
}

}  // namespace

void batch_norm_numbers(Stream stream, ConstView mean, ConstView squares, const BatchNormCount& count, ConstView weight,
                        double eps, View rstd, View scale, const BatchNormRunning& running) {
  const int64_t channels = mean.shape[0];
  if (channels == 0) return;
  dispatch_numbers(mean.dtype, [&]<class F>() {
    launch(numbers_kernel<F>, grid_blocks(ceil_div(channels, kThreads)), kThreads, 0, stream, mean.as<F>(),
           squares.as<F>(), Count<F>(count), channels, Numbers(weight), static_cast<F>(eps), rstd.as<F>(),
           scale ? scale.as<F>() : nullptr, Numbers(running.mean), Numbers(running.variance), running.momentum);
  });
}

void batch_norm_gradients(Stream stream, ConstView sums, ConstView total, const BatchNormCount& count, ConstView rstd,
                          ConstView scale, const BatchNormGradients& results) {
  const int64_t channels = sums.shape[1];
  if (channels == 0) return;
  dispatch_numbers(sums.dtype, [&]<class F>() {
    launch(gradients_kernel<F>, grid_blocks(ceil_div(channels, kThreads)), kThreads, 0, stream, sums.as<F>(),
           total.as<F>(), Count<F>(count), channels, rstd.as<F>(), scale.as<F>(), Numbers(results.weight),
           Numbers(results.bias), results.offset ? results.offset.as<F>() : nullptr,
           results.slope ? results.slope.as<F>() : nullptr);
  });
}

}  // namespace tern::kernels::cuda
