// Groups of steps that exporters write for one layer, replaced by Tern's op for it: attention, layer norm and GELU.
//
// A group is found from its last step backward. It is replaced where nothing else reads what lies within, and only
// numbers (tensors of one element) are assumed to be what they are when the model is loaded.

#include <cmath>
#include <map>
#include <optional>

#include "tern/kernels/base/check.h"
#include "tern/models/onnx/fusion.h"
#include "tern/models/onnx/ops/attention.h"
#include "tern/models/onnx/state.h"

namespace tern::onnx {
namespace {

/// Softmax(a b + mask) v, with a scale between that is a number. Inputs: a, b, v and perhaps the mask.
void fused_scores(Call& c) {
  const Tensor q = c.in(0), k = c.in(1).t(), v = c.in(2);
  const double scale = c.number("scale", 1);
  Tensor mask = c.in_or_none(3);
  const bool fits = q.dim() == 4 && k.dim() == 4 && v.dim() == 4 && is_floating(q.dtype()) && q.size(0) == k.size(0) &&
                    q.size(0) == v.size(0) && q.size(1) == k.size(1) && q.size(1) == v.size(1) &&
                    q.size(3) == k.size(3) && q.size(3) <= 256 && v.size(3) <= 256 && k.size(2) > 0 && scale > 0 &&
                    (!mask.defined() || (mask.dim() <= 4 && is_floating(mask.dtype())));
  if (!fits) {
    Tensor scores = matmul(q, k.t());
    if (scale != 1) scores = scores * scale;
    if (mask.defined()) scores = scores + mask;
    return c.set(matmul(softmax(scores), v));
  }
  while (mask.defined() && mask.dim() < 4) mask = mask.unsqueeze(0);
  c.set(fused_attention({.q = q, .k = k, .v = v, .mask = mask, .scale = scale}));
}

void fused_layer_norm(Call& c) {
  const Tensor x = c.in(0), weight = c.in(1), bias = c.in_or_none(2);
  const double eps = c.number("epsilon", 1e-5);
  const bool fits = weight.shape() == Shape{x.size(-1)} && (!bias.defined() || bias.shape() == weight.shape());
  const Tensor y = layer_norm(x, fits ? weight : Tensor(), fits ? bias : Tensor(), eps);
  if (fits) return c.set(y);
  c.set(bias.defined() ? y * weight + bias : y * weight);
}

void fused_gelu(Call& c) { c.set(c.flag("tanh") ? gelu_tanh(c.in(0)) : gelu(c.in(0))); }

/// Inputs: x and the shapes of two Reshapes, between which the last of three dimensions are exchanged. Where the first
/// joins the leading dimensions and the second parts them again, the result is a view of x.
void swap_last(Call& c) {
  const Tensor x = c.in(0);
  std::vector<int64_t> joined = c.list(1), parted = c.list(2);
  const Numbers sizes(x.shape().begin(), x.shape().end());
  if (x.dim() >= 3 && x.numel() > 0 && joined.size() == 3 && parted.size() == sizes.size()) {
    const size_t rows = sizes.size() - 2, cols = rows + 1;
    bool fits = joined[1] == sizes[rows] && joined[2] == sizes[cols] &&
                (joined[0] == -1 || joined[0] == x.numel() / (sizes[rows] * sizes[cols]));
    fits = fits && parted[rows] == sizes[cols] && parted[cols] == sizes[rows];
    for (size_t d = 0; d < rows; ++d) fits = fits && parted[d] == sizes[d];
    if (fits) return c.set(x.t());
  }
  const auto reshaped = [&](const Tensor& from, std::vector<int64_t>& to, const char* allows_zero) {
    for (size_t i = 0; i < to.size() && !c.flag(allows_zero); ++i)
      if (to[i] == 0) to[i] = from.size(static_cast<int>(i));
    return from.reshape(to);
  };
  c.set(reshaped(reshaped(x, joined, "first_allowzero").transpose(1, 2), parted, "allowzero"));
}

const OpRow kAttentionRow{"Attention", 1, fused_scores};
const OpRow kLayerNormRow{"LayerNormalization", 1, fused_layer_norm};
const OpRow kGeluRow{"Gelu", 1, fused_gelu};
const OpRow kSwapRow{"SwapLast", 1, swap_last};

class Fusion : StepGroups {
 public:
  using StepGroups::StepGroups;

