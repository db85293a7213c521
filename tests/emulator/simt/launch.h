#pragma once
// Launches and shared memory. Tern's kernels use them through kernels/cuda/support/launch.h; for other kernels see
// docs/emulator.md.

#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tern/tests/emulator/simt/runtime.h"

/// SIMT_SHARED(float, tile, [8][33]) declares `float tile[8][33]` in shared memory; SIMT_DYNAMIC_SHARED(float, p)
/// declares `float* p`, the launch's dynamic shared memory, aligned to 1,024 bytes. New shared memory is NaN.
#define SIMT_SHARED(T, name, ...) auto& name = simt::shared_variable<T __VA_ARGS__>([] {})
#define SIMT_DYNAMIC_SHARED(T, name) T* const name = static_cast<T*>(simt::dynamic_shared())

namespace simt {

/// Runs one CUDA thread. Arguments are constants, so that ThreadSanitizer need not check a copy by each thread.
template <class Kernel, class Values, size_t... I>
SIMT_INTERNAL void run_thread(Kernel kernel, const Values& values, std::index_sequence<I...>) {
  kernel(std::get<I>(values)...);
}

/// The function that runs the grid: Launch::run.
template <class... Parameters>
std::function<void()> grid_of(dim3 grid, dim3 block, size_t dynamic_shared_bytes, void (*kernel)(Parameters...),
                              std::tuple<std::remove_cvref_t<Parameters>...> values) {
  return [=] {
    auto thread = [&] { run_thread(kernel, values, std::index_sequence_for<Parameters...>()); };
    run_grid(
        grid, block, dynamic_shared_bytes, [](void* t) { (*static_cast<decltype(thread)*>(t))(); }, &thread);
  };
}

/// The <<<...>>> of a launch.
struct Grid {
  Grid(dim3 grid, dim3 block, size_t dynamic_shared_bytes = 0, void* stream = nullptr,
       Location where = Location::current())
      : launch{where, {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, dynamic_shared_bytes, 0, stream, {}},
        grid_size(grid),
        block_size(block) {}
  Launch launch;
  dim3 grid_size, block_size;
};

/// kernel<<<grid, block, dynamic_shared_bytes, stream>>>(arguments...), on the calling thread's device 0. Without the
/// runtime library the kernel has ended on return. Throws Error with CUDA's rule that was broken.
template <class... Parameters, class... Arguments>
void launch(Grid grid, void (*kernel)(Parameters...), Arguments&&... arguments) {
  grid.launch.run = grid_of(grid.grid_size, grid.block_size, grid.launch.dynamic_shared_bytes, kernel,
                            {static_cast<std::remove_cvref_t<Parameters>>(std::forward<Arguments>(arguments))...});
  const Refusal refusal = start(std::move(grid.launch));
  if (!refusal.reason.empty()) throw Error(refusal.reason);
}

}  // namespace simt
