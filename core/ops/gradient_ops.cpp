#include "tern/core/autograd/gradient_ops.h"

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/reduce/reduce.h"

namespace tern {

Tensor detail::add_gradients(const Tensor& a, const Tensor& b) { return add(a, b); }

Tensor detail::sum_gradient(const Tensor& gradient, const Shape& shape) { return sum_to(gradient, shape); }

bool detail::passes_anomaly_check(const Tensor& x) {
  NoGrad off;
  const Tensor values = x.detach();
  if (anomaly_mode() == Anomaly::kNonFinite) return all_finite(values);
  return !any(isnan(values)).item<bool>();
}

}  // namespace tern
