// Queues kernels on streams, to be run by the emulator.

#include <algorithm>
#include <future>

#include "tern/tests/emulator/runtime/state.h"
#include "tern/tests/emulator/simt/launcher.h"

namespace tern::standin {
namespace {

constexpr size_t kSharedByDefault = 48 * 1024;  // more requires cudaFuncSetAttribute()
constexpr size_t kSharedLimit = 227 * 1024;

/// "layer_norm_forward" of "void tern::kernels::cuda::layer_norm_forward(tern::kernels::Stream, ...)".
std::string short_name(std::string name) {
  name.resize(std::min(name.find('('), name.size()));
  name.resize(std::min(name.find('<'), name.size()));
  const size_t start = name.find_last_of(" :");
  return start == std::string::npos ? name : name.substr(start + 1);
}

bool valid_configuration(const simt::Launch& launch) {
  const auto [gx, gy, gz] = launch.grid;
  const auto [bx, by, bz] = launch.block;
  return gx >= 1 && gx <= 0x7fffffffu && gy >= 1 && gy <= 65535 && gz >= 1 && gz <= 65535 && bx >= 1 && bx <= 1024 &&
         by >= 1 && by <= 1024 && bz >= 1 && bz <= 64 && uint64_t{bx} * by * bz <= 1024;
}

thread_local constinit bool thread_has_ended = false;
struct ThreadEnd {
  ~ThreadEnd() { thread_has_ended = true; }
};

/// The emulator's state is destroyed with its host thread. Later destructors may still wait for kernels, which then run
/// in another thread.
void run_kernel(const std::function<void()>& run) {
  static thread_local ThreadEnd end;
  if (!thread_has_ended) return run();
  std::async(std::launch::async, run).get();
}

cudaError_t queue_launch(simt::Launch& launch) {
  if (launch.dynamic_shared_bytes > kSharedByDefault) {
    const cudaError_t error = api("cudaFuncSetAttribute", [&](State&) {
      return launch.dynamic_shared_bytes > kSharedLimit ? cudaErrorInvalidValue : cudaSuccess;
    });
    if (error != cudaSuccess) return error;
  }
  return api("cudaLaunchKernel", [&](State& s) {
    if (!valid_configuration(launch)) return cudaErrorInvalidConfiguration;
    CUstream_st* const stream = find_stream(s, static_cast<cudaStream_t>(launch.stream));
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (stream->device != current_device()) return cudaErrorInvalidResourceHandle;
    const std::string name = short_name(launch.where.function_name());
    ++s.counters.kernel_launches;
    ++s.counters.kernels_by_name[name];
    const std::string file = launch.where.file_name();
    const std::string place = file.substr(file.rfind('/') + 1) + ":" + std::to_string(launch.where.line());
    const auto run = [kernel = std::move(launch.run)] { run_kernel(kernel); };
    return submit(s, stream, Work{"kernel " + name + " (" + place + ")", run, {}});
  });
}

simt::Refusal launch_kernel(simt::Launch&& launch) {
  const cudaError_t error = queue_launch(launch);
  if (error == cudaSuccess) return {};
  cudaGetLastError();
  return {std::string(cudaGetErrorName(error)) + ": " + cudaGetErrorString(error), is_sticky(error)};
}

/// Loading this library makes launch() queue, and reports a malformed environment immediately.
[[maybe_unused]] const bool registered = [] {
  state();
  simt::set_launcher(launch_kernel);
  return true;
}();

}  // namespace
}  // namespace tern::standin

extern "C" {

// Compiled kernels cannot run here, only the emulator's, through launch().
cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t) {
  return tern::standin::api("cudaLaunchKernel", [](tern::standin::State&) { return cudaErrorNotSupported; });
}

}  // extern "C"
