#include "tern/core/device/compute_settings.h"

#include <mutex>

#include "tern/core/no_cuda/no_cuda.h"

namespace tern {
namespace {

std::mutex mutex;
ComputeSettings current;

}  // namespace

void set_compute_settings(const ComputeSettings& settings) {
  const std::lock_guard<std::mutex> lock(mutex);
  current = settings;
}

ComputeSettings compute_settings() {
  const std::lock_guard<std::mutex> lock(mutex);
  return current;
}

std::string autotune_choices() { return ""; }
void restore_autotune_choices(const std::string&) { cuda::fail_without_cuda("restore_autotune_choices"); }

}  // namespace tern
