#include "tern/optim/radam.h"

namespace tern::optim {

kernels::RAdamRule RAdamOptions::rule() const {
  detail::check_fraction(kName, "beta1", beta1);
  detail::check_fraction(kName, "beta2", beta2);
  detail::check_not_negative(kName, "eps", eps);
  return {.lr = lr,
          .beta1 = beta1,
          .beta2 = beta2,
          .eps = eps,
          .weight_decay = weight_decay,
          .decoupled = decoupled_weight_decay,
          .maximize = maximize};
}

}  // namespace tern::optim
