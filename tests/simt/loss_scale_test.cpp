// The CUDA loss scale makes the same decisions as the CPU's.

#include "tern/kernels/loss_scale.h"

#include <gtest/gtest.h>

#include "tern/tests/support/seed.h"

namespace tern::kernels {
namespace {

TEST(LossScaleTest, DecidesAsTheCpu) {
  const Stream device{DeviceType::kCUDA, 0, nullptr}, host{};
  std::mt19937_64 random = fresh_random();
  for (const LossScalePolicy policy :
       {LossScalePolicy{.growth_interval = 3}, LossScalePolicy{.min_scale = 1, .growth_interval = 5, .hysteresis = 2},
        LossScalePolicy{.growth_factor = 4, .growth_interval = 1, .hysteresis = 3, .consecutive_hysteresis = true}}) {
    LossScale on_device, on_host;
    on_device.set_scale(64);
    on_host.set_scale(64);
    int falls = 0, rises = 0;
    for (int step = 0; step < 600; ++step) {
      const float before = on_host.scale;
      for (int optimizer = 0; optimizer < 2; ++optimizer) {
        const GradientNorm norm{1, random() % 6 == 0, 0};
        cuda::note_non_finite(device, &norm, &on_device);
        note_non_finite(host, &norm, &on_host);
      }
      cuda::update_loss_scale(device, policy, &on_device);
      update_loss_scale(host, policy, &on_host);
      ASSERT_EQ(on_device.scale, on_host.scale) << step;
      ASSERT_EQ(on_device.inverse, on_host.inverse);
      ASSERT_EQ(on_device.growth_tracker, on_host.growth_tracker);
      ASSERT_EQ(on_device.tolerated, on_host.tolerated);
      ASSERT_EQ(on_device.skipped_in_row, on_host.skipped_in_row);
      ASSERT_EQ(on_device.skipped, on_host.skipped);
      ASSERT_EQ(on_device.found_non_finite, 0);
      falls += on_host.scale < before;
      rises += on_host.scale > before;
    }
    EXPECT_GT(falls, 0);
    EXPECT_GT(rises, 0);
    EXPECT_GT(on_host.skipped, 50);
  }
}

}  // namespace
}  // namespace tern::kernels
