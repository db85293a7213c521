// Steps of a convolution or of linear layers and of what follows them, replaced by one (ops/layers.h).
//
// A layer is found from its product forward; only weights that are initializers or constants are taken. The new step
// stands where the last one of the group did, so that what it reads is there, and is named as the product.

#include "tern/models/onnx/fusion.h"
#include "tern/models/onnx/ops/layers.h"
#include "tern/models/onnx/state.h"

namespace tern::onnx {
namespace {

class LayerFusion : StepGroups {
 public:
  using StepGroups::StepGroups;

  void run() {
    for (size_t i = 0; i < steps(); ++i)
      if (!is_replaced(i) && !convolution(i)) linear_layers(i);
    finish();
  }

 private:
  /// What has been taken so far.
  struct Group {
    std::vector<size_t> steps;
    int result;  // the place of its result

    void take(const Step& step, size_t i) {
      steps.push_back(i);
      result = step.outputs[0];
    }
  };

  /// The last step of the group becomes the row's, under the name of the first.
  Step& replace(const Group& group, const OpRow& row, std::vector<int> inputs,
                std::map<std::string, Attribute> attributes) {
    const size_t first = group.steps.front(), last = group.steps.back();
    const std::shared_ptr<const NodeDef> product = at(first).node;
    const int64_t opset = at(first).opset;
    StepGroups::replace(last, group.steps, row, std::move(inputs), std::move(attributes));
    Step& step = at(last);
    auto node = std::make_shared<NodeDef>(*step.node);
    node->name = product->name;
    node->op = product->op;
    step.node = std::move(node);
    step.opset = opset;
    step.memory = std::make_shared<StepMemory>();
    return step;
  }

  // ---- convolutions ----

  bool convolution(size_t first) {
    if (!is(at(first), "Conv") || at(first).inputs.size() < 2 || !is_source(at(first).inputs[1])) return false;
    Group group{{first}, at(first).outputs[0]};
    std::vector<int> inputs = at(first).inputs;
    inputs.resize(3, -1);
    int residual = -1;
    if (const auto sum = only_reader(group.result); sum && is(at(*sum), "Add")) {
      const auto other = other_than(at(*sum), group.result);
      if (other && !is_source(*other)) {
        residual = *other;
        group.take(at(*sum), *sum);
      }
    }
    inputs.push_back(residual);
    const ImageActivation activation = take_activation(group);
    std::map<std::string, Attribute> attributes = at(first).node->attributes;
    attributes["activation"] = whole(static_cast<int64_t>(activation));
    replace(group, kConvolutionLayer, std::move(inputs), std::move(attributes));
    return true;
  }

  ImageActivation take_activation(Group& group) {
    if (const auto next = only_reader(group.result)) {
      const ImageActivation found = activation_of(at(*next));
      if (found != ImageActivation::kNone) group.take(at(*next), *next);
      return found;
    }
    // x sigmoid(x), and x hardsigmoid(x) with the slope 1 / 6.
    const std::vector<size_t> both = readers(group.result);
    if (both.size() != 2 || is_replaced(both[0]) || is_replaced(both[1])) return ImageActivation::kNone;
    const size_t gate = both[0], product = both[1];
    const bool silu = is(at(gate), "Sigmoid"), hard = is(at(gate), "HardSigmoid") && is_sixth(at(gate));
    if ((!silu && !hard) || !is(at(product), "Mul") || only_reader(at(gate).outputs[0]) != product)
      return ImageActivation::kNone;
    group.take(at(gate), gate);
    group.take(at(product), product);
    return silu ? ImageActivation::kSilu : ImageActivation::kHardSwish;
  }

  ImageActivation activation_of(const Step& step) const {
    if (is(step, "Relu")) return ImageActivation::kRelu;
    if (is(step, "HardSwish")) return ImageActivation::kHardSwish;
    if (is_gelu(step)) return ImageActivation::kGelu;
    if (is(step, "Swish") && real_of(step, "alpha", 1) == 1) return ImageActivation::kSilu;
    if (is(step, "Clip") && is_relu6(step)) return ImageActivation::kRelu6;
    return ImageActivation::kNone;
  }

  static double real_of(const Step& step, const char* name, double otherwise) {
    const auto found = step.node->attributes.find(name);
    return found == step.node->attributes.end() ? otherwise : found->second.f;
  }
  static bool is_sixth(const Step& step) {
    return std::abs(real_of(step, "alpha", 0.2) - 1.0 / 6) < 1e-6 && real_of(step, "beta", 0.5) == 0.5;
  }
  bool is_relu6(const Step& step) const {
    if (step.opset < 11) return real_of(step, "min", -INFINITY) == 0 && real_of(step, "max", INFINITY) == 6;
    return step.inputs.size() == 3 && number(step.inputs[1]) == 0.0 && number(step.inputs[2]) == 6.0;
  }
  /// The exact form: that of ONNX, or of fuse_steps().
  static bool is_gelu(const Step& step) {
    if (!is(step, "Gelu")) return false;
    const auto form = step.node->attributes.find("approximate");
    const auto fused = step.node->attributes.find("tanh");
    return (form == step.node->attributes.end() || form->second.s == "none") &&
           (fused == step.node->attributes.end() || fused->second.i == 0);
  }

