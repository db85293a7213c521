#include "tern/dist/loop/accumulation.h"

namespace tern::dist {

optim::StepResult Accumulation::step(optim::Optimizer& optimizer, optim::StepOptions unscaled) {
  optim::StepResult result;
  if (scaler_.enabled()) {
    if (max_norm_ > 0) scaler_.clip_grad_norm(optimizer, max_norm_);
    result = scaler_.step(optimizer);
    scale_is_due_ = true;
  } else {
    unscaled.max_norm = max_norm_;
    result = optimizer.step(unscaled);
  }
  optimizer.zero_grad();
  return result;
}

}  // namespace tern::dist
