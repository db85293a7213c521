#pragma once
// Helpers of the tests of emulated kernels.

#include <algorithm>

#include "tern/tests/emulator/simt/runtime.h"
#include "tern/tests/kernels/kernel_test.h"

namespace tern::kernels {

/// The emulator's stream; memory is host memory.
inline constexpr Stream kCuda{DeviceType::kCUDA, 0, nullptr};

/// Runs body under every schedule of the emulator; the random ones are different in every run.
inline void for_each_schedule(const std::function<void()>& body) {
  for (simt::Order order : simt::kSchedules) {
    if (order.kind == simt::Order::kRandom) order.seed += fresh_seed();
    simt::set_order(order);
    SCOPED_TRACE(testing::Message() << "schedule " << order.kind << " seed " << order.seed);
    body();
  }
  simt::set_order({});
}

}  // namespace tern::kernels
