#pragma once
// How a kernel is declared, found and called.
//
//   TERN_KERNEL(void, layer_norm_forward, Stream stream, ConstView x, ..., View y);
// declares one function per CPU level (cpu_v2, cpu_v3, cpu_v4: the x86-64 micro-architecture levels), one for CUDA with
// the same signature, and the callable `kernels::layer_norm_forward` that chooses by the stream's device and, on the
// CPU, by the level found at start. kernels/cpu is compiled once per level, into one shared object for each level. The
// floors above are compiled once, and linked with kernels/cuda or, without CUDA, with core/no_cuda, which throws.
// A kernel does not depend on autograd, nor check what its caller can check. Memory that grows with its tensors comes
// from its caller, as a workspace. A call itself holds at most 64 KiB at a time, lists and descriptors; what oneDNN and
// Eigen take and give back within a product is not counted, nor what a first call makes for later ones of its shape.

#include <utility>

#include "tern/kernels/view.h"

namespace tern {

enum class DeviceType : uint8_t { kCPU, kCUDA };

namespace kernels {

inline constexpr int kMaxDevices = 64;  // of one type

/// Where a kernel runs: a device and, on CUDA, its queue (a cudaStream_t). On the CPU a kernel is done on return.
struct Stream {
  DeviceType device = DeviceType::kCPU;
  int index = 0;
  void* handle = nullptr;
};

/// x86-64-v2 (SSE4.2), -v3 (AVX2, FMA), -v4 (AVX-512).
enum class CpuLevel : uint8_t { kV2, kV3, kV4 };

/// The level in use: the highest that this CPU and this build have, or TERN_CPU_LEVEL=v2|v3|v4 from the environment.
/// Throws Error when TERN_CPU_LEVEL names an unknown level or one that the CPU or the build lacks, and where the CPU
/// has none of the build's levels.
CpuLevel cpu_level();
/// Changes the level for all later calls (tests run every level). Not while kernels run. Throws like cpu_level().
void set_cpu_level(CpuLevel level);
/// True when both the CPU and this build have the level.
bool has_cpu_level(CpuLevel level);
const char* name_of(CpuLevel level);

/// Threads that a kernel may use on the CPU: at first the cores this process may run on (affinity and cgroup quota).
int num_threads();
void set_num_threads(int count);

template <class Signature>
class Kernel;

template <class Result, class... Args>
class Kernel<Result(Stream, Args...)> {
 public:
  using Function = Result(Stream, Args...);
  constexpr Kernel(Function* v2, Function* v3, Function* v4, Function* cuda) : cpu_{v2, v3, v4}, cuda_(cuda) {}

  Result operator()(Stream stream, Args... args) const {
    if (stream.device == DeviceType::kCUDA) return cuda_(stream, args...);
    return cpu_[static_cast<int>(cpu_level())](stream, args...);
  }

 private:
  Function* cpu_[3];
  Function* cuda_;
};

}  // namespace kernels
}  // namespace tern

#define TERN_ENTRY_POINT __attribute__((visibility("default")))
// CMake defines these as 0 for levels that a build leaves out (TERN_CPU_LEVELS); cpu_level() never returns such a
// level.
#ifndef TERN_CPU_HAS_V2
#define TERN_CPU_HAS_V2 1
#define TERN_CPU_HAS_V3 1
#define TERN_CPU_HAS_V4 1
#endif
#if TERN_CPU_HAS_V2
#define TERN_CPU_V2(name) cpu_v2::name
#else
#define TERN_CPU_V2(name) nullptr
#endif
#if TERN_CPU_HAS_V3
#define TERN_CPU_V3(name) cpu_v3::name
#else
#define TERN_CPU_V3(name) nullptr
#endif
#if TERN_CPU_HAS_V4
#define TERN_CPU_V4(name) cpu_v4::name
#else
#define TERN_CPU_V4(name) nullptr
#endif

/// Declares a kernel for every CPU level and for CUDA. A macro because it declares five functions of one signature.
/// The first parameter must be a Stream. Use inside namespace tern::kernels.
#define TERN_DECLARE_KERNEL(Result, name, ...)                          \
  namespace cpu_v2 {                                                    \
  TERN_ENTRY_POINT Result name(__VA_ARGS__);                            \
  }                                                                     \
  namespace cpu_v3 {                                                    \
  TERN_ENTRY_POINT Result name(__VA_ARGS__);                            \
  }                                                                     \
  namespace cpu_v4 {                                                    \
  TERN_ENTRY_POINT Result name(__VA_ARGS__);                            \
  }                                                                     \
  namespace cuda {                                                      \
  Result name(__VA_ARGS__);                                             \
  }                                                                     \
  inline constexpr Kernel<Result(__VA_ARGS__)> name {                   \
    TERN_CPU_V2(name), TERN_CPU_V3(name), TERN_CPU_V4(name), cuda::name \
  }
#define TERN_KERNEL TERN_DECLARE_KERNEL  // core/no_cuda/kernels.cpp has another, which defines too
