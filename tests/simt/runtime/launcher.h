#pragma once
// Who runs a launched grid. Without a launcher launch() runs it at once; the stand-in CUDA runtime (tests/standin)
// sets one and queues the grid on its stream. Needs neither dim3 nor anything else that CUDA's headers also define.

#include <cstddef>
#include <functional>
#include <source_location>
#include <string>

namespace simt {

/// One kernel launch, with its arguments inside `run`.
struct Launch {
  std::source_location where;  // of the call of launch()
  unsigned grid[3];
  unsigned block[3];
  size_t dynamic_shared_bytes;
  int device;
  void* stream;               // a cudaStream_t
  std::function<void()> run;  // runs the whole grid; throws simt::Error
};

/// CUDA's words for why a launch cannot be; empty: it can.
struct Refusal {
  std::string reason;
  bool device_lost = false;  // by an error that stays
};
/// Queues the launch.
using Launcher = Refusal (*)(Launch&& launch);

/// For the whole process; nullptr runs grids at once again. To be set before kernels are launched.
void set_launcher(Launcher launcher);
Launcher launcher();

/// The device that host code finds, where kernels exist for some only: 90 (at first) is compute capability 9.0. For the
/// whole process.
void set_compute_capability(int number);
int compute_capability();

/// Whether the calling host thread runs a kernel just now.
bool in_kernel();
/// Ends the launch with an Error, from within a signal handler that interrupted a CUDA thread.
[[noreturn]] void fail_kernel(const char* message);

}  // namespace simt
