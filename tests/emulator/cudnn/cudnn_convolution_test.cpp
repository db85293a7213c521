// cuDNN's convolutions on the stand-in: graphs, plans, parts of the batch and choices, against sums in fp64.

#if __has_include(<cudnn.h>)

#include <cudnn.h>

#include <cstdio>

#include "tern/kernels/cuda/cudnn/convolution.h"
#include "tern/kernels/cuda/gemm/settings.h"
#include "tern/kernels/cuda/support/cudnn_info.h"
#include "tern/tests/emulator/cudnn/cudnn.h"
#include "tern/tests/emulator/messages.h"
#include "tern/tests/emulator/runtime/standin.h"
#include "tern/tests/kernels/contracts/convolution.h"

namespace tern::kernels {
namespace {

using standin::CudnnRefuses;

class StandinCudnnConvolution : public OnTarget {
 protected:
  void TearDown() override {
    standin::set_cudnn_refuses(CudnnRefuses::kNothing);
    cuda::set_tf32(false);
    cuda::set_convolution_autotune(false);
    OnTarget::TearDown();
  }
};
INSTANTIATE_TEST_SUITE_P(, StandinCudnnConvolution, testing::ValuesIn(device_targets()), name_of_target);

std::string header() { return "convolution choices, cuDNN " + cuda::cudnn_info().version + "\n"; }
uint64_t executions() { return standin::counters().kernels_by_name["cudnnBackendExecute"]; }

enum class Pass { kForward, kInput, kWeight };
constexpr Pass kPasses[] = {Pass::kForward, Pass::kInput, Pass::kWeight};

/// One pass of a convolution with random inputs.
struct Trial {
  Pass pass;
  ConvolutionShape shape;
  DType dtype;
  bool with_bias;
  Array x, weight, y, bias, residual;
  bool with_residual = false;
  ImageActivation activation = ImageActivation::kNone;
  bool computed = false;  // by cuDNN
  uint64_t executed = 0;  // graphs
  int64_t max_elements = INT_MAX;
  double roundings = 0;  // to 16 bits, of what the result is made of

  Trial(std::mt19937_64& random, Pass p, const ConvolutionShape& s, DType d, bool add = false,
        Order order = Order::kContiguous)
      : pass(p),
        shape(s),
        dtype(d),
        with_bias(add),
        x(random_array(random, d, input_shape(s), -1, 1, order)),
        weight(random_array(random, p == Pass::kWeight ? float32 : d, weight_shape(s), -1, 1)),
        y(random_array(random, d, output_shape(s), -1, 1, order)),
        bias(random_array(random, random() % 2 ? float32 : d, {s.out_channels}, -1, 1)),
        residual(random_array(random, d, output_shape(s), -1, 1)) {}

  Trial& run() {
    standin::reset_counters();
    run_kernel([&](Call& on) {
      void* const memory = on.workspace(cuda::cudnn_convolution_workspace(on.stream(), shape, dtype));
      const auto stream = on.stream();
      if (pass == Pass::kForward)
        computed = cuda::cudnn_convolution_forward(stream, shape, on(std::as_const(x)), on(std::as_const(weight)),
                                                   {.bias = on.when(with_bias, std::as_const(bias)),
                                                    .residual = on.when(with_residual, std::as_const(residual)),
                                                    .activation = activation},
                                                   on(y), memory, max_elements);
      if (pass == Pass::kInput)
        computed = cuda::cudnn_convolution_backward_input(stream, shape, on(std::as_const(y)),
                                                          on(std::as_const(weight)), on(x), memory, max_elements);
      if (pass == Pass::kWeight)
        computed = cuda::cudnn_convolution_backward_weight(stream, shape, on(std::as_const(y)), on(std::as_const(x)),
                                                           on(weight), memory, max_elements);
    });
    executed = executions();
    return *this;
  }

