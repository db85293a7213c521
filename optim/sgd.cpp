#include "tern/optim/sgd.h"

#include <cmath>

namespace tern::optim {

kernels::SgdRule SGDOptions::rule() const {
  detail::check_not_negative(kName, "momentum", momentum);
  TERN_CHECK(std::isfinite(dampening), "sgd: dampening must be finite, got ", dampening);
  TERN_CHECK(!nesterov || (momentum > 0 && dampening == 0),
             "sgd: nesterov needs momentum > 0 and dampening 0, got momentum ", momentum, " and dampening ", dampening);
  return {.lr = lr,
          .momentum = momentum,
          .dampening = dampening,
          .weight_decay = weight_decay,
          .nesterov = nesterov,
          .maximize = maximize};
}

}  // namespace tern::optim