  void run() {
    for (size_t i = 0; i < steps(); ++i) {
      group_.clear();
      if (!is_replaced(i) && !attention(i) && !gelu(i) && !swapped(i)) layer_norm(i);
    }
    finish();
  }

 private:
  void replace(size_t last, const OpRow& row, std::vector<int> inputs, std::map<std::string, Attribute> attributes) {
    StepGroups::replace(last, group_, row, std::move(inputs), std::move(attributes));
  }

  /// MatMul(Softmax(a b [* scale] [+ mask]), v); between, PyTorch's exporter replaces NaN by 0.
  bool attention(size_t last) {
    if (!is(at(last), "MatMul")) return false;
    int place = at(last).inputs[0];
    std::optional<size_t> softmax = before(place, "Softmax");
    if (const auto where = before(place, "Where"); !softmax && where) {
      const int probabilities = at(*where).inputs[2];
      const auto nan = before(at(*where).inputs[0], "IsNaN");
      softmax = before(probabilities, "Softmax", 2);
      if (!nan || !softmax || at(*nan).inputs[0] != probabilities || !number(at(*where).inputs[1])) return false;
      if (*number(at(*where).inputs[1]) != 0) return false;
      group_ = {*where, *nan};
    }
    if (!softmax) return false;
    const auto axis = at(*softmax).node->attributes.find("axis");
    const int64_t dim = axis != at(*softmax).node->attributes.end() ? axis->second.i : at(*softmax).opset < 13 ? 1 : -1;
    if (dim != -1 && dim != 3) return false;
    group_.push_back(*softmax);
    place = at(*softmax).inputs[0];
    int mask = -1;
    double scale = 1;
    if (const auto sum = before(place, "Add")) {
      const Step& step = at(*sum);
      const bool first = is_scores(step.inputs[0]);
      place = step.inputs[first ? 0 : 1];
      mask = step.inputs[first ? 1 : 0];
      group_.push_back(*sum);
    }
    for (const char* op : {"Mul", "Div"}) {
      const auto scaled = before(place, op);
      if (!scaled) continue;
      const Step& step = at(*scaled);
      const auto factor = number(step.inputs[1]);
      if (!factor || *factor <= 0) return false;
      scale = op[0] == 'M' ? *factor : 1 / *factor;
      place = step.inputs[0];
      group_.push_back(*scaled);
      break;
    }
    const auto scores = before(place, "MatMul");
    if (!scores) return false;
    group_.push_back(*scores);
    std::vector<int> inputs = {at(*scores).inputs[0], at(*scores).inputs[1], at(last).inputs[1]};
    for (int* const operand : {&inputs[0], &inputs[1]})  // PyTorch's exporter gives each the root of the scale
      if (const auto scaled = before(*operand, "Mul")) {
        const auto factor = number(at(*scaled).inputs[1]);
        if (!factor || *factor <= 0) continue;
        scale *= *factor;
        *operand = at(*scaled).inputs[0];
        group_.push_back(*scaled);
      }
    if (mask >= 0) inputs.push_back(mask);
    replace(last, kAttentionRow, inputs, {{"scale", real(scale)}});
    return true;
  }

  /// Reshape(Transpose(Reshape(x, [-1, n, m]), [0, 2, 1]), [..., m, n]), as PyTorch's exporter writes the keys.
  bool swapped(size_t last) {
    if (!is(at(last), "Reshape")) return false;
    const auto exchange = before(at(last).inputs[0], "Transpose");
    if (!exchange) return false;
    const auto order = at(*exchange).node->attributes.find("perm");
    if (order == at(*exchange).node->attributes.end() || order->second.ints != Numbers{0, 2, 1}) return false;
    const auto first = before(at(*exchange).inputs[0], "Reshape");
    if (!first) return false;
    group_ = {*exchange, *first};
    const auto allows_zero = [&](size_t i) {
      const auto found = at(i).node->attributes.find("allowzero");
      return whole(found == at(i).node->attributes.end() ? 0 : found->second.i);
    };
    replace(last, kSwapRow, {at(*first).inputs[0], at(*first).inputs[1], at(last).inputs[1]},
            {{"first_allowzero", allows_zero(*first)}, {"allowzero", allows_zero(last)}});
    return true;
  }

