// Convolutions and their gradients against plain sums, on every target.

#include <fstream>
#include <optional>

#include "tern/kernels/cpu/convolution/methods.h"
#include "tern/tests/kernels/contracts/convolution.h"
#include "tern/tests/support/sanitizer.h"

namespace tern::kernels {
namespace {

class Convolution : public OnTarget {};
INSTANTIATE_TEST_SUITE_P(, Convolution, testing::ValuesIn(library_targets()), name_of_target);

/// Needs no library, so that the emulator runs it too.
class Depthwise : public OnTarget {};
INSTANTIATE_TEST_SUITE_P(, Depthwise, testing::ValuesIn(all_targets()), name_of_target);

class ConvolutionColumns : public OnTarget {};
INSTANTIATE_TEST_SUITE_P(, ConvolutionColumns, testing::ValuesIn(all_targets()), name_of_target);

using Pass = ConvolutionPass;
using Shapes = std::vector<ConvolutionShape>;
using Method = const ConvolutionMethod*;

constexpr DType kTypes[] = {float32, float64, float16, bfloat16};

int64_t products_of(const ConvolutionShape& s) { return s.batch * s.out_pixels() * s.out_channels * s.depth_of_sums(); }

/// Calls body(method) with null, for what the library chooses, and on the CPU with every other method that can compute
/// the case, although it does not pay.
template <class Body>
void for_each_method(const ConvolutionCase& c, const Body& body) {
  body(nullptr);
  bool chosen = false;
  for (const Method* each = convolution_methods(target().stream()); each && *each; ++each) {
    if (!(*each)->can(c)) continue;
    const bool is_chosen = !chosen && (*each)->pays(c);
    chosen = chosen || is_chosen;
    SCOPED_TRACE((*each)->name);
    if (!is_chosen) body(*each);
  }
}

/// body(shape, dtype, order of the arrays): all cases in fp32 and some in the other types, or all in `only`; on the
/// emulated device some of the larger ones alone.
template <class Body>
void for_each_case(std::mt19937_64& random, const Shapes& shapes, const Body& body, std::optional<DType> only = {}) {
  for (const ConvolutionShape& shape : shapes) {
    if (!target().is_cpu() && shape.out_pixels() > 1000) continue;  // cut in pieces on the CPU alone
    for (const DType dtype : kTypes) {
      if (only ? dtype != only : dtype != float32 && random() % 3 != 0) continue;
      const int64_t products = products_of(shape);
      if (!target().is_cpu() && (products / 20 > target().max_elements() || (products > 100'000 && random() % 3 != 0)))
        continue;
      SCOPED_TRACE(testing::Message() << name_of(dtype) << ", " << describe(shape));
      body(shape, dtype, random() % 2 ? Order::kContiguous : Order::kMisaligned);
    }
  }
}

double activated(ImageActivation activation, double z) {
  switch (activation) {
    case ImageActivation::kRelu:
      return std::max(z, 0.0);
    case ImageActivation::kRelu6:
      return std::clamp(z, 0.0, 6.0);
    case ImageActivation::kSilu:
      return z / (1 + std::exp(-z));
    case ImageActivation::kHardSwish:
      return z * std::clamp(z + 3, 0.0, 6.0) / 6;
    case ImageActivation::kGelu:
      return z * (1 + std::erf(z / std::sqrt(2.0))) / 2;
    case ImageActivation::kNone:
      break;
  }
  return z;
}

/// y = the convolution and its epilogue; with a packed weight the plain one is not given.
void run_forward(Call& on, Method method, const ConvolutionShape& s, const Array& x, const Array& weight,
                 ConvolutionEpilogue epilogue, bool packed, Array& y) {
  if (method) {
    const ConvolutionPlan plan = method->make({Pass::kForward, x.dtype(), s, packed});
    packed = packed && plan.pack;
    if (packed) {
      epilogue.packed_weight = on.workspace(ConvolutionPlan::room_for(plan.packed_bytes));
      plan.pack(on(weight), ConvolutionPlan::aligned(epilogue.packed_weight));
    }
    void* const workspace = on.workspace(plan.workspace_bytes(packed));
    return plan(on(x), packed ? ConstView() : on(weight), epilogue, on(y), workspace);
  }
  const Stream stream = on.stream();
  const int64_t bytes = packed ? convolution_packed_bytes(stream, s, x.dtype()) : 0;
  if (bytes > 0) {
    epilogue.packed_weight = on.workspace(bytes);
    convolution_pack(stream, s, on(weight), const_cast<void*>(epilogue.packed_weight));
  }
  void* const workspace = on.workspace(convolution_workspace(stream, s, x.dtype(), bytes > 0));
  convolution_forward(stream, s, on(x), bytes > 0 ? ConstView() : on(weight), epilogue, on(y), workspace);
}

/// The input's gradient from dy and the weight, or the weight's from dy and x.
void run_gradient(Call& on, Method method, Pass pass, const ConvolutionShape& s, const Array& dy, const Array& other,
                  Array& result) {
  const Stream stream = on.stream();
  const DType dtype = dy.dtype();
  if (method) {
    const ConvolutionPlan plan = method->make({pass, dtype, s});
    plan(on(dy), on(other), {}, on(result), on.workspace(plan.workspace_bytes(false)));
  } else if (pass == Pass::kBackwardInput) {
    void* const workspace = on.workspace(convolution_backward_input_workspace(stream, s, dtype));
    convolution_backward_input(stream, s, on(dy), on(other), on(result), workspace);
  } else {
    void* const workspace = on.workspace(convolution_backward_weight_workspace(stream, s, dtype));
    convolution_backward_weight(stream, s, on(dy), on(other), on(result), workspace);
  }
}

/// Winograd's algorithm multiplies sums of inputs and of weights with factors up to 8, whose roundings are that much
/// larger (Lavin & Gray, arXiv:1509.09308, section 7).
constexpr double kWinogradError = 4;
bool is_winograd(Method method) { return method && std::string_view(method->name) == "winograd"; }
double error_of(Method method) { return is_winograd(method) ? kWinogradError : 1; }

void check_forward(std::mt19937_64& random, const Shapes& shapes) {
  for_each_case(random, shapes, [&](const ConvolutionShape& s, DType dtype, Order order) {
    const Array x = random_array(random, dtype, input_shape(s), -1, 1, order);
    const Array weight = random_array(random, dtype, weight_shape(s), -1, 1, order);
    const DType bias_type = random() % 2 && is_low_precision(dtype) ? float32 : dtype;
    const Array bias = random_array(random, bias_type, {s.out_channels}, -1, 1, order);
    const Array residual = random_array(random, dtype, output_shape(s), -1, 1, order);
    const bool with_bias = random() % 2, with_residual = random() % 2, packed = random() % 2;
    const auto activation = static_cast<ImageActivation>(random() % 6);
    SCOPED_TRACE(testing::Message() << "activation " << static_cast<int>(activation) << ", bias " << with_bias
                                    << ", residual " << with_residual << ", packed " << packed);
    ExactSums sums(residual.numel());
    const std::vector<double> a = x.values(), b = weight.values();
    for_each_product(s, [&](int64_t i, int64_t w, int64_t o) { sums.add(o, a[i] * b[w]); });
    // A product that is rounded to 16 bits before the bias is added, and once more before the residual.
    ExactSums rounded = sums;
    const double unit = is_low_precision(dtype) ? epsilon_of(dtype) / 4e-7 : 0;
    for (int64_t o = 0; o < residual.numel(); ++o) {
      double& size = rounded.size[static_cast<size_t>(o)];
      const double& value = rounded.value[static_cast<size_t>(o)];
      size += std::abs(value) * unit;
      if (with_bias) rounded.add(o, bias.at(o % s.out_channels));
      size += std::abs(value) * unit;
      if (with_residual) rounded.add(o, residual.at(o));
    }
    // The slope of an activation is at most 1.2, by which it enlarges the error of its input; computing it adds an
    // error.
    for (size_t o = 0; activation != ImageActivation::kNone && o < sums.value.size(); ++o) {
      rounded.value[o] = activated(activation, rounded.value[o]);
      rounded.size[o] = 1.2 * rounded.size[o] + 1;
    }
    for_each_method({Pass::kForward, dtype, s, packed}, [&](Method method) {
      Array y(dtype, output_shape(s), order);
      expect_same_in_every_run({&y}, [&](Call& on) {
        const ConvolutionEpilogue epilogue{
            .bias = on.when(with_bias, bias), .residual = on.when(with_residual, residual), .activation = activation};
        run_forward(on, method, s, x, weight, epilogue, packed, y);
      });
      rounded.expect_near(y, dtype, error_of(method));
    });
  });
}
TEST_P(Convolution, Forward) { check_forward(random, convolution_cases()); }
TEST_P(Depthwise, Forward) { check_forward(random, depthwise_cases()); }

ConvolutionShape pointwise(int64_t in, int64_t out, int64_t height, int64_t width) {
  return convolution_shape(2, in, out, 1, {{height, 1, 1, 0}, {width, 1, 1, 0}});
}

ConvolutionShape depthwise(int64_t batch, int64_t channels, int64_t height, int64_t width, int64_t stride,
                           int64_t padding) {
  return convolution_shape(batch, channels, channels, channels,
                           {{height, 3, stride, padding}, {width, 3, stride, padding}});
}

/// Images that the CPU computes in the order of memory: a depthwise one of 640 KB, and few channels to many.
Shapes large_cases() {
  return {depthwise(2, 9, 131, 118, 2, 1), depthwise(2, 32, 75, 68, 2, 2), depthwise(2, 75, 47, 46, 2, 1),
          depthwise(2, 33, 71, 70, 2, 0),  pointwise(13, 37, 29, 23),      pointwise(1, 8, 31, 17),
          pointwise(32, 72, 23, 23),       pointwise(7, 130, 41, 51),      pointwise(9, 40, 29, 19)};
}
TEST_P(Convolution, LargeImages) {
  if (target().is_cpu()) check_forward(random, large_cases());
}

/// Shapes of which a block of pixels, a panel of channels or a part of the depth is left over, and others drawn by
/// chance; kernels shorter than their stride, and padded further than they reach.
Shapes uneven_cases(std::mt19937_64& random) {
  Shapes shapes = {
      convolution_shape(2, 16, 9, 1, {{13, 3, 1, 1}, {11, 3, 1, 1}}),   // runs that share a part of the depth
      convolution_shape(1, 70, 23, 1, {{6, 4, 2, 1}, {9, 5, 3, 2}}),    // runs longer than a part
      convolution_shape(3, 18, 41, 1, {{10, 2, 3, 0}, {9, 2, 4, 0}}),   // inputs that no output reads
      convolution_shape(2, 20, 16, 1, {{4, 3, 1, 4}, {5, 2, 2, 3}}),    // outputs that read no input
      convolution_shape(2, 264, 24, 1, {{9, 1, 2, 0}, {8, 1, 3, 0}}),   // 1 x 1 with strides
      convolution_shape(1, 3, 20, 1, {{15, 11, 4, 2}, {17, 9, 2, 4}}),  // long kernels of few channels
      convolution_shape(2, 17, 390, 1, {{6, 2, 1, 1}, {5, 3, 2, 1}}),   // more channels than a task has strips for
      convolution_shape(1, 528, 35, 1, {{5, 1, 1, 0}, {7, 1, 1, 0}}),   // products of matrices
      convolution_shape(3, 130, 131, 1, {{9, 1, 1, 0}, {10, 1, 1, 0}}),
      convolution_shape(1, 35, 3, 1, {{17, 3, 1, 1}, {18, 3, 1, 1}}),  // fewer channels than a vector
      convolution_shape(2, 40, 23, 1, {{300, 5, 2, 2}}),               // one dimension
      convolution_shape(2, 3, 64, 1, {{35, 3, 1, 1}, {37, 3, 1, 1}}),  // few channels, several parts of the pixels
      convolution_shape(1, 4, 70, 1, {{67, 5, 2, 2}, {75, 3, 2, 0}}),
      convolution_shape(2, 8, 16, 1, {{5, 3, 1, 1}, {7, 3, 1, 1}}),  // Winograd's algorithm, tiles beyond the image
      convolution_shape(1, 24, 8, 1, {{1, 3, 1, 1}, {9, 3, 1, 1}}),
      convolution_shape(3, 40, 24, 1, {{13, 3, 1, 1}, {6, 3, 1, 1}}),
  };
  const auto between = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  for (int i = 0; i < 8; ++i) {
    const auto axis = [&] {
      const int64_t kernel = between(1, 5);
      return ConvolutionAxis{between(kernel, 10), kernel, between(1, 3), between(0, kernel)};
    };
    shapes.push_back(convolution_shape(between(1, 3), between(14, 40), between(6, 36), 1, {axis(), axis()}));
    shapes.push_back(convolution_shape(between(1, 3), between(1, 5), between(16, 70), 1, {axis(), axis()}));
  }
  return shapes;
}
TEST_P(Convolution, UnevenShapes) {
  if (target().is_cpu()) check_forward(random, uneven_cases(random));
}

/// Lines and images that oneDNN computes in strips of fixed lengths: several strips of an image, several images in a
/// strip, zeros between them, and strips that images do not fill.
Shapes strip_cases(std::mt19937_64& random) {
  Shapes shapes = {
      convolution_shape(1, 1, 16, 1, {{2803, 10, 5}}),                   // as speech models begin
      convolution_shape(3, 1, 9, 1, {{1301, 7, 2, 3}}),                  // one channel, ends of images within strips
      convolution_shape(5, 3, 4, 1, {{37, 5, 1, 2}}),                    // several images in a strip
      convolution_shape(4, 2, 6, 1, {{83, 3, 3, 4, 5}}),                 // dilation, padding without pixels
      convolution_shape(3, 2, 5, 1, {{71, 2, 4, 0}}),                    // a kernel shorter than the stride
      convolution_shape(3, 2, 5, 1, {{70, 1, 3, 2, 1, 0}}),              // the same, padded before the image alone
      convolution_shape(2, 4, 6, 2, {{301, 4, 1, 1, 1, 6}}),             // groups, more zeros behind than before
      convolution_shape(2, 16, 16, 16, {{277, 9, 1, 4}}),                // depthwise
      convolution_shape(7, 8, 5, 1, {{61, 1}}),                          // a product of matrices
      convolution_shape(2, 200, 190, 1, {{41, 1, 2, 1}}),                // a large weight
      convolution_shape(2, 2, 24, 1, {{130, 3, 2, 1}, {260, 3, 2, 1}}),  // images in strips of rows
      convolution_shape(1, 1, 40, 1, {{90, 3, 1, 2, 2}, {401, 2, 1, 0}}),
      convolution_shape(3, 3, 8, 1, {{257, 2, 3, 2}, {300, 1, 2, 0}}),
  };
  for (int i = 0; i < 6; ++i) {
    const auto between = [&](int64_t low, int64_t high) {
      return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
    };
    const int64_t kernel = between(1, 9), dilation = between(1, 3), reach = (kernel - 1) * dilation;
    shapes.push_back(convolution_shape(
        between(1, 5), between(1, 5), between(1, 40), 1,
        {{reach + between(20, 700), kernel, between(1, 5), between(0, reach + 1), dilation, between(0, reach + 1)}}));
  }
  return shapes;
}
TEST_P(Convolution, Strips) {
  if (target().is_cpu()) check_forward(random, strip_cases(random));
}

/// Code for a length is neither made nor kept: memory does not grow with the number of different lengths.
TEST_P(Convolution, MemoryOfManyLengths) {
  if (!target().is_cpu()) return;
  if (test::kSanitized) GTEST_SKIP() << "sanitizer: it keeps freed memory";
  const auto resident_bytes = [] {
    int64_t all = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> all >> resident;
    return resident * 4096;
  };
  const Array x = random_array(random, float32, {1, 1, 1, 16000, 1}, -1, 1);
  const Array weight = random_array(random, float32, {64, 1, 1, 1, 10}, -1, 1);
  Array y(float32, {1, 1, 1, 3199, 64}), dweight(float32, {64, 1, 1, 1, 10});
  const auto run = [&](int64_t length) {
    const ConvolutionShape s = convolution_shape(1, 1, 64, 1, {{length, 10, 5}});
    run_kernel([&](Call& on) {
      ConstView in = on(x);
      View out = on(y);
      in.shape[3] = length;
      out.shape[3] = s.out[2];
      convolution_forward(on.stream(), s, in, on(weight), {}, out,
                          on.workspace(convolution_workspace(on.stream(), s, float32, false)));
      convolution_backward_weight(on.stream(), s, out, in, on(dweight),
                                  on.workspace(convolution_backward_weight_workspace(on.stream(), s, float32)));
    });
  };
  run(16000);
  const int64_t before = resident_bytes();
  for (int64_t length = 15500; length < 16000; length += 11) run(length);
  EXPECT_LT(resident_bytes() - before, 32 << 20);
}

/// NaN goes through every activation, and infinity through those that keep it.
TEST_P(Convolution, NaNIsNotHidden) {
  const ConvolutionShape s = convolution_shape(1, 16, 32, 1, {{5, 3, 1, 1}, {6, 3, 1, 1}});
  for (const DType dtype : kTypes)
    for (int i = 0; i < 6; ++i)
      for (const bool packed : {false, true}) {
        Array x = random_array(random, dtype, input_shape(s), 0, 1);
        const Array weight = random_array(random, dtype, weight_shape(s), 0, 1);
        x.set(0, random() % 2 ? NAN : -NAN);
        x.set(x.numel() - 1, INFINITY);
        Array y(dtype, output_shape(s));
        const auto activation = static_cast<ImageActivation>(i);
        run_kernel([&](Call& on) { run_forward(on, nullptr, s, x, weight, {.activation = activation}, packed, y); });
        EXPECT_TRUE(std::isnan(y.at(0))) << name_of(dtype) << " " << i << " " << packed;
        EXPECT_EQ(y.at(y.numel() - 1), activation == ImageActivation::kRelu6 ? 6 : INFINITY);
      }
}

void check_gradient_of_the_input(std::mt19937_64& random, const Shapes& shapes, std::optional<DType> only = {}) {
  const auto check = [&](const ConvolutionShape& s, DType dtype, Order order) {
    const Array dy = random_array(random, dtype, output_shape(s), -1, 1, order);
    const Array weight = random_array(random, dtype, weight_shape(s), -1, 1, order);
    ExactSums sums(s.batch * s.in_pixels() * s.in_channels);
    const std::vector<double> a = dy.values(), b = weight.values();
    for_each_product(s, [&](int64_t i, int64_t w, int64_t o) { sums.add(i, a[o] * b[w]); });
    // Columns of 16 bits are rounded before they are added.
    for (double& size : sums.size) size *= is_low_precision(dtype) ? 1 + epsilon_of(dtype) / 4e-7 : 1;
    for_each_method({Pass::kBackwardInput, dtype, s}, [&](Method method) {
      Array dx(dtype, input_shape(s), order);
      expect_same_in_every_run({&dx},
                               [&](Call& on) { run_gradient(on, method, Pass::kBackwardInput, s, dy, weight, dx); });
      sums.expect_near(dx, dtype, error_of(method));
    });
  };
  for_each_case(random, shapes, check, only);
}
TEST_P(Convolution, GradientOfTheInput) { check_gradient_of_the_input(random, convolution_cases()); }
TEST_P(Depthwise, GradientOfTheInput) { check_gradient_of_the_input(random, depthwise_cases()); }

TEST_P(Convolution, GradientOfTheInputOfUnevenShapes) {
  if (target().is_cpu()) check_gradient_of_the_input(random, uneven_cases(random));
}

/// What oneDNN 2.6.3 has wrong.
TEST_P(Convolution, GradientOfTheInputOfOddChannels) {
  const Shapes shapes = {convolution_shape(1, 64, 129, 1, {{8, 1, 2, 0}, {60, 1, 2, 0}})};
  if (target().is_cpu()) check_gradient_of_the_input(random, shapes, bfloat16);
}

TEST_P(Convolution, GradientOfTheInputOfStrips) {
  if (target().is_cpu()) check_gradient_of_the_input(random, strip_cases(random));
}

void check_gradient_of_the_weight(std::mt19937_64& random, const Shapes& shapes) {
  for_each_case(random, shapes, [&](const ConvolutionShape& s, DType dtype, Order order) {
    const Array x = random_array(random, dtype, input_shape(s), -1, 1, order);
    const Array dy = random_array(random, dtype, output_shape(s), -1, 1, order);
    const DType result = is_low_precision(dtype) && random() % 2 ? float32 : dtype;
    ExactSums sums(s.out_channels * s.depth_of_sums());
    const std::vector<double> a = dy.values(), b = x.values();
    for_each_product(s, [&](int64_t i, int64_t w, int64_t o) { sums.add(w, a[o] * b[i]); });
    // cuDNN 9.14 has plans for some shapes only with a result of 16 bits, of sums in fp32; it is then copied to fp32.
    const double of_result = target().name() == "gpu" && is_low_precision(dtype) ? epsilon_of(dtype) : 0;
    for (size_t w = 0; w < sums.size.size(); ++w) sums.size[w] += of_result * std::abs(sums.value[w]) / (8 * 6e-8);
    for_each_method({Pass::kBackwardWeight, dtype, s}, [&](Method method) {
      Array dweight(result, weight_shape(s), order);
      expect_same_in_every_run({&dweight},
                               [&](Call& on) { run_gradient(on, method, Pass::kBackwardWeight, s, dy, x, dweight); });
      sums.expect_near(dweight, dtype, error_of(method));
    });
  });
}
TEST_P(Convolution, GradientOfTheWeight) { check_gradient_of_the_weight(random, convolution_cases()); }
TEST_P(Depthwise, GradientOfTheWeight) { check_gradient_of_the_weight(random, depthwise_cases()); }

/// Several parts of the images' rows, which are added up; rows of which pixels are left over.
Shapes depthwise_parts() {
  return {depthwise(3, 24, 61, 58, 1, 1), depthwise(2, 40, 71, 67, 2, 1), depthwise(5, 8, 5, 3, 1, 0),
          depthwise(2, 16, 3, 9, 2, 4),   depthwise(1, 72, 9, 11, 1, 2),  depthwise(40, 64, 4, 4, 1, 1)};
}
TEST_P(Depthwise, GradientOfTheWeightOfLargeImages) {
  if (target().is_cpu()) check_gradient_of_the_weight(random, depthwise_parts());
}

/// 1 x 1: each number of vectors that channels are summed in, channels and pixels left over, and several parts of the
/// pixels (the last two).
Shapes pointwise_cases() {
  return {pointwise(8, 13, 23, 29),  pointwise(16, 72, 17, 41), pointwise(24, 31, 19, 23),  pointwise(32, 7, 13, 31),
          pointwise(40, 45, 11, 13), pointwise(56, 50, 9, 25),  pointwise(9, 33, 15, 17),   pointwise(120, 1, 7, 9),
          pointwise(8, 2040, 3, 5),  pointwise(64, 64, 23, 23), pointwise(40, 129, 21, 21), pointwise(136, 125, 5, 7)};
}
TEST_P(Convolution, GradientsOfOnePixel) {
  if (!target().is_cpu()) return;
  check_gradient_of_the_input(random, pointwise_cases());
  check_gradient_of_the_weight(random, pointwise_cases());
}

TEST_P(Convolution, GradientOfTheWeightOfUnevenShapes) {
  if (target().is_cpu()) check_gradient_of_the_weight(random, uneven_cases(random));
}

TEST_P(Convolution, GradientOfTheWeightOfStrips) {
  if (target().is_cpu()) check_gradient_of_the_weight(random, strip_cases(random));
}

/// The copies themselves: each element of the columns is one of the image or 0, and back each is counted as often as
/// an output reads it.
TEST_P(ConvolutionColumns, AreCopied) {
  for_each_case(random, convolution_cases(), [&](const ConvolutionShape& s, DType dtype, Order order) {
    const Array x = random_array(random, dtype, input_shape(s), 1, 2, order);
    Array columns(dtype, {s.batch, s.out_pixels(), s.groups, s.kernel_size(), s.group_in()}, order);
    Array back(dtype, input_shape(s), order);
    expect_same_in_every_run({&columns, &back}, [&](Call& on) {
      images_to_columns(on.stream(), s, on(x), on(columns));
      columns_to_images(on.stream(), s, on(columns), on(back));
    });
    std::vector<double> expected(static_cast<size_t>(columns.numel()), 0);
    ExactSums sums(back.numel());
    for_each_product(s, [&](int64_t i, int64_t w, int64_t o) {
      if (o % s.out_channels % s.group_out() != 0) return;  // once for each group
      const int64_t c = w / s.kernel_size() % s.group_in(), k = w % s.kernel_size();
      const int64_t g = o % s.out_channels / s.group_out(), pixel = o / s.out_channels;
      expected[static_cast<size_t>(((pixel * s.groups + g) * s.kernel_size() + k) * s.group_in() + c)] = x.at(i);
      sums.add(i, x.at(i));
    });
    EXPECT_EQ(columns.values(), expected);
    sums.expect_near(back, dtype);
  });
}

/// Many channels of 3 x 3, which the CPU may compute by Winograd's algorithm: some elements of the results.
void check_many_channels(std::mt19937_64& random, Method method) {
  for (const auto& [batch, in, out, height, width] : std::vector<std::array<int64_t, 5>>{
           {9, 96, 80, 16, 19}, {17, 64, 128, 12, 12}, {20, 24, 40, 5, 7}, {7, 72, 56, 17, 18}}) {
    const bool packed = random() % 2, ends = random() % 2;
    const ConvolutionShape s = convolution_shape(batch, in, out, 1, {{height, 3, 1, 1}, {width, 3, 1, 1}});
    SCOPED_TRACE(describe(s));
    const Array x = random_array(random, float32, input_shape(s), -1, 1);
    const Array weight = random_array(random, float32, weight_shape(s), -1, 1);
    const Array bias = random_array(random, float32, {out}, -1, 1);
    const Array dy = random_array(random, float32, output_shape(s), -1, 1);
    const Array residual = random_array(random, float32, output_shape(s), -1, 1);
    Array y(float32, output_shape(s)), dx(float32, input_shape(s)), dweight(float32, weight_shape(s));
    expect_same_in_every_run({&y, &dx, &dweight}, [&](Call& on) {
      ConvolutionEpilogue epilogue{.bias = on(bias), .residual = on.when(ends, residual)};
      if (ends) epilogue.activation = ImageActivation::kRelu;
      run_forward(on, method, s, x, weight, epilogue, packed, y);
      run_gradient(on, method, Pass::kBackwardInput, s, dy, weight, dx);
      run_gradient(on, method, Pass::kBackwardWeight, s, dy, x, dweight);
    });
    const int64_t pixels = s.in_pixels();
    // The pixel of position k of a kernel around `pixel`, or -1 outside of the image; sign: -1 for the transposed one.
    const auto neighbour = [&](int64_t pixel, int64_t k, int64_t sign) -> int64_t {
      const int64_t row = pixel / width + sign * (k / 3 - 1), column = pixel % width + sign * (k % 3 - 1);
      return row < 0 || row >= height || column < 0 || column >= width ? -1 : row * width + column;
    };
    const auto expect = [](double got, double want, double size) {
      ASSERT_NEAR(got, want, kWinogradError * 8 * 6e-8 * size + 1e-6);
    };
    for (int sample = 0; sample < 400; ++sample) {
      // The last element too.
      const auto choose = [&](int64_t count) {
        return sample == 0 ? count - 1 : static_cast<int64_t>(random() % static_cast<uint64_t>(count));
      };
      const int64_t n = choose(batch), pixel = choose(pixels), o = choose(out), i = choose(in), k = choose(9);
      const double added = ends ? residual.at((n * pixels + pixel) * out + o) : 0;
      double sum = bias.at(o) + added, size = std::abs(sum), dsum = 0, dsize = 0;
      for (int64_t q = 0; q < 9; ++q) {
        if (const int64_t at = neighbour(pixel, q, 1); at >= 0)
          for (int64_t c = 0; c < in; ++c) {
            const double term = x.at((n * pixels + at) * in + c) * weight.at((o * in + c) * 9 + q);
            sum += term;
            size += std::abs(term);
          }
        if (const int64_t at = neighbour(pixel, q, -1); at >= 0)
          for (int64_t c = 0; c < out; ++c) {
            const double term = dy.at((n * pixels + at) * out + c) * weight.at((c * in + i) * 9 + q);
            dsum += term;
            dsize += std::abs(term);
          }
      }
      expect(y.at((n * pixels + pixel) * out + o), ends ? std::max(sum, 0.0) : sum, size);
      expect(dx.at((n * pixels + pixel) * in + i), dsum, dsize);
      double slope = 0, slope_size = 0;
      for (int64_t m = 0; m < batch * pixels && sample % 10 == 0; ++m)
        if (const int64_t at = neighbour(m % pixels, k, 1); at >= 0) {
          const double term = dy.at(m * out + o) * x.at((m / pixels * pixels + at) * in + i);
          slope += term;
          slope_size += std::abs(term);
        }
      if (sample % 10 == 0) expect(dweight.at((o * in + i) * 9 + k), slope, slope_size);
    }
  }
}
TEST_P(Convolution, EveryMethodHasCases) {
  Shapes shapes = convolution_cases();
  for (const Shapes& more : {depthwise_cases(), large_cases(), uneven_cases(random), pointwise_cases()})
    shapes.insert(shapes.end(), more.begin(), more.end());
  for (const Method* each = convolution_methods(target().stream()); each && *each; ++each) {
    const auto computes = [&](const ConvolutionShape& s) {
      return (*each)->can({Pass::kForward, float32, s}) || (*each)->can({Pass::kBackwardWeight, float32, s});
    };
    EXPECT_GE(std::count_if(shapes.begin(), shapes.end(), computes), 3) << (*each)->name;
  }
}

TEST_P(Convolution, ManyChannels) {
  if (!target().is_cpu()) return;
  check_many_channels(random, nullptr);
  for (const Method* each = convolution_methods(target().stream()); *each; ++each)
    if (is_winograd(*each)) check_many_channels(random, *each);
}

}  // namespace
}  // namespace tern::kernels
