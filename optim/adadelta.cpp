#include "tern/optim/adadelta.h"

namespace tern::optim {

kernels::AdadeltaRule AdadeltaOptions::rule() const {
  detail::check_share(kName, "rho", rho);
  detail::check_not_negative(kName, "eps", eps);
  return {.lr = lr, .rho = rho, .eps = eps, .weight_decay = weight_decay, .maximize = maximize};
}

}  // namespace tern::optim
