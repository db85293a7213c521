#include "tern/models/trainer/finite.h"

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/reduce/reduce.h"
#include "tern/optim/gradient_norm.h"

namespace tern::models {
namespace {

bool holds_for_any(const Tensor& found) { return any(found).item<bool>(); }

/// Whether all are finite, in one pass and one wait for the device; false also where they are on several devices.
bool all_finite(const std::vector<NamedTensor>& parameters, const std::vector<NamedTensor>& buffers) {
  std::vector<Tensor> values;
  for (const std::vector<NamedTensor>& entries : {parameters, buffers})
    for (const NamedTensor& entry : entries) {
      if (!is_floating(entry.tensor.dtype()) || entry.tensor.numel() == 0) continue;
      if (!values.empty() && entry.tensor.device() != values.front().device()) return false;
      values.push_back(entry.tensor.detach().contiguous());
    }
  return values.empty() || optim::read_norm(optim::gradient_norm(values, values.front().device())).non_finite == 0;
}

}  // namespace

std::string first_non_finite(const nn::Module& module) {
  const NoGrad off;
  const std::vector<NamedTensor> parameters = module.parameters(), buffers = module.buffers();
  if (all_finite(parameters, buffers)) return "";
  for (const NamedTensor& entry : parameters) {
    const Tensor value = entry.tensor.detach();
    if (holds_for_any(isnan(value))) return "the weight '" + entry.name + "' has NaN";
    if (holds_for_any(isinf(value))) return "the weight '" + entry.name + "' is infinite";
  }
  for (const NamedTensor& entry : buffers)
    if (is_floating(entry.tensor.dtype()) && holds_for_any(isnan(entry.tensor.detach())))
      return "the buffer '" + entry.name + "' has NaN";
  return "";
}

}  // namespace tern::models