  // ---- linear layers ----

  bool linear_layers(size_t first) {
    Group group{{}, -1};
    std::vector<int> inputs = {at(first).inputs.empty() ? -1 : at(first).inputs[0]};
    std::vector<int64_t> layers;
    for (std::optional<size_t> next = first; next && take_layer(*next, group, inputs, layers);)
      next = only_reader(group.result);
    if (layers.empty()) return false;
    std::map<std::string, Attribute> attributes;
    attributes["layers"] = {.kind = AttributeKind::kInts, .ints = layers};
    const std::optional<size_t> norm = take_sum(group, inputs);
    if (norm) attributes["epsilon"] = real(real_of(at(*norm), "epsilon", 1e-5));
    Step& step = replace(group, kLinearLayers, std::move(inputs), std::move(attributes));
    if (norm) give_norm(step, *norm);
    step.memory->linears.resize(layers.size());
    return true;
  }

  /// A product with a weight, the bias and the activation behind it.
  bool take_layer(size_t i, Group& group, std::vector<int>& inputs, std::vector<int64_t>& layers) {
    const Step& step = at(i);
    const bool gemm = is(step, "Gemm");
    if ((!gemm && !is(step, "MatMul")) || step.inputs.size() < 2 || !is_source(step.inputs[1])) return false;
    if (!group.steps.empty() && step.inputs[0] != group.result) return false;
    if (gemm && (whole_of(step, "transA") != 0 || real_of(step, "alpha", 1) != 1 || real_of(step, "beta", 1) != 1))
      return false;
    int64_t flags = 0;
    if (gemm && whole_of(step, "transB") != 0) flags |= kByOutputs;
    group.take(step, i);
    inputs.push_back(step.inputs[1]);
    int bias = gemm && step.inputs.size() > 2 ? step.inputs[2] : -1;
    if (const auto sum = only_reader(group.result); !gemm && sum && is(at(*sum), "Add")) {
      const auto other = other_than(at(*sum), group.result);
      if (other && is_source(*other)) {
        bias = *other;
        group.take(at(*sum), *sum);
      }
    }
    if (bias >= 0) {
      inputs.push_back(bias);
      flags |= kHasBias;
    }
    if (const auto next = only_reader(group.result)) {
      const bool relu = is(at(*next), "Relu"), gelu = is_gelu(at(*next));
      if (relu) flags |= kHasRelu;
      if (gelu) flags |= kHasGelu;
      if (relu || gelu) group.take(at(*next), *next);
    }
    layers.push_back(flags);
    return true;
  }

  static int64_t whole_of(const Step& step, const char* name) {
    const auto found = step.node->attributes.find(name);
    return found == step.node->attributes.end() ? 0 : found->second.i;
  }

  /// The sum with a residual of which a layer norm is taken; the norm.
  std::optional<size_t> take_sum(Group& group, std::vector<int>& inputs) {
    const auto sum = only_reader(group.result);
    if (!sum || !is(at(*sum), "Add")) return {};
    const auto other = other_than(at(*sum), group.result);
    if (!other || is_source(*other)) return {};
    for (const size_t i : readers(at(*sum).outputs[0])) {
      const Step& norm = at(i);
      if (is_replaced(i) || !is(norm, "LayerNormalization") || norm.inputs[0] != at(*sum).outputs[0]) continue;
      if (norm.node->outputs.size() != 1 || !is_over_last(norm)) continue;
      if (!is_source(norm.inputs[1]) || (norm.inputs.size() > 2 && norm.inputs[2] >= 0 && !is_source(norm.inputs[2])))
        continue;
      group.take(at(*sum), *sum);
      inputs.push_back(*other);
      inputs.insert(inputs.end(), norm.inputs.begin() + 1, norm.inputs.end());
      return i;
    }
    return {};
  }
  static bool is_over_last(const Step& norm) {
    const auto axis = norm.node->attributes.find("axis");
    return axis == norm.node->attributes.end() || axis->second.i == -1;
  }

  /// The step, which gave the sum, gives the norm of it, and the sum if something else reads it.
  void give_norm(Step& step, size_t norm) {
    const int sum = step.outputs[0];
    const bool is_read = readers(sum).size() != 1;
    auto node = std::make_shared<NodeDef>(*step.node);
    node->outputs = {at(norm).node->outputs[0]};
    step.outputs = {at(norm).outputs[0]};
    if (is_read) {
      node->outputs.push_back(step.node->outputs[0]);
      step.outputs.push_back(sum);
    }
    step.node = std::move(node);
    at(norm).op = nullptr;
  }
};

}  // namespace

void fuse_layers(Program& program) {
  for (Step& step : program.steps)
    for (auto& [name, body] : step.bodies) fuse_layers(*body);
  LayerFusion(program).run();
}

}  // namespace tern::onnx
