// The loss scale's decisions are the CPU's on every target. What they must be: tests/optim/grad_scaler_test.cpp.

#include "tern/kernels/optimizer/loss_scale.h"

#include "tern/tests/kernels/contracts/target.h"

namespace tern::kernels {
namespace {

class LossScaleKernel : public OnTarget {};
INSTANTIATE_TEST_SUITE_P(, LossScaleKernel, testing::ValuesIn(cuda_targets()), name_of_target);

TEST_P(LossScaleKernel, DecidesAsTheCpu) {
  for (const LossScalePolicy policy :
       {LossScalePolicy{.growth_interval = 3}, LossScalePolicy{.min_scale = 1, .growth_interval = 5, .hysteresis = 2},
        LossScalePolicy{.growth_factor = 4, .growth_interval = 1, .hysteresis = 3, .consecutive_hysteresis = true}}) {
    LossScale on_device, on_host;
    on_device.set_scale(64);
    on_host.set_scale(64);
    int falls = 0, rises = 0;
    for (int step = 0; step < 600; ++step) {
      const float before = on_host.scale;
      GradientNorm norms[] = {{1, random() % 6 == 0, 0}, {1, random() % 6 == 0, 0}};
      for (const GradientNorm& norm : norms) note_non_finite(Stream{}, &norm, &on_host);
      update_loss_scale(Stream{}, policy, &on_host);
      run_kernel([&](Call& on) {
        LossScale* const scale = on.memory(&on_device);
        for (GradientNorm& norm : norms) note_non_finite(on.stream(), on.memory(&norm), scale);
        update_loss_scale(on.stream(), policy, scale);
      });
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
