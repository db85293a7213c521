#include "tern/models/trainer/finite.h"

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/pointwise.h"
#include "tern/core/ops/reduce.h"

namespace tern::models {
namespace {

bool holds_for_any(const Tensor& found) { return any(found).item<bool>(); }

}  // namespace

std::string first_non_finite(const nn::Module& module) {
  const NoGrad off;
  for (const NamedTensor& entry : module.parameters()) {
    const Tensor value = entry.tensor.detach();
    if (holds_for_any(isnan(value))) return "the weight '" + entry.name + "' has NaN";
    if (holds_for_any(isinf(value))) return "the weight '" + entry.name + "' is infinite";
  }
  for (const NamedTensor& entry : module.buffers())
    if (is_floating(entry.tensor.dtype()) && holds_for_any(isnan(entry.tensor.detach())))
      return "the buffer '" + entry.name + "' has NaN";
  return "";
}

}  // namespace tern::models
