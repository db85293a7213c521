// The node tests of ONNX by import of their files: results, gradients, and that what is not supported is refused by
// name.

#include "tern/core/autograd/engine.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/models/onnx/state.h"
#include "tern/tests/core/fresh.h"
#include "tern/tests/models/onnx_cases.h"

namespace tern::test {
namespace {

TEST(OnnxNodes, GiveTheOutputsOrAreRefused) {
  const TemporaryFolder folder;
  int right = 0, refused = 0, unread = 0, left = 0;
  for (const OnnxCase& c : load_onnx_cases()) {
    SCOPED_TRACE(testing::Message() << c.name << ", " << c.op);
    if (!c.model.defined()) {
      EXPECT_EQ(c.missing, "size");
      ++unread;
      continue;
    }
    if (kOnnxLeftOut.contains(c.name)) {
      ++left;
      continue;
    }
    const auto exception = kOnnxRefusedCases.find(c.name);
    const std::string op = exception != kOnnxRefusedCases.end() ? exception->second : c.op;
    if (exception == kOnnxRefusedCases.end() && !kOnnxRefused.contains(op)) {
      try {
        EXPECT_EQ(difference_of(c, *model_of(c, folder)), "");
        ++right;
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
      continue;
    }
    ++refused;
    try {
      const auto model = model_of(c, folder);
      if (c.missing.empty()) model->forward_lists(c.inputs);
      ADD_FAILURE() << "it is not refused";
    } catch (const Error& error) {
      const std::string message = error.what(), expected = op.empty() ? "input 'x' of type string" : "(" + op + " of ";
      EXPECT_NE(message.find(expected), std::string::npos) << message;
    }
  }
  EXPECT_EQ(right + refused + unread + left, 1404);
  EXPECT_GE(right, 1327);  // 15 more are right that are too large for the repository
}

/// Ops whose results jump, or which draw, quantise or suppress.
const std::set<std::string> kNotSmooth = {"Round",
                                          "Floor",
                                          "Ceil",
                                          "Sign",
                                          "Mod",
                                          "Hardmax",
                                          "QuantizeLinear",
                                          "DynamicQuantizeLinear",
                                          "Cast",
                                          "CastLike",
                                          "BitCast",
                                          "Unique",
                                          "Bernoulli",
                                          "DequantizeLinear",
                                          "QLinearMatMul",
                                          "QLinearConv",
                                          "Range",
                                          "MelWeightMatrix",
                                          "Dropout",
                                          "NonMaxSuppression",
                                          "Adagrad",
                                          "Adam",
                                          "Momentum",
                                          "EyeLike",
                                          "OptionalHasElement",
                                          "ImageDecoder"};

/// Inputs that say how to compute, and those that have no gradient in PyTorch either: running statistics, and weights
/// of classes.
bool has_no_gradient(const std::string& op, size_t input) {
  return ((op == "Resize" || op == "Upsample") && input > 0) || (op == "Pad" && input == 2) ||
         (op == "RoiAlign" && input > 0) || (op == "OneHot" && input < 2) ||
         (op == "BatchNormalization" && input > 2) || (op == "NegativeLogLikelihoodLoss" && input == 2) ||
         (op == "SoftmaxCrossEntropyLoss" && input == 2);
}

/// The sum of the floating outputs of a model, times random numbers. x: fp64 in place of its floating inputs.
Tensor projected(const onnx::Program& program, const OnnxCase& c, const std::vector<Tensor>& x, Generator weights) {
  std::vector<onnx::Value> inputs;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const Tensor& given = c.inputs[i][0];
    if (!given.defined())
      inputs.emplace_back();
    else
      inputs.push_back({x[i].defined() ? x[i] : given, onnx::element_of(x[i].defined() ? float64 : given.dtype())});
  }
  Tensor sum = zeros({}, {.dtype = float64});
  const onnx::Context context{.generator = &weights};
  for (const onnx::Value& output : program.run(context, inputs))
    if (output.tensor.defined() && is_floating(output.tensor.dtype()) && output.tensor.numel() > 0)
      sum = sum + tern::sum(output.tensor.to(float64) * rand(output.tensor.shape(), weights, {.dtype = float64}));
  return sum;
}

/// What is wrong with a model's gradient along a random direction; "none" if nothing, "" if it has none to check.
std::string gradient_problem(const OnnxCase& c, const std::string& path, Generator& generator) {
  std::vector<std::string> unsupported;
  const auto state = onnx::read_state(path, {}, unsupported);
  std::vector<Tensor> x(c.inputs.size()), direction(c.inputs.size());
  bool any = false;
  for (size_t i = 0; i < x.size(); ++i) {
    if (c.inputs[i].size() != 1 || state->inputs[i].is_sequence) return "";
    const Tensor& given = c.inputs[i][0];
    if (!given.defined() || !is_floating(given.dtype()) || given.numel() == 0) continue;
    x[i] = given.to(float64);
    if (has_no_gradient(c.op, i)) continue;
    any = true;
    direction[i] = randn(given.shape(), generator, {.dtype = float64});
    // Away from corners, where numbers of tests like to lie.
    x[i] = (x[i] * (1.0 + 0.003 * rand(given.shape(), generator, {.dtype = float64})) +
            0.002 * rand(given.shape(), generator, {.dtype = float64}))
               .set_requires_grad(true);
  }
  if (!any) return "";
  const Generator weights(generator.next().seed + generator.offset());
  const auto at = [&](double step) {
    NoGrad off;
    std::vector<Tensor> moved = x;
    for (size_t i = 0; i < x.size(); ++i)
      if (direction[i].defined()) moved[i] = x[i].detach() + direction[i] * step;
    return projected(*state->program, c, moved, Generator(weights.seed())).item<double>();
  };
  const Tensor loss = projected(*state->program, c, x, Generator(weights.seed()));
  double slope = 0;
  if (loss.requires_grad()) {
    loss.backward();
    for (size_t i = 0; i < x.size(); ++i)
      if (direction[i].defined() && x[i].grad().defined()) slope += sum(x[i].grad() * direction[i]).item<double>();
  }
  const double step = 1e-6, numeric = (at(step) - at(-step)) / (2 * step);
  if (!std::isfinite(numeric)) return "";
  const double size = std::abs(loss.item<double>()) + std::abs(numeric) + 1;
  if (std::abs(slope - numeric) <= 1e-5 * size) return "none";
  return "the gradient along a direction is " + std::to_string(slope) + ", by differences " + std::to_string(numeric);
}

TEST(OnnxNodes, HaveTheGradientsOfFiniteDifferences) {
  const TemporaryFolder folder;
  Generator generator = fresh_generator();
  int checked = 0;
  for (const OnnxCase& c : load_onnx_cases()) {
    if (!c.missing.empty() || kOnnxLeftOut.contains(c.name) || kOnnxRefused.contains(c.op) ||
        kOnnxRefusedCases.contains(c.name) || kNotSmooth.contains(c.op))
      continue;
    SCOPED_TRACE(testing::Message() << c.name << ", " << c.op);
    try {
      // Anew at another place: at the first a corner may lie between the two differences.
      std::string problem;
      for (int attempt = 0; attempt < 3 && (attempt == 0 || (problem != "none" && !problem.empty())); ++attempt)
        problem = gradient_problem(c, file_of(c, folder), generator);
      if (problem == "none")
        ++checked;
      else
        EXPECT_EQ(problem, "");
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
  EXPECT_GE(checked, 400);
}

}  // namespace
}  // namespace tern::test