  /// A product, perhaps with a number.
  bool is_scores(int place) {
    for (const char* op : {"Mul", "Div"})
      if (const auto scaled = before(place, op))
        return number(at(*scaled).inputs[1]) && before(at(*scaled).inputs[0], "MatMul");
    return before(place, "MatMul").has_value();
  }

  /// x / 2 (1 + erf(x / sqrt(2))), and the form with tanh(sqrt(2 / pi) (x + 0.044715 x^3)), in the orders that
  /// exporters, ONNX's own definition and Hugging Face's models write.
  bool gelu(size_t last) {
    if (!is(at(last), "Mul")) return false;
    for (const int side : {0, 1}) {
      group_.clear();
      // Mul(x (1 + f), 0.5), Mul(0.5 x, 1 + f), or Mul(x, 0.5 (1 + f)).
      const int a = at(last).inputs[static_cast<size_t>(side)], b = at(last).inputs[static_cast<size_t>(1 - side)];
      if (is_number(b, 0.5)) {
        const auto product = before(a, "Mul");
        if (!product) continue;
        group_ = {*product};
        for (const int way : {0, 1})
          if (gelu_of(last, at(*product).inputs[static_cast<size_t>(way)],
                      at(*product).inputs[static_cast<size_t>(1 - way)]))
            return true;
        continue;
      }
      const auto half = before(a, "Mul");
      if (!half) continue;
      const auto rest = other_than_number(at(*half), 0.5);
      group_ = {*half};
      if (rest && (gelu_of(last, *rest, b) || gelu_of(last, b, *rest))) return true;
    }
    return false;
  }

  bool gelu_of(size_t last, int x, int one_plus) {
    const std::vector<size_t> outside = group_;
    const auto fail = [&] {
      group_ = outside;
      return false;
    };
    const auto sum = before(one_plus, "Add");
    if (!sum) return fail();
    const auto f = other_than_number(at(*sum), 1);
    if (!f) return fail();
    group_.push_back(*sum);
    if (const auto erf = before(*f, "Erf")) {
      const auto scaled_down = before(at(*erf).inputs[0], "Div"), scaled = before(at(*erf).inputs[0], "Mul");
      const auto inner = scaled_down ? (is_number(at(*scaled_down).inputs[1], std::sqrt(2.0))
                                            ? std::optional(at(*scaled_down).inputs[0])
                                            : std::nullopt)
                         : scaled    ? other_than_number(at(*scaled), std::sqrt(0.5))
                                     : std::nullopt;
      if (!inner || *inner != x) return fail();
      group_.push_back(*erf);
      group_.push_back(scaled_down ? *scaled_down : *scaled);
      replace(last, kGeluRow, {x}, {{"tanh", whole(0)}});
      return true;
    }
    const auto bent = before(*f, "Tanh");
    const auto scaled = bent ? before(at(*bent).inputs[0], "Mul") : std::nullopt;
    if (!scaled) return fail();
    group_.insert(group_.end(), {*bent, *scaled});
    const auto inner = other_than_number(at(*scaled), kTanhScale);
    if (inner ? !is_cubic(*inner, x) : !is_factored_cubic(at(*scaled), x)) return fail();
    replace(last, kGeluRow, {x}, {{"tanh", whole(1)}});
    return true;
  }

  static constexpr double kTanhScale = 0.7978845608028654, kCubic = 0.044715;  // the first is sqrt(2 / pi)

