#include "tern/nn/layers/containers.h"

namespace tern::nn {

Parameter& ParameterList::append(const Shape& shape, const Initializer& initializer) {
  return items_.emplace_back(this, std::to_string(items_.size()), shape, initializer);
}

size_t ParameterList::checked(int64_t i) const {
  TERN_CHECK(i >= 0 && i < size(), "nn::ParameterList: index ", i, " is outside [0, ", size(), ")");
  return static_cast<size_t>(i);
}

Parameter& ParameterDict::emplace(const std::string& name, const Shape& shape, const Initializer& initializer) {
  return items_.emplace_back(this, name, shape, initializer);
}

std::vector<std::string> ParameterDict::keys() const {
  std::vector<std::string> names;
  for (const Member& member : members()) names.push_back(member.name);
  return names;
}

size_t ParameterDict::place(const std::string& name) const {
  const std::vector<std::string> names = keys();
  return static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
}

size_t ParameterDict::checked(const std::string& name) const {
  TERN_CHECK(contains(name), "nn::ParameterDict: '", this->name(), "' has no parameter named '", name, "'");
  return place(name);
}

void Sequential::append(std::function<Tensor(const Tensor&)> function) {
  TERN_CHECK(function != nullptr, "nn::Sequential: step ", size(), " is an empty function");
  steps_.push_back({std::move(function), nullptr});
}

Module* Sequential::checked(int64_t i) const {
  TERN_CHECK(i >= 0 && i < size(), "nn::Sequential: step ", i, " is outside [0, ", size(), "), the steps of '", name(),
             "'");
  Module* const module = steps_[static_cast<size_t>(i)].module;
  TERN_CHECK(module, "nn::Sequential: step ", i, " of '", name(), "' is a function, not a module");
  return module;
}

Tensor Sequential::forward(const Tensor& input) const {
  return hooked(input, [&](const Tensor& x) {
    Tensor y = x;
    for (const Step& step : steps_) y = step.call(y);
    return y;
  });
}

}  // namespace tern::nn
