#include "tern/models/cli/common_options.h"

#include "tern/core/device/backend.h"
#include "tern/dist/rendezvous.h"
#include "tern/kernels/base/check.h"
#include "tern/kernels/kernel.h"

namespace tern::cli {
namespace {

/// A rank of a job takes the GPU of its number on this machine, or the only one that it is shown, and starts no other.
Device wanted_device(const std::string& text) {
  const dist::Launch launch = dist::detect_launch();
  const Device rank_device{DeviceType::kCUDA, cuda::listed_device_count() == 1 ? 0 : launch.local_rank};
  if (text == "auto")
    return !launch.is_parallel() ? best_device() : cuda::suitable_device_count() > 0 ? rank_device : cpu;
  return launch.is_parallel() && text == "cuda" ? rank_device : parse_device(text);
}

}  // namespace

bool is_device_option(const std::string& text) {
  if (text == "auto") return true;
  try {
    parse_device(text);
    return true;
  } catch (const Error&) {
    return false;
  }
}

Device apply_common(const CommonOptions& options) {
  if (options.threads > 0) kernels::set_num_threads(options.threads);
  const Device device = wanted_device(options.device);
  require_available(device);
  return device;
}

}  // namespace tern::cli
