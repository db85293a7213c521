#include "tern/optim/adafactor.h"

#include <cmath>
#include <vector>

#include "tern/core/ops/workspace.h"

namespace tern::optim {
namespace {

/// A parameter's shape with size 1 in a dimension, for parameters of two dimensions or more.
std::optional<Shape> without_dim(const Shape& shape, int dim) {
  if (shape.dims() < 2) return std::nullopt;
  std::vector<int64_t> sizes(shape.begin(), shape.end());
  sizes[static_cast<size_t>(shape.wrap(dim))] = 1;
  return Shape(sizes);
}

}  // namespace

kernels::AdafactorRule AdafactorOptions::rule() const {
  detail::check_not_negative(kName, "lr", lr);
  detail::check_not_negative(kName, "eps1", eps1);
  detail::check_not_negative(kName, "eps2", eps2);
  detail::check_not_negative(kName, "weight_decay", weight_decay);
  TERN_CHECK(beta2_decay <= 0 && std::isfinite(beta2_decay), kName, ": beta2_decay must be a finite number <= 0, got ",
             beta2_decay);
  TERN_CHECK(d >= 1 && std::isfinite(d), kName, ": d must be a finite number >= 1, got ", d);
  return {.lr = lr,
          .beta2_decay = beta2_decay,
          .eps1 = eps1,
          .eps2 = eps2,
          .d = d,
          .weight_decay = weight_decay,
          .maximize = maximize};
}

std::vector<Algorithm::State> AdafactorOptions::states() {
  const auto of_vector = [](const Shape& shape) { return shape.dims() < 2 ? std::optional(shape) : std::nullopt; };
  return {{.name = "row_var", .shape = [](const Shape& shape) { return without_dim(shape, -1); }},
          {.name = "col_var", .index = 1, .shape = [](const Shape& shape) { return without_dim(shape, -2); }},
          {.name = "variance", .index = 2, .shape = of_vector}};
}

void AdafactorOptions::update_all(kernels::Stream stream, const std::vector<kernels::AdafactorRule>& groups,
                                  const std::vector<kernels::OptimizerTensor>& tensors,
                                  const kernels::OptimizerStep& step) {
  const auto count = static_cast<int64_t>(tensors.size());
  const Workspace workspace(Device{stream.device, stream.index},
                            [&] { return kernels::adafactor_workspace(stream, tensors.data(), count); });
  kernels::update_adafactor(stream, groups.data(), tensors.data(), count, step, workspace.data());
}

}  // namespace tern::optim
