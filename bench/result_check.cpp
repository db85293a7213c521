#include "tern/bench/result_check.h"

#include <algorithm>

#include "tern/core/memory/stream.h"
#include "tern/core/ops/ops.h"
#include "tern/kernels/base/check.h"

namespace tern::bench {
namespace {

/// Bound on the norm of the difference relative to the result's norm, for sums in another order and, in 16 bits, for
/// intermediate rounding. Normal random numbers of any dtype agree to 2e-6 between devices.
double tolerance_of(DType dtype) {
  if (dtype == bfloat16) return 4e-2;
  if (dtype == float16) return 6e-3;
  return dtype == float64 ? 1e-5 : 2e-4;
}

/// The bound of a float32 result in a row that has tensors of 16 bits as well. A statistic of rounded numbers, as layer
/// norm's mean, differs where a number lay between two that the dtype has and the devices rounded it apart: by a unit
/// in the last place of each number at most, with random signs, so by that share of the statistic.
double tolerance_of_statistics(const std::vector<Tensor>& buffers) {
  double tolerance = tolerance_of(float32);
  for (const Tensor& t : buffers) {
    if (t.dtype() == bfloat16) tolerance = std::max(tolerance, 0x1p-8);
    if (t.dtype() == float16) tolerance = std::max(tolerance, 0x1p-11);
  }
  return tolerance;
}

void compare(const Tensor& on_cpu, const Tensor& on_gpu, size_t index, double tolerance) {
  const auto what = [&] {
    return tern::detail::concatenate("buffer ", index, ", ", on_cpu.dtype(), " ", on_cpu.shape(), ": ");
  };
  if (!is_floating(on_cpu.dtype())) {
    TERN_CHECK(all(eq(on_cpu, on_gpu)).item<bool>(), what(), "the GPU's result is not the CPU's");
    return;
  }
  const Tensor a = on_cpu.to(float64), b = on_gpu.to(float64), zero = zeros({}, {.dtype = float64});
  const Tensor same = logical_or(eq(a, b), logical_and(isnan(a), isnan(b)));  // equal infinities and NaNs
  const double difference = norm(where(same, zero, sub(a, b))).item<double>();
  const double size = norm(where(isfinite(a), a, zero)).item<double>();
  TERN_CHECK(difference <= tolerance * size, what(), "the GPU's result differs from the CPU's by ", difference,
             ", whose norm is ", size);
}

}  // namespace

void check_results(const std::function<Call()>& make) {
  const uint64_t made = Buffer::made;
  std::vector<Tensor> results[2];
  const auto run = [&](std::vector<Tensor>& buffers) {
    Buffer::made = made;
    Buffer::noted = &buffers;
    const Call call = make();
    Buffer::noted = nullptr;
    call();
    synchronize(place());
  };
  {
    const OnCpu on_cpu;
    run(results[0]);
  }
  run(results[1]);
  TERN_CHECK(results[0].size() == results[1].size(), "the devices' calls have ", results[0].size(), " and ",
             results[1].size(), " buffers");
  const double of_statistics = tolerance_of_statistics(results[0]);
  for (size_t i = 0; i < results[0].size(); ++i) {
    const DType dtype = results[0][i].dtype();
    compare(results[0][i], results[1][i].to(cpu), i, dtype == float32 ? of_statistics : tolerance_of(dtype));
  }
}

}  // namespace tern::bench
