#include "tern/models/cli/options/common_options.h"

#include "tern/core/ops/ops.h"
#include "tern/dist/store/placement.h"
#include "tern/kernels/base/address_space.h"
#include "tern/kernels/base/check.h"
#include "tern/kernels/kernel.h"

namespace tern::cli {
namespace {

Device wanted_device(const std::string& text) {
  const dist::Launch launch = dist::detect_launch();
  if (text == "auto") return dist::best_rank_device(launch);
  return launch.is_parallel() && text == "cuda" ? dist::rank_gpu(launch) : parse_device(text);
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
  // Here no other thread takes memory while oneDNN makes its code (kernels/cpu/onednn.h).
  if (kernels::address_space_limit() != INT64_MAX) static_cast<void>(matmul(zeros({300, 300}), zeros({300, 300})));
  return device;
}

}  // namespace tern::cli