  /// x + 0.044715 x^3
  bool is_cubic(int place, int x) {
    const auto cubic = before(place, "Add");
    const auto rest = cubic ? other_than(at(*cubic), x) : std::nullopt;
    const auto small = rest ? before(*rest, "Mul") : std::nullopt;
    const auto cube = small ? other_than_number(at(*small), kCubic) : std::nullopt;
    if (!cube) return false;
    group_.insert(group_.end(), {*cubic, *small});
    if (const auto power = before(*cube, "Pow")) {
      group_.push_back(*power);
      return at(*power).inputs[0] == x && is_number(at(*power).inputs[1], 3);
    }
    const auto product = before(*cube, "Mul");  // (x x) x
    const auto two = product ? other_than(at(*product), x) : std::nullopt;
    const auto square = two ? before(*two, "Mul") : std::nullopt;
    if (!square || at(*square).inputs != std::vector<int>{x, x}) return false;
    group_.insert(group_.end(), {*product, *square});
    return true;
  }

  /// (x sqrt(2 / pi)) (1 + (0.044715 x) x)
  bool is_factored_cubic(const Step& product, int x) {
    for (const size_t side : {0u, 1u}) {
      const auto scaled = before(product.inputs[side], "Mul"), sum = before(product.inputs[1 - side], "Add");
      if (!scaled || !sum || other_than_number(at(*scaled), kTanhScale) != x) continue;
      const auto squared = other_than_number(at(*sum), 1);
      const auto square = squared ? before(*squared, "Mul") : std::nullopt;
      const auto rest = square ? other_than(at(*square), x) : std::nullopt;
      const auto small = rest ? before(*rest, "Mul") : std::nullopt;
      if (!small || other_than_number(at(*small), kCubic) != x) continue;
      group_.insert(group_.end(), {*scaled, *sum, *square, *small});
      return true;
    }
    return false;
  }

  /// (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * weight + bias, over the last axis.
  bool layer_norm(size_t last) {
    int place = -1, bias = -1, weight = -1;
    std::optional<size_t> scaled;
    if (is(at(last), "Add")) {
      for (const size_t side : {0u, 1u})
        if (const auto found = before(at(last).inputs[side], "Mul"); found && !scaled) {
          scaled = found;
          bias = at(last).inputs[1 - side];
        }
    }
    if (!scaled) return false;
    group_.push_back(*scaled);
    std::optional<size_t> divided;
    for (const size_t side : {0u, 1u})
      if (const auto found = before(at(*scaled).inputs[side], "Div"); found && !divided) {
        divided = found;
        weight = at(*scaled).inputs[1 - side];
      }
    if (!divided) return false;
    place = at(*divided).inputs[0];  // x - mean(x), which is read twice
    const auto root = before(at(*divided).inputs[1], "Sqrt");
    const auto sum = root ? before(at(*root).inputs[0], "Add") : std::nullopt;
    if (!sum) return false;
    const auto eps = number(at(*sum).inputs[1]);
    const auto variance = before(at(*sum).inputs[0], "ReduceMean");
    if (!eps || !variance || !over_last_axis(at(*variance))) return false;
    const auto power = before(at(*variance).inputs[0], "Pow");
    const auto difference = before(place, "Sub", 2);
    if (!power || !difference || at(*power).inputs[0] != place || !is_number(at(*power).inputs[1], 2)) return false;
    const int x = at(*difference).inputs[0];
    const auto mean = before(at(*difference).inputs[1], "ReduceMean");
    if (!mean || at(*mean).inputs[0] != x || !over_last_axis(at(*mean))) return false;
    for (const size_t i : {*divided, *root, *sum, *variance, *power, *difference, *mean}) group_.push_back(i);
    replace(last, kLayerNormRow, {x, weight, bias}, {{"epsilon", real(*eps)}});
    return true;
  }

  bool over_last_axis(const Step& step) const {
    const auto keep = step.node->attributes.find("keepdims");
    if (keep != step.node->attributes.end() && keep->second.i == 0) return false;
    const auto axes = step.node->attributes.find("axes");
    if (axes != step.node->attributes.end()) return axes->second.ints == Numbers{-1};
    if (step.inputs.size() < 2) return false;
    const auto axis = list(step.inputs[1]);
    return axis && *axis == Numbers{-1};
  }

  std::vector<size_t> group_;
};

}  // namespace

void fuse_steps(Program& program) {
  for (Step& step : program.steps)
    for (auto& [name, body] : step.bodies) fuse_steps(*body);
  Fusion(program).run();
}

}  // namespace tern::onnx
