// ONNX's node tests on the CUDA device, by import of their models.

#include "tern/core/autograd/grad_mode.h"
#include "tern/tests/cuda/device_test.h"
#include "tern/tests/models/onnx_cases.h"

namespace tern::test {
namespace {

using OnnxNode = DeviceTest;

TEST_F(OnnxNode, GivesTheOutputs) {
  const TemporaryFolder folder;
  const NoGrad off;
  int right = 0;
  for (const OnnxCase& c : load_onnx_cases()) {
    if (!c.missing.empty() || kOnnxLeftOut.contains(c.name) || kOnnxRefused.contains(c.op) ||
        kOnnxRefusedCases.contains(c.name))
      continue;
    SCOPED_TRACE(testing::Message() << c.name << ", " << c.op);
    try {
      EXPECT_EQ(difference_of(c, *model_of(c, folder, {.device = kCuda})), "");
      ++right;
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
  EXPECT_GE(right, 1325);
}

}  // namespace
}  // namespace tern::test
