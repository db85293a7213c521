#include "tern/nn/layers/containers.h"

namespace tern::nn {

void Sequential::append(std::function<Tensor(const Tensor&)> function) {
  TERN_CHECK(function != nullptr, "nn::Sequential: step ", size(), " is an empty function");
  steps_.push_back(std::move(function));
}

Tensor Sequential::forward(const Tensor& x) const {
  Tensor y = x;
  for (const auto& step : steps_) y = step(y);
  return y;
}

}  // namespace tern::nn
