#include "tern/optim/adam.h"

namespace tern::optim {

template <bool kDecoupled>
kernels::AdamRule BasicAdamOptions<kDecoupled>::rule() const {
  detail::check_fraction(kName, "beta1", beta1);
  detail::check_fraction(kName, "beta2", beta2);
  detail::check_not_negative(kName, "eps", eps);
  return {.lr = lr,
          .beta1 = beta1,
          .beta2 = beta2,
          .eps = eps,
          .weight_decay = weight_decay,
          .decoupled = kDecoupled,
          .amsgrad = amsgrad,
          .maximize = maximize};
}

template struct BasicAdamOptions<false>;
template struct BasicAdamOptions<true>;

}  // namespace tern::optim
