#pragma once
// The hook that runs launched grids. Without a launcher launch() runs a grid immediately; the stand-in CUDA runtime
// (tests/emulator/runtime) sets one that queues it on the stream. Uses neither dim3 nor other names that CUDA's headers
// define.

#include <cstddef>
#include <functional>
#include <source_location>
#include <string>

namespace simt {

/// One kernel launch; `run` contains its arguments.
struct Launch {
  std::source_location where;  // location of the launch() call
  unsigned grid[3];
  unsigned block[3];
  size_t dynamic_shared_bytes;
  int device;
  void* stream;               // a cudaStream_t
  std::function<void()> run;  // runs the whole grid; throws simt::Error
};

/// CUDA's reason for refusing a launch; empty: it is accepted.
struct Refusal {
  std::string reason;
  bool device_lost = false;  // by an error that persists
};
/// Queues the launch.
using Launcher = Refusal (*)(Launch&& launch);

/// Runs the grid, or gives it to the launcher. A broken rule of CUDA is a refusal.
Refusal start(Launch&& launch);

/// Applies to the whole process; nullptr: grids run immediately again. Must be set before kernels are launched.
void set_launcher(Launcher launcher);
Launcher launcher();

/// The compute capability that host code sees, for kernels that exist only on some devices: 90 (the default) is 9.0.
/// Applies to the whole process.
void set_compute_capability(int number);
int compute_capability();

/// Whether the calling host thread is running a kernel.
bool in_kernel();
/// Ends the launch with an Error, from a signal handler that interrupted a CUDA thread.
[[noreturn]] void fail_kernel(const char* message);

}  // namespace simt
