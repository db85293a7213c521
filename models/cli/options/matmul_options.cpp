#include "tern/models/cli/options/matmul_options.h"

#include <filesystem>

#include "tern/core/device/compute_settings.h"
#include "tern/core/io/atomic_file.h"
#include "tern/core/io/input_file.h"
#include "tern/kernels/base/check.h"

namespace tern::cli {
namespace {

constexpr const char* kFile = "autotune.txt";

std::string file_in(const std::string& folder) { return (std::filesystem::path(folder) / kFile).string(); }

}  // namespace

void apply_matmul_options(const MatmulOptions& options, Device device, const models::Log& log) {
  if (device.is_cuda()) {
    set_compute_settings({.tf32 = options.tf32, .autotune = options.autotune});
    return;
  }
  if (options.tf32) log("--tf32 has no effect on " + device.str() + ": fp32 products are computed in fp32");
  if (options.autotune) log("--autotune has no effect on " + device.str() + ": there is nothing to choose from");
}

void restore_autotune(const std::string& folder, Device device, const models::Log& log) {
  if (!device.is_cuda()) return;
  std::error_code ignored;
  if (!std::filesystem::exists(file_in(folder), ignored)) return;
  try {
    restore_autotune_choices(read_whole_file(file_in(folder)));
  } catch (const Error& error) {
    log(file_in(folder) + " is not used as a whole: " + error.what());
  }
}

void save_autotune(const std::string& folder, Device device) {
  if (!device.is_cuda()) return;
  const std::string text = autotune_choices();
  if (!text.empty()) write_atomically(file_in(folder), text);
}

}  // namespace tern::cli
