#include "tern/core/tensor/generator.h"

#include <algorithm>

#include "tern/core/tensor.h"

namespace tern {

namespace detail {
thread_local constinit GeneratorTrace* generator_trace = nullptr;
}  // namespace detail

void Generator::set_base(const Tensor& base) {
  if (!base.defined()) {
    state_->next.base = nullptr;
    state_->base = nullptr;
    return;
  }
  TERN_CHECK(base.dtype() == int64 && base.numel() == 1, "Generator: the base must be one int64, got ",
             base.describe());
  state_->next.base = static_cast<const uint64_t*>(base.raw_data());
  state_->base = base.storage();
  state_->base_device = base.device();
}

void Generator::check_base(Device device) const {
  TERN_CHECK(device == state_->base_device, "Generator: its draws count from a number on ", state_->base_device,
             ", so they cannot serve an op on ", device, "; call set_base({}) or use another generator");
}

void Generator::note_draw() const {
  std::vector<Generator>& drawn = detail::generator_trace->drawn_;
  if (std::find(drawn.begin(), drawn.end(), *this) == drawn.end()) drawn.push_back(*this);
}

Generator& default_generator() {
  thread_local Generator generator(0);
  return generator;
}

}  // namespace tern
