#include "tern/optim/gradient_norm.h"

#include <cstring>

#include "tern/core/ops/workspace.h"
#include "tern/core/profiler/profiler.h"

namespace tern::optim {

Tensor empty_norm(Device device) {
  static_assert(sizeof(kernels::GradientNorm) == 2 * sizeof(double));
  return empty({2}, {.dtype = float64, .device = device});
}

Tensor gradient_norm(const std::vector<Tensor>& gradients, Device device, const Tensor& ticket) {
  const ProfileRange range("gradient_norm", RangeKind::kOp);
  std::vector<kernels::ConstView> views;
  int64_t elements = 0;
  for (const Tensor& gradient : gradients) {
    views.push_back(gradient.const_view());
    elements += gradient.numel();
  }
  const kernels::Stream stream = current_stream(device);
  const int64_t count = static_cast<int64_t>(views.size());
  const Workspace workspace(device, [&] { return kernels::gradient_norm_workspace(stream, elements, count); });
  const Tensor norm = empty_norm(device);
  const bool counted = device.is_cuda() && (count > 1 || elements > kernels::kGradientNormBlock);
  const Tensor counter = counted && !ticket.defined() ? zeros({}, {.dtype = int32, .device = device}) : ticket;
  kernels::gradient_norm(stream, views.data(), count, workspace.data(), counter.view().data,
                         static_cast<kernels::GradientNorm*>(norm.raw_data()));
  if (range.recording()) {
    double bytes = 0;
    for (const Tensor& gradient : gradients) bytes += static_cast<double>(gradient.nbytes());
    profile_bytes(bytes);
  }
  return norm;
}

kernels::GradientNorm read_norm(const Tensor& norm) {
  const Tensor host = norm.to(cpu);
  kernels::GradientNorm result;
  std::memcpy(&result, host.raw_data(), sizeof result);
  return result;
}

}  // namespace tern::optim
