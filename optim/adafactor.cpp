#include "tern/optim/adafactor.h"

#include <cmath>
#include <limits>
#include <vector>

#include "tern/core/ops/matmul.h"
#include "tern/core/ops/reduce.h"
#include "tern/core/ops/vector_norm.h"

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

void AdafactorOptions::check() const {
  detail::check_not_negative(kName, "lr", lr);
  detail::check_not_negative(kName, "eps1", eps1);
  detail::check_not_negative(kName, "eps2", eps2);
  detail::check_not_negative(kName, "weight_decay", weight_decay);
  TERN_CHECK(beta2_decay <= 0 && std::isfinite(beta2_decay), kName, ": beta2_decay must be a finite number <= 0, got ",
             beta2_decay);
  TERN_CHECK(d >= 1 && std::isfinite(d), kName, ": d must be a finite number >= 1, got ", d);
}

std::vector<Algorithm::State> AdafactorOptions::states() {
  const auto of_vector = [](const Shape& shape) { return shape.dims() < 2 ? std::optional(shape) : std::nullopt; };
  return {{.name = "row_var", .shape = [](const Shape& shape) { return without_dim(shape, -1); }},
          {.name = "col_var", .index = 1, .shape = [](const Shape& shape) { return without_dim(shape, -2); }},
          {.name = "variance", .index = 2, .shape = of_vector}};
}

void AdafactorOptions::update(WholeParameter& p) const {
  const DType dtype = p.weight.dtype();
  const double smallest = eps1 > 0           ? eps1
                          : dtype == float64 ? std::numeric_limits<double>::epsilon()
                                             : double{std::numeric_limits<float>::epsilon()};
  const Tensor share = pow(p.count, beta2_decay).to(dtype);  // 1 - beta2
  const auto root_mean_square = [](const Tensor& x) {
    return norm(x) / std::sqrt(static_cast<double>(std::max<int64_t>(x.numel(), 1)));
  };
  const Tensor rate = minimum(rsqrt(p.count), full({}, lr, p.count.options())).to(dtype);
  const Tensor scale = clamp(root_mean_square(p.weight), eps2, INFINITY) * rate;
  const Tensor squares = p.gradient * p.gradient;
  Tensor estimate;
  if (p.gradient.dim() > 1) {
    Tensor &rows = p.states[0], &columns = p.states[1];
    rows = lerp(rows, mean(squares, {-1}, true), share);
    columns = lerp(columns, mean(squares, {-2}, true), share);
    estimate = rows * columns / clamp(mean(rows, {-2}, true), smallest, INFINITY);
  } else {
    estimate = p.states[2] = lerp(p.states[2], squares, share);
  }
  const Tensor change = p.gradient * rsqrt(clamp(estimate, smallest * smallest, INFINITY));
  const Tensor length = clamp(root_mean_square(change) / d, 1, INFINITY);
  if (weight_decay != 0) p.weight = p.weight * (1 - lr * weight_decay);
  p.weight = p.weight - change * (scale / length);
}

}  // namespace tern::optim
