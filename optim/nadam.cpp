#include "tern/optim/nadam.h"

namespace tern::optim {

kernels::NAdamRule NAdamOptions::rule() const {
  detail::check_fraction(kName, "beta1", beta1);
  detail::check_fraction(kName, "beta2", beta2);
  detail::check_not_negative(kName, "eps", eps);
  detail::check_not_negative(kName, "momentum_decay", momentum_decay);
  return {.lr = lr,
          .beta1 = beta1,
          .beta2 = beta2,
          .eps = eps,
          .weight_decay = weight_decay,
          .momentum_decay = momentum_decay,
          .decoupled = decoupled_weight_decay,
          .maximize = maximize};
}

}  // namespace tern::optim
