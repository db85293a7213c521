#include "tern/core/device/compute_settings.h"

#include <algorithm>

#include "tern/kernels/base/check.h"
#include "tern/kernels/cuda/cudnn/attention.h"
#include "tern/kernels/cuda/cudnn/convolution.h"
#include "tern/kernels/cuda/gemm/settings.h"

namespace tern {

void set_compute_settings(const ComputeSettings& settings) {
  kernels::cuda::set_tf32(settings.tf32);
  kernels::cuda::set_autotune(settings.autotune);
  kernels::cuda::set_attention_autotune(settings.autotune);
  kernels::cuda::set_convolution_autotune(settings.autotune);
}

ComputeSettings compute_settings() { return {.tf32 = kernels::cuda::tf32(), .autotune = kernels::cuda::autotune()}; }

// The products' choices come first, then attention's and convolutions'.
std::string autotune_choices() {
  return kernels::cuda::gemm_choices() + kernels::cuda::attention_choices() + kernels::cuda::convolution_choices();
}

void restore_autotune_choices(const std::string& text) {
  const size_t convolution = std::min(text.find("convolution choices, "), text.size());
  const size_t attention = std::min(text.find("attention choices, "), convolution);
  std::string problems;
  const auto restore = [&](void (*take)(const std::string&), const std::string& part) {
    try {
      take(part);
    } catch (const Error& error) {
      problems += (problems.empty() ? "" : "; ") + std::string(error.what());
    }
  };
  restore(kernels::cuda::restore_gemm_choices, text.substr(0, attention));
  restore(kernels::cuda::restore_attention_choices, text.substr(attention, convolution - attention));
  restore(kernels::cuda::restore_convolution_choices, text.substr(convolution));
  if (!problems.empty()) throw Error(problems);
}

}  // namespace tern