  void expect_right() {
    Array& result = pass == Pass::kForward ? y : pass == Pass::kInput ? x : weight;
    ExactSums sums(result.numel());
    for_each_product(shape, [&](int64_t i, int64_t w, int64_t o) {
      if (pass == Pass::kForward) sums.add(o, x.at(i) * weight.at(w));
      if (pass == Pass::kInput) sums.add(i, y.at(o) * weight.at(w));
      if (pass == Pass::kWeight) sums.add(w, y.at(o) * x.at(i));
    });
    for (double& size : sums.size) size *= 1 + roundings * epsilon_of(dtype) / 4e-7;
    for (int64_t o = 0; pass == Pass::kForward && o < result.numel(); ++o) {
      if (with_bias) sums.add(o, bias.at(o % shape.out_channels));
      if (with_residual) sums.add(o, residual.at(o));
      double& value = sums.value[static_cast<size_t>(o)];
      value = with_image_activation(activation, [&](const auto& f) { return f.forward(value); });
      sums.size[static_cast<size_t>(o)] *= activation == ImageActivation::kNone ? 1 : 1.2;  // the greatest slope
    }
    sums.expect_near(result, result.dtype());
  }
};

/// Shapes that differ in every run, in one to three dimensions. Each test has another batch, since plans are kept.
ConvolutionShape random_shape(std::mt19937_64& random, int64_t batch) {
  const auto number = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  const int64_t groups = number(1, 3);
  std::vector<ConvolutionAxis> axes(static_cast<size_t>(number(1, 3)));
  for (ConvolutionAxis& a : axes)
    a = {number(5, 9), number(2, 3), number(1, 2), number(0, 2), number(1, 2), number(-1, 1)};
  return convolution_shape(batch, groups * number(1, 5), groups * number(1, 5), groups, axes);
}

TEST_P(StandinCudnnConvolution, MatchesReference) {
  for (int n = 0; n < 8 && !HasFailure(); ++n)
    for (const DType dtype : {float32, bfloat16, float16})
      for (const Pass pass : kPasses) {
        Trial t(random, pass, random_shape(random, 2), dtype, n % 2 == 0);
        SCOPED_TRACE(testing::Message() << static_cast<int>(pass) << ' ' << name_of(dtype) << ' ' << describe(t.shape));
        ASSERT_TRUE(t.run().computed) << standin::cudnn_message();
        EXPECT_EQ(t.executed, 1u);
        EXPECT_EQ(standin::last_cudnn_engine(), 3) << "the suggestions before it have other bits or fewer";
        t.expect_right();
      }
}

TEST_P(StandinCudnnConvolution, Tf32OnlyOnRequest) {
  const ConvolutionShape shape = random_shape(random, 3);
  for (const bool fast : {true, false}) {
    cuda::set_tf32(fast);
    EXPECT_TRUE(Trial(random, Pass::kForward, shape, float32).run().computed);
    EXPECT_EQ(standin::last_cudnn_engine(), fast ? 1 : 3);
    EXPECT_TRUE(Trial(random, Pass::kForward, shape, bfloat16).run().computed);
    EXPECT_EQ(standin::last_cudnn_engine(), 3);
  }
}

/// The gradient of a weight is one sum over the batch, which columns add up part by part.
TEST_P(StandinCudnnConvolution, LargeTensorsAreComputedByParts) {
  ConvolutionShape shape = convolution_shape(7, 8, 16, 1, {{6, 3, 1, 1}, {5, 3, 1, 1}});
  for (const Pass pass : kPasses) {
    Trial t(random, pass, shape, bfloat16, true);
    t.with_residual = true;
    t.max_elements = 3 * 16 * 6 * 5 + 100;  // three images
    t.run();
    EXPECT_EQ(t.computed, pass != Pass::kWeight);
    EXPECT_EQ(t.executed, pass == Pass::kWeight ? 0u : 3u);
    if (t.computed) t.expect_right();
    t.max_elements = 16 * 6 * 5 - 1;  // less than an image
    EXPECT_FALSE(t.run().computed);
  }
}

TEST_P(StandinCudnnConvolution, LeavesOtherCallsToColumns) {
  const ConvolutionShape good = convolution_shape(2, 3, 5, 1, {{7, 3}, {6, 2}});
  ConvolutionShape empty = good, more = good;
  empty.batch = 0;
  ++more.out[2];  // as the gradient of a transposed convolution with output_padding
  more.in[2] -= 2;
  for (const Pass pass : kPasses) {
    EXPECT_TRUE(Trial(random, pass, good, float16).run().computed);
    EXPECT_FALSE(Trial(random, pass, good, float64).run().computed);
    EXPECT_FALSE(Trial(random, pass, good, float16, false, Order::kMisaligned).run().computed);
    EXPECT_FALSE(Trial(random, pass, empty, float16).run().computed);
    EXPECT_FALSE(Trial(random, pass, convolution_shape(2, 8, 8, 1, {{7}, {6}}), float16).run().computed);
    standin::set_cudnn_refuses(CudnnRefuses::kConvolutions);
    Trial refused(random, pass, convolution_shape(2, 4, 5, 1, {{8, 3}, {6, 2}}), float16);
    EXPECT_FALSE(refused.run().computed);
    EXPECT_EQ(refused.executed, 0u);
    standin::set_cudnn_refuses(CudnnRefuses::kNothing);
  }
}

TEST_P(StandinCudnnConvolution, TooMuchWorkspaceIsNotTaken) {
  standin::set_cudnn_engines(int64_t{1} << 30, true);
  EXPECT_FALSE(Trial(random, Pass::kInput, convolution_shape(2, 3, 6, 1, {{9, 3}, {6, 2}}), float32).run().computed);
  standin::set_cudnn_engines(4096, true);
}

/// Bias, residual and activation are parts of the graph, in any combination; activations that cuDNN lacks are computed
/// after it.
TEST_P(StandinCudnnConvolution, Ends) {
  for (const DType dtype : {float32, bfloat16})
    for (int i = 0; i < 6; ++i)
      for (const bool with_residual : {false, true}) {
        Trial t(random, Pass::kForward, convolution_shape(3, 4, 7, 1, {{6, 3, 1, 1}, {5, 3, 1, 1}}), dtype,
                random() % 2);
        t.with_residual = with_residual;
        t.activation = static_cast<ImageActivation>(i);
        SCOPED_TRACE(testing::Message() << name_of(dtype) << ' ' << i << ' ' << with_residual << t.with_bias);
        EXPECT_TRUE(t.run().computed);
        EXPECT_EQ(t.executed, 1u);
        const bool lacks = t.activation == ImageActivation::kRelu6 || t.activation == ImageActivation::kHardSwish;
        EXPECT_EQ(standin::last_cudnn_operations(), lacks ? 1 : 1 + t.with_bias + with_residual + (i > 0));
        t.roundings = is_low_precision(dtype) && lacks ? 2 : 0;
        t.expect_right();
      }
}

/// A bias that no engine adds is added after the convolution.
TEST_P(StandinCudnnConvolution, BiasOfItsOwn) {
  standin::set_cudnn_refuses(CudnnRefuses::kEnds);
  for (const DType dtype : {float32, bfloat16}) {
    Trial t(random, Pass::kForward, random_shape(random, 4), dtype, true);
    EXPECT_TRUE(t.run().computed);
    EXPECT_EQ(t.executed, 1u);
    t.roundings = is_low_precision(dtype) ? 2 : 0;
    t.expect_right();
  }
}

/// Where no engine gives fp32 sums of 16-bit images, they are rounded once.
TEST_P(StandinCudnnConvolution, NarrowSumsOfAWeightsGradient) {
  standin::set_cudnn_refuses(CudnnRefuses::kWideGradients);
  Trial t(random, Pass::kWeight, random_shape(random, 5), bfloat16);
  EXPECT_TRUE(t.run().computed);
  t.roundings = 1;
  t.expect_right();
}

TEST_P(StandinCudnnConvolution, AutotuneTimesOnceAndKeepsWhatItFound) {
  cuda::set_convolution_autotune(true);
  const ConvolutionShape shape = random_shape(random, 6);
  for (const Pass pass : kPasses) {
    Trial t(random, pass, shape, bfloat16, true);
    SCOPED_TRACE(describe(shape));
    EXPECT_GT(t.run().executed, 2u);
    if (t.computed) t.expect_right();
    EXPECT_LE(t.run().executed, 1u);
    if (t.computed) t.expect_right();
  }
  const std::string kept = cuda::convolution_choices();
  EXPECT_TRUE(kept.starts_with(header())) << kept;
  EXPECT_GE(std::count(kept.begin(), kept.end(), '\n'), 4);
  cuda::set_convolution_autotune(false);
  cuda::restore_convolution_choices(kept);
  EXPECT_EQ(cuda::convolution_choices(), kept);
}

/// The line of a forward pass of 1 x 1 x 2 -> 1 x 1 x 1 in fp32 without bias, as a run with --autotune writes it.
TEST_P(StandinCudnnConvolution, RestoredChoicesAreUsed) {
  const ConvolutionShape shape = convolution_shape(1, 1, 1, 1, {{2, 2}});
  const auto line = [](int choice) {
    const auto type = std::to_string(static_cast<int>(float32));
    return "9 0 132 0 " + type + ' ' + type + " -1 0 0 0 1 1 1 1 1 1 2 1 1 1 1 1 2 1 1 1 0 0 0 1 1 1 " +
           std::to_string(choice) + "\n";
  };
  for (const int choice : {4, -1, 3}) {
    cuda::restore_convolution_choices(header() + line(choice));
    Trial t(random, Pass::kForward, shape, float32);
    EXPECT_EQ(t.run().computed, choice >= 0);
    if (!t.computed) continue;
    EXPECT_EQ(standin::last_cudnn_engine(), choice);
    t.expect_right();
  }
  // Columns were chosen for the convolution with its bias: another graph without it is not tried.
  Trial t(random, Pass::kForward, shape, float32, true);
  const std::string no_bias = " -1 0 0 0 ", bias = " " + std::to_string(static_cast<int>(t.bias.dtype())) + " 0 0 0 ";
  std::string with_bias = line(-1);
  with_bias.replace(with_bias.find(no_bias), no_bias.size(), bias);
  cuda::restore_convolution_choices(header() + line(3) + with_bias);
  EXPECT_FALSE(t.run().computed);
  const std::string kept = cuda::convolution_choices();
  for (const std::string& text : {std::string("convolution choices, cuDNN 1.2.3\n"), header() + "1 2 3\n",
                                  header() + line(-2), header() + line(1000), header() + "9 " + line(3)})
    EXPECT_TRUE(has(error_of([&] { cuda::restore_convolution_choices(text); }), "the recorded choices of convolution"))
        << text;
  EXPECT_EQ(cuda::convolution_choices(), kept);
}

TEST_P(StandinCudnnConvolution, EveryCallMayFail) {
  int64_t channels = 1;
  for (const auto& [name, n] : std::vector<std::pair<const char*, int>>{{"cudnnBackendCreateDescriptor", 1},
                                                                        {"cudnnBackendCreateDescriptor", 7},
                                                                        {"cudnnBackendSetAttribute", 20},
                                                                        {"cudnnBackendSetAttribute", 35},
                                                                        {"cudnnBackendFinalize", 4},
                                                                        {"cudnnBackendFinalize", 6},
                                                                        {"cudnnBackendGetAttribute", 1},
                                                                        {"cudnnBackendGetAttribute", 3},
                                                                        {"cudnnSetStream", 1},
                                                                        {"cudnnBackendExecute", 1}})
    for (const Pass pass : kPasses) {
      SCOPED_TRACE(testing::Message() << name << " " << n);
      // A shape of which no plan is left from another case.
      Trial t(random, pass, convolution_shape(3, ++channels, 2, 1, {{11, 3, 2}, {4, 2}}), bfloat16);
      standin::fail_call(name, n, CUDNN_STATUS_INTERNAL_ERROR);
      expect_error([&] { t.run(); }, {std::string(name).substr(5), "CUDNN_STATUS_INTERNAL_ERROR: injected"});
      standin::clear_faults();
      EXPECT_EQ(t.run().executed, 1u);  // the next call works
      t.expect_right();
    }
}

TEST_P(StandinCudnnConvolution, DISABLED_ComputesWithoutTheLibrary) {
  Trial t(random, Pass::kForward, convolution_shape(2, 3, 5, 1, {{7, 3}, {6, 2}}), float32);
  std::printf("computed: %d\nreason: %s\n", t.run().computed, cuda::cudnn_info().reason.c_str());
}

TEST_P(StandinCudnnConvolution, WithoutTheLibraryColumnsAreUsed) {
  expect_contains(
      output_of("TERN_CUDNN=/nowhere/libcudnn.so.9", "StandinCudnnConvolution.DISABLED_ComputesWithoutTheLibrary/*"),
      {"[  PASSED  ] 1 test", "computed: 0", "reason: /nowhere/libcudnn.so.9: cannot open"});
}

}  // namespace
}  // namespace tern::kernels

#endif
