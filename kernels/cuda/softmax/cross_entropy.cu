// Cross entropy that reads the logits once, for any number of classes.

#include <cmath>

#include "tern/kernels/cuda/support/softmax_rows.h"
#include "tern/kernels/softmax.h"

namespace tern::kernels::cuda {
namespace {

constexpr int64_t kWarpClasses = 1024;  // classes up to which one warp computes a row

/// Calls f.template operator()<kGroup>().
template <class F>
void dispatch_group(int64_t classes, F&& f) {
  if (classes <= kWarpClasses)
    f.template operator()<kWarpSize>();
  else
    f.template operator()<kRowThreads>();
}

__device__ bool is_inside(int64_t target, int64_t classes) { return target >= 0 && target < classes; }

template <class T>
struct Forward {
  using F = ComputeType<T>;
  const T* logits;
  const int64_t* targets;
  const F* row_weights;  // or null
  int64_t rows, classes, ignore_index;
  F smoothing;
  F *losses, *log_sum_exp;
  IndexFault* fault;
};

/// Sum of logits - reference over a thread's columns, for label smoothing. The reference is a logit from the thread's
/// first vector, so that the difference to the row's largest logit stays accurate when all logits are large.
template <class F>
struct ShiftedSum {
  F reference = 0, sum = 0, count = 0;

  template <int kWidth>
  __device__ void add(const Vector<F, kWidth>& values, int64_t column, int64_t classes) {
    if (count == F(0)) {
      const F first = largest_number(values, -kInfinity<F>);
      reference = math::isfinite(first) ? first : F(0);
    }
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      if (column + k < 0 || column + k >= classes) continue;
      sum += values.v[k] - reference;
      count += F(1);
    }
  }
  __device__ F below(F largest) const { return count == F(0) ? F(0) : sum + count * (reference - largest); }
};

template <class T, int kGroup>
__global__ void __launch_bounds__(kRowThreads, blocks_together<T>(kRowThreads)) cross_entropy_kernel(Forward<T> a) {
  using F = ComputeType<T>;
  using Group = RowGroup<kGroup>;
  const int64_t row = Group::first_row();
  if (row >= a.rows) return;
  const T* logits = a.logits + row * a.classes;
  RowExponentials<F> exponentials;
  ShiftedSum<F> shifted;
  for_each_vector<Group>(logits, a.classes, from_compute<T>(-kInfinity<F>), [&](int64_t column, const auto& values) {
    exponentials.add(values);
    if (a.smoothing != F(0)) shifted.add(values, column, a.classes);
  });
  exponentials.template join<Group>(a.classes == 0);
  const F largest = exponentials.largest;
  const F below = a.smoothing == F(0) ? F(0) : Group::sum(shifted.below(largest));
  if (Group::lane() != 0) return;
  const F log_sum = std::log(exponentials.sum);
  a.log_sum_exp[row] = largest + log_sum;
  const int64_t target = a.targets[row];
  const bool inside = is_inside(target, a.classes);
  F loss = 0;
  if (inside && target != a.ignore_index) {
    loss = log_sum - (to_compute(logits[target]) - largest);  // relative to the largest: 1e30 is fine
    if (a.smoothing != F(0))
      loss = (F(1) - a.smoothing) * loss + a.smoothing * (log_sum - below / static_cast<F>(a.classes));
    if (a.row_weights) loss *= a.row_weights[row];
  } else if (target != a.ignore_index) {
    a.fault->report(row);
  }
  a.losses[row] = loss;
}

template <class T>
struct Backward {
  using F = ComputeType<T>;
  const T* logits;
  const int64_t* targets;
  const F *log_sum_exp, *scale;
  int64_t rows, classes, ignore_index;
  F smoothing;
  T* dlogits;
};

template <class T, int kGroup>
__global__ void __launch_bounds__(kRowThreads, blocks_together<T>(kRowThreads))
    cross_entropy_backward_kernel(Backward<T> a) {
  using F = ComputeType<T>;
  using Group = RowGroup<kGroup>;
  constexpr int kWidth = vector_width<T>;
  const int64_t row = Group::first_row();
  if (row >= a.rows) return;
  const T* logits = a.logits + row * a.classes;
  T* out = a.dlogits + row * a.classes;
  const int64_t target = a.targets[row];
  const F scale = a.scale[row];
  if (!is_inside(target, a.classes) || target == a.ignore_index || scale == F(0)) {
    // An ignored row gives 0 even when its logits are not finite.
    Vector<T, kWidth> zeros;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) zeros.v[k] = from_compute<T>(F(0));
    for (int64_t column = Group::lane() * kWidth - row_shift(out); column < a.classes; column += kGroup * kWidth)
      store_columns(out, column, a.classes, zeros);
    return;
  }
  const F log_sum_exp = a.log_sum_exp[row], everywhere = a.smoothing / static_cast<F>(a.classes);
  for_each_vector<Group>(logits, a.classes, T(), [&](int64_t column, const auto& values) {
    Vector<F, kWidth> result;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const F at_target = column + k == target ? F(1) - a.smoothing : F(0);
      result.v[k] = scale * (std::exp(values.v[k] - log_sum_exp) - everywhere - at_target);
    }
    store_columns(out, column, a.classes, from_compute<T>(result));
  });
}

