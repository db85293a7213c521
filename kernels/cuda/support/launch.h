#pragma once
// Kernel launches, shared memory and block barriers in one form for nvcc and for the emulator (tests/emulator), which
// compiles the same .cu files as plain C++ (TERN_SIMT; its header simt.h is then included first).

#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tern/kernels/base/check.h"
#include "tern/kernels/cuda/support/check.h"
#include "tern/kernels/kernel.h"

/// TERN_SHARED(float, tile, [8][33]) declares `float tile[8][33]` in shared memory, TERN_SHARED(int, last) an int;
/// TERN_DYNAMIC_SHARED(float, p) declares `float* p`, the launch's dynamic shared memory, aligned to 128 bytes.
/// TERN_ALIGNED_DYNAMIC_SHARED(float, p, 1024) has a larger alignment, for a kernel that declares no other shared
/// memory. Nothing is initialised. Macros because they declare a variable; the emulator could not check raw __shared__,
/// which also cannot hold the 16-bit types, since they have constructors. TERN_GRID_CONSTANT(T) is the type of a kernel
/// parameter that all threads read in place; a reference in the emulator, where otherwise each thread would copy it.
#ifdef TERN_SIMT
#define TERN_GRID_CONSTANT(...) const __VA_ARGS__&
#define TERN_SHARED SIMT_SHARED
#define TERN_DYNAMIC_SHARED SIMT_DYNAMIC_SHARED
#define TERN_ALIGNED_DYNAMIC_SHARED(T, name, alignment) TERN_DYNAMIC_SHARED(T, name)
#else
#define TERN_GRID_CONSTANT(...) const __grid_constant__ __VA_ARGS__
#define TERN_SHARED(T, name, ...)                                             \
  __shared__ __align__(16) unsigned char name##_bytes[sizeof(T __VA_ARGS__)]; \
  auto& name = *reinterpret_cast<std::type_identity_t<T __VA_ARGS__>*>(name##_bytes)
#define TERN_DYNAMIC_SHARED(T, name) TERN_ALIGNED_DYNAMIC_SHARED(T, name, 128)
#define TERN_ALIGNED_DYNAMIC_SHARED(T, name, alignment) \
  extern __shared__ __align__(alignment)                \
  unsigned char tern_dynamic_shared[];                  \
  T* const name = reinterpret_cast<T*>(tern_dynamic_shared)
#endif

namespace tern::kernels::cuda {

/// The call site of a device function, for the emulator's messages; empty on the device. Device functions that
/// synchronise take one as their last argument, by default `CallSite::current()`.
#ifdef TERN_SIMT
using CallSite = std::source_location;
#else
struct CallSite {
  __host__ __device__ static constexpr CallSite current() { return {}; }
};
#endif

inline constexpr int kWarpSize = 32;
inline constexpr unsigned kFullWarp = 0xffffffffu;

/// Waits for all threads of the block; memory that they wrote before is visible after it.
__device__ inline void block_barrier([[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef TERN_SIMT
  __syncthreads(where);
#else
  __syncthreads();
#endif
}

namespace detail {

/// A stream and the location of the launch() call, where the conversion from Stream takes place.
struct LaunchStream {
  LaunchStream(Stream s, std::source_location place = std::source_location::current())  // NOLINT: converts by intent
      : stream(s), where(place) {}
  Stream stream;
  std::source_location where;
};

inline std::string describe_launch(const LaunchStream& stream, dim3 grid, dim3 block, size_t dynamic_shared_bytes,
                                   const char* kernel) {
  return tern::detail::concatenate(tern::detail::base_name(stream.where.file_name()), ":", stream.where.line(),
                                   ": kernel ", kernel, ", grid ", grid.x, "x", grid.y, "x", grid.z, ", block ",
                                   block.x, "x", block.y, "x", block.z, ", ", dynamic_shared_bytes,
                                   " bytes of dynamic shared memory");
}

#ifdef TERN_SIMT
/// Runs or queues a grid. start_grid and start_kernel hold the code that launch()'s many instances share.
[[gnu::noinline]] inline void start_grid(const LaunchStream& stream, dim3 grid, dim3 block, size_t dynamic_shared_bytes,
                                         std::function<void()> run) {
  const simt::Refusal refusal = simt::start({stream.where,
                                             {grid.x, grid.y, grid.z},
                                             {block.x, block.y, block.z},
                                             dynamic_shared_bytes,
                                             stream.stream.index,
                                             stream.stream.handle,
                                             std::move(run)});
  if (refusal.reason.empty()) return;
  const std::string what =
      describe_launch(stream, grid, block, dynamic_shared_bytes, stream.where.function_name()) + ": " + refusal.reason;
  if (refusal.device_lost) fail_device(what);
  fail(what);
}
#else
/// Queues a kernel with the arguments at `arguments`.
[[gnu::noinline]] inline void start_kernel(const LaunchStream& stream, dim3 grid, dim3 block,
                                           size_t dynamic_shared_bytes, const void* kernel, void** arguments) {
  // More than 48 KiB must be requested, of which the kernel's own variables take a part: none has 16 KiB and dynamic
  // memory besides.
  constexpr size_t kDefaultLimit = 32 * 1024;
  cudaError_t error = cudaSuccess;
  if (dynamic_shared_bytes > kDefaultLimit)
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(dynamic_shared_bytes));
  if (error == cudaSuccess)
    error = cudaLaunchKernel(kernel, grid, block, arguments, dynamic_shared_bytes,
                             static_cast<cudaStream_t>(stream.stream.handle));
  if (error == cudaSuccess) return;
  const char* name = nullptr;
  if (cudaFuncGetName(&name, kernel) != cudaSuccess) name = stream.where.function_name();
  fail_cuda(error, describe_launch(stream, grid, block, dynamic_shared_bytes, name));
}
#endif

/// Converts an argument to the kernel's parameter type like a call, but refuses narrowing of integers.
template <class Parameter, class Argument>
Parameter convert_argument(Argument&& argument) {
  using Given = std::remove_cvref_t<Argument>;
  if constexpr (std::is_integral_v<Parameter> && std::is_integral_v<Given>)
    static_assert(sizeof(Given) <= sizeof(Parameter), "launch: the argument is wider than the kernel's parameter");
  return static_cast<Parameter>(std::forward<Argument>(argument));
}

}  // namespace detail

/// Queues kernel<<<grid, block, dynamic_shared_bytes, stream>>>(arguments...). In the emulator the kernel has finished
/// on return, unless a launcher queues it. Throws Error with the launch, its configuration and the reason, or
/// DeviceError if the reason is an earlier failure of the device. An empty grid is an error: callers return early when
/// there is no work.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t dynamic_shared_bytes,
            detail::LaunchStream stream, Arguments&&... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments), "launch: wrong number of kernel arguments");
  static_assert((sizeof(Parameters) + ... + 0) <= 32764, "launch: kernel parameters are limited to 32,764 bytes");
  static_assert((std::is_trivially_copyable_v<std::remove_cvref_t<Parameters>> && ...),
                "launch: kernel parameters are copied as bytes");
  std::tuple<std::remove_cvref_t<Parameters>...> values{
      detail::convert_argument<std::remove_cvref_t<Parameters>>(std::forward<Arguments>(arguments))...};
#ifdef TERN_SIMT
  detail::start_grid(stream, grid, block, dynamic_shared_bytes,
                     simt::grid_of(grid, block, dynamic_shared_bytes, kernel, values));
#else
  std::apply(
      [&](auto&... value) {
        void* arguments[] = {const_cast<void*>(static_cast<const volatile void*>(&value))..., nullptr};
        detail::start_kernel(stream, grid, block, dynamic_shared_bytes, reinterpret_cast<const void*>(kernel),
                             arguments);
      },
      values);
#endif
}

/// The number of blocks along x: more than CUDA allows is an error, never a smaller grid.
inline unsigned grid_blocks(int64_t blocks) {
  TERN_CHECK(blocks <= 2147483647, "a kernel would need ", blocks,
             " blocks, and CUDA allows 2147483647: work on a part of the tensor at a time");
  return static_cast<unsigned>(blocks);
}

/// Multiprocessors of the stream's device, for grids whose size does not affect the result.
inline int sm_count([[maybe_unused]] Stream stream) {
#ifdef TERN_SIMT
  return 4;
#else
  int count = 0;
  TERN_CUDA_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, stream.index));
  return count;
#endif
}

}  // namespace tern::kernels::cuda
