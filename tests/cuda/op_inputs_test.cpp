// Every op with whatever tensors on both devices: equal results and gradients, or an error on both.

#include "tern/tests/core/op_inputs.h"

#include "tern/core/autocast.h"
#include "tern/tests/cuda/device_test.h"

namespace tern {
namespace {

using OpInputs = DeviceTest;

struct Outcome {
  Tensor y;
  std::vector<Tensor> gradients;
  std::string error;
};

Outcome run(const test::Call& call, test::Inputs& in, bool backward) {
  Outcome outcome;
  try {
    outcome.y = call(in);
    if (backward && outcome.y.requires_grad()) {
      sum(outcome.y.to(float64)).backward();
      for (const Tensor& leaf : in.leaves()) outcome.gradients.push_back(leaf.grad());
    }
    synchronize(in.device());  // bad indices
  } catch (const Error& error) {
    outcome = {{}, {}, error.what()};
    error_of([&] { synchronize(in.device()); });  // a second one must not show at the next call
  }
  return outcome;
}

TEST_F(OpInputs, GiveTheSameOnBothDevices) {
  const uint64_t seed = fresh_seed();
  std::mt19937_64 random(seed);
  test::Inputs on_cpu(seed, cpu, false), on_cuda(seed, kCuda, false);
  for (int round = 0; round < 100; ++round) {
    for (const auto& [name, call] : test::calls()) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", round " << round << ", " << name);
      constexpr DType kRegions[] = {float32, float32, float32, bfloat16, float16};
      const DType dtype = kRegions[random() % 5];
      const bool backward = random() % 2 == 0;
      Outcome expected, actual;
      on_cpu.begin(), on_cuda.begin();
      {
        const Autocast region(cpu, dtype);
        expected = run(call, on_cpu, backward);
      }
      {
        const Autocast region(kCuda, dtype);
        actual = run(call, on_cuda, backward);
      }
      ASSERT_EQ(expected.error.empty(), actual.error.empty()) << expected.error << "\n" << actual.error;
      if (!expected.error.empty()) continue;
      const double tolerance = 8 * std::max(device_tolerance(expected.y.dtype()), device_tolerance(dtype));
      expect_same(expected.y, actual.y, tolerance, name);
      ASSERT_EQ(expected.gradients.size(), actual.gradients.size());
      for (size_t i = 0; i < expected.gradients.size(); ++i) {
        const Tensor &a = expected.gradients[i], &b = actual.gradients[i];
        ASSERT_EQ(a.defined(), b.defined()) << "gradient " << i;
        if (a.defined()) expect_same(a, b, std::max(tolerance, 8 * device_tolerance(a.dtype())), "gradient", 1);
      }
      // The CPU's, so that what differs by rounding does not grow from op to op.
      if (random() % 2 == 0) on_cuda.keep(on_cpu.keep(expected.y.detach().clone()).to(kCuda));
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace tern
