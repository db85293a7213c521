#include "tern/optim/lion.h"

namespace tern::optim {

kernels::LionRule LionOptions::rule() const {
  detail::check_fraction(kName, "beta1", beta1);
  detail::check_fraction(kName, "beta2", beta2);
  return {.lr = lr, .beta1 = beta1, .beta2 = beta2, .weight_decay = weight_decay, .maximize = maximize};
}

}  // namespace tern::optim
