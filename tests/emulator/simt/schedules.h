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

/// Expects that nothing outside the view was written: without its elements, memory must be as initialised.
inline void expect_gaps_untouched(Array& y) {
  for (int64_t i = 0; i < y.numel(); ++i)
    std::memset(y.view().as<char>() + Array::offset(y.cview(), i) * size_of(y.dtype()), 0x5a, size_of(y.dtype()));
  const auto other = std::find_if(y.bytes().begin(), y.bytes().end(), [](char c) { return c != 0x5a; });
  ASSERT_TRUE(other == y.bytes().end()) << "memory outside the view was written";
}

}  // namespace tern::kernels
