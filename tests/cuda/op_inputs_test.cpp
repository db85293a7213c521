// Every op with random tensors on both devices: equal results and gradients, or an error on both.

#include "tern/tests/core/op_inputs.h"
#include "tern/tests/cuda/device_test.h"

namespace tern {
namespace {

using OpInputs = DeviceTest;

TEST_F(OpInputs, GiveTheSameOnBothDevices) {
  test::expect_same_outcomes(fresh_seed(), {.device = cpu}, {.device = kCuda}, 100, true);
}

TEST_F(OpInputs, OfAnyStridesGiveWhatCopiesGive) {
  test::expect_same_outcomes(fresh_seed(), {.device = kCuda, .contiguous = true, .in_place = false},
                             {.device = kCuda, .in_place = false}, 50, false);
}

}  // namespace
}  // namespace tern
