#pragma once
// The check of a kernel on a GPU before it is timed.

#include "tern/bench/benchmark.h"

namespace tern::bench {

/// Runs one call on the CPU and on the GPU with the same numbers and compares every Buffer in norm. Throws Error.
void check_results(const std::function<Call()>& make);

}  // namespace tern::bench
