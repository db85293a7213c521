#include "tern/optim/adagrad.h"

namespace tern::optim {

kernels::AdagradRule AdagradOptions::rule() const {
  detail::check_not_negative(kName, "lr_decay", lr_decay);
  detail::check_not_negative(kName, "eps", eps);
  detail::check_not_negative(kName, "initial_accumulator_value", initial_accumulator_value);
  return {.lr = lr,
          .lr_decay = lr_decay,
          .eps = eps,
          .weight_decay = weight_decay,
          .initial_accumulator_value = initial_accumulator_value,
          .maximize = maximize};
}

}  // namespace tern::optim
