#include "tern/models/cli/matmul_options.h"

#include <algorithm>
#include <filesystem>

#include "tern/core/check.h"
#include "tern/core/io/atomic_file.h"
#include "tern/core/io/input_file.h"
#include "tern/kernels/cuda/cudnn_attention.h"
#include "tern/kernels/cuda/gemm_settings.h"

namespace tern::cli {
namespace {

constexpr const char* kFile = "autotune.txt";  // the products' choices, then attention's
constexpr const char* kAttention = "attention choices, ";

std::string file_in(const std::string& folder) { return (std::filesystem::path(folder) / kFile).string(); }

}  // namespace

void apply_matmul_options(const MatmulOptions& options, Device device,
                          const std::function<void(const std::string& line)>& log) {
  if (device.is_cuda()) {
    kernels::cuda::set_tf32(options.tf32);
    kernels::cuda::set_autotune(options.autotune);
    kernels::cuda::set_attention_autotune(options.autotune);
    return;
  }
  if (options.tf32) log("--tf32 has no effect on " + device.str() + ": fp32 products are computed in fp32");
  if (options.autotune) log("--autotune has no effect on " + device.str() + ": there is nothing to choose from");
}

void restore_autotune(const std::string& folder, Device device,
                      const std::function<void(const std::string& line)>& log) {
  if (!device.is_cuda()) return;
  std::error_code ignored;
  if (!std::filesystem::exists(file_in(folder), ignored)) return;
  const std::string all = read_whole_file(file_in(folder));
  const size_t attention = std::min(all.find(kAttention), all.size());
  const auto restore = [&](void (*take)(const std::string&), const std::string& part) {
    try {
      take(part);
    } catch (const Error& error) {
      log(file_in(folder) + " is not used: " + error.what());
    }
  };
  restore(kernels::cuda::restore_gemm_choices, all.substr(0, attention));
  restore(kernels::cuda::restore_attention_choices, all.substr(attention));
}

void save_autotune(const std::string& folder, Device device) {
  if (!device.is_cuda()) return;
  const std::string text = kernels::cuda::gemm_choices() + kernels::cuda::attention_choices();
  if (!text.empty()) write_atomically(file_in(folder), text);
}

}  // namespace tern::cli
