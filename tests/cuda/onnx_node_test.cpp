// ONNX's node tests on the CUDA device.

#include "tern/tests/core/onnx_rows.h"
#include "tern/tests/cuda/device_test.h"

namespace tern::test::onnx {
namespace {

using OnnxNode = DeviceTest;

TEST_F(OnnxNode, GivesTheOutputs) {
  for (const Case& c : cases_to_run(kCuda)) expect_outputs(c, rows().at(c.op));
}

TEST_F(OnnxNode, OfViewsGivesTheOutputs) {
  for (Case& c : cases_to_run(kCuda)) {
    for (Tensor& x : c.inputs) x = strided(x);
    expect_outputs(c, rows().at(c.op));
  }
}

}  // namespace
}  // namespace tern::test::onnx
