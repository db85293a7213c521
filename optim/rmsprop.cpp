#include "tern/optim/rmsprop.h"

namespace tern::optim {

kernels::RMSpropRule RMSpropOptions::rule() const {
  detail::check_share(kName, "alpha", alpha);
  detail::check_not_negative(kName, "eps", eps);
  detail::check_not_negative(kName, "momentum", momentum);
  return {.lr = lr,
          .alpha = alpha,
          .eps = eps,
          .weight_decay = weight_decay,
          .momentum = momentum,
          .centered = centered,
          .maximize = maximize};
}

}  // namespace tern::optim
