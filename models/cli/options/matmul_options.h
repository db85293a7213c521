#pragma once
// --tf32 and --autotune: how matrix products, convolutions and attention are computed on CUDA. On the CPU they change
// nothing.

#include <string>

#include "tern/core/device/device.h"
#include "tern/models/log.h"

namespace tern::cli {

struct MatmulOptions {
  bool tf32 = false;
  bool autotune = false;  // for commands that leave a run folder, where the choices are kept
};

/// Applies the options to the process; says through `log` which of them the device has no use for.
void apply_matmul_options(const MatmulOptions& options, Device device, const models::Log& log);

/// Uses the algorithms that a run with --autotune left in the model folder, on a CUDA device. A folder without them is
/// the usual case; what cannot be used (made with another cuBLASLt, damaged) is said through `log` and left alone.
void restore_autotune(const std::string& folder, Device device, const models::Log& log);
/// Writes the algorithms that were timed or restored into the run folder; no file when there are none.
void save_autotune(const std::string& folder, Device device);

}  // namespace tern::cli