constexpr int kMeanThreads = 1024;

/// Runs as one block, so that the order of summation is fixed.
template <class F>
__global__ void __launch_bounds__(kMeanThreads)
    cross_entropy_mean_kernel(const F* losses, const int64_t* targets, const F* row_weights, int64_t rows,
                              int64_t ignore_index, F* loss, F* divisor) {
  using Group = RowGroup<kMeanThreads>;
  double total = 0, count = 0;
  for (int64_t r = threadIdx.x; r < rows; r += kMeanThreads) {
    total += static_cast<double>(load_one(losses + r));
    if (load_one(targets + r) != ignore_index)
      count += row_weights ? static_cast<double>(load_one(row_weights + r)) : 1.0;
  }
  total = Group::sum(total);
  count = Group::sum(count);
  if (threadIdx.x != 0) return;
  const F divided = count == 0 ? F(1) : static_cast<F>(count);
  store_one(divisor, divided);
  store_one(loss, static_cast<F>(total) / divided);
}

/// Neighbouring rows of dy are `step` elements apart.
template <class F>
__global__ void __launch_bounds__(kRowThreads)
    cross_entropy_scale_kernel(const F* dy, int64_t step, const F* divisor, const int64_t* targets,
                               const F* row_weights, int64_t rows, int64_t ignore_index, F* scale) {
  const int64_t r = static_cast<int64_t>(blockIdx.x) * kRowThreads + threadIdx.x;
  if (r >= rows) return;
  F value = 0;
  if (load_one(targets + r) != ignore_index) {
    value = load_one(dy + r * step);
    if (divisor) value /= load_one(divisor);
    if (row_weights) value *= load_one(row_weights + r);
  }
  store_one(scale + r, value);
}

}  // namespace

void cross_entropy_forward(Stream stream, ConstView logits, ConstView targets, ConstView row_weights,
                           int64_t ignore_index, double label_smoothing, View losses, View log_sum_exp,
                           IndexFault* fault) {
  const int64_t rows = logits.rows(), classes = logits.cols();
  if (rows == 0) return;
  dispatch_float(logits.dtype, [&]<class T>() {
    using F = ComputeType<T>;
    const Forward<T> a{logits.as<T>(),
                       targets.as<int64_t>(),
                       row_weights ? row_weights.as<F>() : nullptr,
                       rows,
                       classes,
                       ignore_index,
                       static_cast<F>(label_smoothing),
                       losses.as<F>(),
                       log_sum_exp.as<F>(),
                       fault};
    dispatch_group(classes, [&]<int kGroup>() {
      launch(cross_entropy_kernel<T, kGroup>, RowGroup<kGroup>::grid(rows), kRowThreads, 0, stream, a);
    });
  });
}

void cross_entropy_backward(Stream stream, ConstView logits, ConstView targets, ConstView log_sum_exp, ConstView scale,
                            int64_t ignore_index, double label_smoothing, View dlogits) {
  const int64_t rows = logits.rows(), classes = logits.cols();
  if (rows == 0 || classes == 0) return;
  dispatch_float(logits.dtype, [&]<class T>() {
    using F = ComputeType<T>;
    const Backward<T> a{
        logits.as<T>(), targets.as<int64_t>(),           log_sum_exp.as<F>(), scale.as<F>(), rows, classes,
        ignore_index,   static_cast<F>(label_smoothing), dlogits.as<T>()};
    dispatch_group(classes, [&]<int kGroup>() {
      launch(cross_entropy_backward_kernel<T, kGroup>, RowGroup<kGroup>::grid(rows), kRowThreads, 0, stream, a);
    });
  });
}

void cross_entropy_mean(Stream stream, ConstView losses, ConstView targets, ConstView row_weights, int64_t ignore_index,
                        View loss, View divisor) {
  const auto run = [&]<class F>() {
    launch(cross_entropy_mean_kernel<F>, 1, kMeanThreads, 0, stream, losses.as<F>(), targets.as<int64_t>(),
           row_weights.as<F>(), losses.numel(), ignore_index, loss.as<F>(), divisor.as<F>());
  };
  losses.dtype == DType::kFloat64 ? run.template operator()<double>() : run.template operator()<float>();
}

void cross_entropy_scale(Stream stream, ConstView dy, ConstView divisor, ConstView targets, ConstView row_weights,
                         int64_t ignore_index, View scale) {
  const int64_t rows = scale.numel();
  if (rows == 0) return;
  const auto run = [&]<class F>() {
    launch(cross_entropy_scale_kernel<F>, grid_blocks(ceil_div(rows, kRowThreads)), kRowThreads, 0, stream, dy.as<F>(),
           int64_t{dy.numel() == 1 ? 0 : 1}, divisor.as<F>(), targets.as<int64_t>(), row_weights.as<F>(), rows,
           ignore_index, scale.as<F>());
  };
  scale.dtype == DType::kFloat64 ? run.template operator()<double>() : run.template operator()<float>();
}

}  // namespace tern::kernels::cuda
