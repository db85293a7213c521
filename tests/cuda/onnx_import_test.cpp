// ONNX's node tests by import of their files, on the CUDA device.

#include "tern/tests/cuda/device_test.h"
#include "tern/tests/models/onnx_cases.h"

namespace tern::test {
namespace {

using OnnxImport = DeviceTest;

TEST_F(OnnxImport, GivesTheOutputs) {
  const TemporaryFolder folder;
  for (const OnnxCase& c : load_onnx_cases()) {
    if (!c.missing.empty() || kOnnxLeftOut.contains(c.name) || kOnnxRefused.contains(c.op) ||
        kOnnxRefusedCases.contains(c.name))
      continue;
    SCOPED_TRACE(testing::Message() << c.name << ", " << c.op);
    try {
      EXPECT_EQ(difference_of(c, *model_of(c, folder, {.device = kCuda})), "");
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

}  // namespace
}  // namespace tern::test
