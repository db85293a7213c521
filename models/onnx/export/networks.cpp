// Layers of networks as ONNX's nodes.

#include <algorithm>
#include <array>
#include <cmath>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/attention/attention.h"
#include "tern/core/ops/indexing/join.h"
#include "tern/core/ops/norm/batch_norm.h"
#include "tern/core/ops/recurrent/recurrent.h"
#include "tern/models/onnx/export/exporter.h"

namespace tern::onnx {
namespace {

using Arguments = std::vector<GraphArgument>;

int64_t constant_of(Exporter& e, const GraphArgument& a) {
  if (!a.size.is_constant()) e.refuse("one of its sizes is dynamic");
  return a.size.constant();
}

/// The last `dims` of the three numbers of an array.
std::vector<int64_t> last_of(Exporter& e, const GraphArgument& list, size_t dims) {
  std::vector<int64_t> values;
  for (size_t i = 3 - dims; i < 3; ++i) values.push_back(constant_of(e, list.list.at(i)));
  return values;
}

std::vector<int64_t> twice(std::vector<int64_t> values) {
  values.insert(values.end(), values.begin(), values.end());
  return values;
}

std::string activated(Exporter& e, const std::string& x, DType dtype, ImageActivation activation) {
  switch (activation) {
    case ImageActivation::kNone:
      return x;
    case ImageActivation::kRelu:
      return e.node("Relu", {x});
    case ImageActivation::kRelu6:
      return e.node("Clip", {x, e.scalar(0, dtype), e.scalar(6, dtype)});
    case ImageActivation::kSilu:
      return e.node("Mul", {x, e.node("Sigmoid", {x})});
    case ImageActivation::kHardSwish:
      return e.node("HardSwish", {x});
    case ImageActivation::kGelu:
      break;
  }
  if (e.opset() >= 20) return e.node("Gelu", {x});
  const std::string erf = e.node("Erf", {e.node("Mul", {x, e.scalar(std::sqrt(0.5), dtype)})});
  return e.node("Mul", {e.node("Mul", {x, e.scalar(0.5, dtype)}), e.node("Add", {erf, e.scalar(1, dtype)})});
}

/// Arguments: x [rows, in], weight, bias, activation (none, GELU, ReLU).
void write_linear(Exporter& e, const Graph::Node& node, const Arguments& a) {
  const DType dtype = e.info(node.inputs[0]).dtype;
  std::vector<std::string> inputs;
  for (const int v : node.inputs) inputs.push_back(v < 0 ? "" : e.cast(e.name(v), e.info(v).dtype, dtype));
  const std::string y = e.node("Gemm", inputs, {{"transB", attribute(int64_t{1})}});
  const int64_t activation = constant_of(e, a[3]);
  e.set(node.outputs[0], activated(e, y, dtype,
                                   activation == 0   ? ImageActivation::kNone
                                   : activation == 1 ? ImageActivation::kGelu
                                                     : ImageActivation::kRelu));
}

/// The first `cut` rows of a weight multiply one input, the others another. Arguments: both, weight, bias, cut.
void write_linear_pair(Exporter& e, const Graph::Node& node, const Arguments& a) {
  const int64_t cut = constant_of(e, a[4]);
  for (size_t i = 0; i < 2; ++i) {
    const auto rows = [&](int v) {
      if (v < 0) return std::string();
      return e.node("Slice", {e.cast(e.name(v), e.info(v).dtype, e.info(node.inputs[0]).dtype),
                              e.integers({i == 0 ? 0 : cut}), e.integers({i == 0 ? cut : INT64_MAX}), e.integers({0})});
    };
    const std::vector<std::string> inputs = {e.name(node.inputs[i]), rows(node.inputs[2]), rows(node.inputs[3])};
    e.set(node.outputs[i], e.node("Gemm", inputs, {{"transB", attribute(int64_t{1})}}));
  }
}

void write_matmul(Exporter& e, const Graph::Node& node, const Arguments&) {
  e.set(node.outputs[0], e.node("MatMul", {e.name(node.inputs[0]), e.name(node.inputs[1])}));
}

/// Of a convolution or its gradient by x: batch, in and out channels, groups; in, out, kernel, stride, padding and
/// dilation, each a list of depth, height, width.
struct ConvolutionArguments {
  const Arguments& all;
  size_t first, dims;
  const GraphArgument& list(size_t i) const { return all.at(first + 4 + i); }
};

Attributes convolution_attributes(Exporter& e, const ConvolutionArguments& c) {
  return {{"group", attribute(constant_of(e, c.all.at(c.first + 3)))},
          {"kernel_shape", attribute(last_of(e, c.list(2), c.dims))},
          {"strides", attribute(last_of(e, c.list(3), c.dims))},
          {"pads", attribute(twice(last_of(e, c.list(4), c.dims)))},
          {"dilations", attribute(last_of(e, c.list(5), c.dims))}};
}

/// Arguments: x, weight, bias, shape.
void write_convolution(Exporter& e, const Graph::Node& node, const Arguments& a) {
  const ConvolutionArguments c{a, 3, e.info(node.inputs[1]).shape.size() - 2};
  e.set(node.outputs[0], e.node("Conv", {e.name(node.inputs[0]), e.name(node.inputs[1]), e.name(node.inputs[2])},
                                convolution_attributes(e, c)));
}

/// A transposed convolution. Arguments: y, weight, shape.
void write_transposed(Exporter& e, const Graph::Node& node, const Arguments& a) {
  const ConvolutionArguments c{a, 2, e.info(node.inputs[1]).shape.size() - 2};
  Attributes attributes = convolution_attributes(e, c);
  const std::vector<int64_t> large = last_of(e, c.list(0), c.dims), small = last_of(e, c.list(1), c.dims);
  std::vector<int64_t> rest;
  for (size_t d = 0; d < c.dims; ++d) {
    const auto of = [&](const char* name) { return attributes.at(name).ints[d]; };
    rest.push_back(large[d] -
                   ((small[d] - 1) * of("strides") - 2 * of("pads") + of("dilations") * (of("kernel_shape") - 1) + 1));
  }
  attributes["output_padding"] = attribute(rest);
  e.set(node.outputs[0], e.node("ConvTranspose", {e.name(node.inputs[0]), e.name(node.inputs[1])}, attributes));
}

/// Of a pool: batch, channels; in, out, kernel, stride, padding, dilation; whether it is adaptive.
void write_pool(Exporter& e, const Graph::Node& node, const Arguments& a) {
  const size_t dims = e.info(node.inputs[0]).shape.size() - 2;
  const std::string x = e.name(node.inputs[0]);
  const bool is_max = node.op == "max_pool";
  const std::vector<int64_t> in = last_of(e, a[3], dims), out = last_of(e, a[4], dims);
  const auto is_one = [](int64_t v) { return v == 1; };
  if (constant_of(e, a[9]) != 0 && std::all_of(out.begin(), out.end(), is_one)) {
    const std::string y = e.node(is_max ? "GlobalMaxPool" : "GlobalAveragePool", {x});
    return e.set(node.outputs[0], y);
  }
  Attributes attributes;
  if (constant_of(e, a[9]) != 0) {
    std::vector<int64_t> kernel;
    for (size_t d = 0; d < dims; ++d) {
      if (out[d] == 0 || in[d] % out[d] != 0) e.refuse("windows of an adaptive pool have different sizes");
      kernel.push_back(in[d] / out[d]);
    }
    attributes = {{"kernel_shape", attribute(kernel)}, {"strides", attribute(kernel)}};
  } else {
    const std::vector<int64_t> kernel = last_of(e, a[5], dims), stride = last_of(e, a[6], dims),
                               padding = last_of(e, a[7], dims), dilation = last_of(e, a[8], dims);
    bool ceil = false;
    for (size_t d = 0; d < dims; ++d)
      ceil = ceil || out[d] > (in[d] + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1) / stride[d] + 1;
    attributes = {{"kernel_shape", attribute(kernel)},
                  {"strides", attribute(stride)},
                  {"pads", attribute(twice(padding))},
                  {"ceil_mode", attribute(int64_t{ceil})}};
    if (is_max) {
      attributes["dilations"] = attribute(dilation);
    } else {
      if (!std::all_of(dilation.begin(), dilation.end(), is_one)) e.refuse("a mean over dilated windows");
      if (constant_of(e, a[11]) != 0) e.refuse("a mean with a divisor of its own");
      attributes["count_include_pad"] = attribute(constant_of(e, a[10]));
    }
  }
  if (is_max && node.outputs.size() > 1 && node.outputs[1] >= 0) {
    // ONNX counts places from the first image on; ours begin anew in each.
    e.set(node.outputs[0], e.node("MaxPool", {x}, attributes));
    return;
  }
  e.set(node.outputs[0], e.node(is_max ? "MaxPool" : "AveragePool", {x}, attributes));
}

/// A vector of channels, or ones or zeros where there is none.
std::string channels_or(Exporter& e, int value, double otherwise, int64_t channels, DType dtype) {
  if (value >= 0) return e.cast(e.name(value), e.info(value).dtype, dtype);
  return e.constant(full({channels}, otherwise, {.dtype = dtype}));
}

/// Arguments: x, weight, bias, residual, running mean and variance; training, momentum, eps, activation.
void write_batch_norm(Exporter& e, const Graph::Node& node, const Arguments& a) {
  if (constant_of(e, a[6]) != 0 || node.inputs[4] < 0) e.refuse("it normalises by the batch; call eval() first");
  const DType dtype = e.info(node.inputs[0]).dtype;
  const int64_t channels = e.info(node.inputs[0]).shape.at(1).constant();
  std::string y =
      e.node("BatchNormalization",
             {e.name(node.inputs[0]), channels_or(e, node.inputs[1], 1, channels, dtype),
              channels_or(e, node.inputs[2], 0, channels, dtype), channels_or(e, node.inputs[4], 0, channels, dtype),
              channels_or(e, node.inputs[5], 1, channels, dtype)},
             {{"epsilon", attribute(a[8].number)}});
  if (node.inputs[3] >= 0) y = e.node("Add", {y, e.name(node.inputs[3])});
  e.set(node.outputs[0], activated(e, y, dtype, static_cast<ImageActivation>(constant_of(e, a[9]))));
}

/// Arguments: x, residual, weight, bias, eps, dropout's numbers, row keys, whether the sum is a result.
void write_norm_of_rows(Exporter& e, const Graph::Node& node, const Arguments& a) {
  const DType dtype = e.info(node.inputs[0]).dtype;
  const int64_t width = e.info(node.inputs[0]).shape.back().constant();
  std::string x = e.name(node.inputs[0]);
  if (node.inputs[1] >= 0) x = e.node("Add", {x, e.name(node.inputs[1])});
  if (node.outputs.size() > 1 && node.outputs[1] >= 0) e.set(node.outputs[1], x);
  const std::string weight = channels_or(e, node.inputs[2], 1, width, dtype);
  const double eps = a[4].number;
  if (node.op == "layer_norm") {
    const std::string bias = node.inputs[3] < 0 ? "" : channels_or(e, node.inputs[3], 0, width, dtype);
    return e.set(node.outputs[0], e.node("LayerNormalization", {x, weight, bias},
                                         {{"axis", attribute(int64_t{-1})}, {"epsilon", attribute(eps)}}));
  }
  if (e.opset() >= 23)
    return e.set(node.outputs[0], e.node("RMSNormalization", {x, weight},
                                         {{"axis", attribute(int64_t{-1})}, {"epsilon", attribute(eps)}}));
  const std::string mean = e.reduce("ReduceMean", e.node("Mul", {x, x}), {-1}, true);
  const std::string root = e.node("Sqrt", {e.node("Add", {mean, e.scalar(eps, dtype)})});
  e.set(node.outputs[0], e.node("Mul", {e.node("Div", {x, root}), weight}));
}

/// Arguments: x, weight, bias, groups, eps.
void write_group_norm(Exporter& e, const Graph::Node& node, const Arguments& a) {
  const Graph::Value& x = e.info(node.inputs[0]);
  const int64_t groups = constant_of(e, a[3]), channels = x.shape.at(1).constant();
  const std::string rows = e.node("Reshape", {e.name(node.inputs[0]), e.integers({0, groups, -1})});
  const std::string normal = e.node(
      "InstanceNormalization",
      {rows, e.constant(full({groups}, 1, {.dtype = x.dtype})), e.constant(full({groups}, 0, {.dtype = x.dtype}))},
      {{"epsilon", attribute(a[4].number)}});
  std::string y = e.reshape(normal, x.shape);
  std::vector<int64_t> column(x.shape.size() - 1, 1);
  column[0] = channels;
  for (size_t i = 1; i <= 2; ++i)
    if (node.inputs[i] >= 0)
      y = e.node(i == 1 ? "Mul" : "Add", {y, e.node("Reshape", {e.name(node.inputs[i]), e.integers(column)})});
  e.set(node.outputs[0], y);
}

// ---- attention ----

/// The layout of sequences of one length: offsets, longest, key mask, row keys, positions, tokens.
struct Sequences {
  SymbolicSize batch, length;
  int key_mask = -1;
};

Sequences sequences_at(Exporter& e, const Arguments& a, size_t at) {
  const Graph::Value& offsets = e.info(a[at].value);
  Sequences s{
      .batch = SymbolicSize::sum(offsets.shape.at(0), -1), .length = a[at + 1].size, .key_mask = a[at + 2].value};
  return s;
}

/// x [tokens, heads, width] as [batch, heads, length, width].
std::string heads_first(Exporter& e, const std::string& x, const Sequences& s, const SymbolicSize& heads,
                        const SymbolicSize& width) {
  return e.transpose(e.reshape(x, {s.batch, s.length, heads, width}), {0, 2, 1, 3});
}

struct AttentionWriter {
  Exporter& e;
  Sequences query, key;
  int64_t heads, kv_heads, width;
  double scale;
  bool causal;
  int64_t window;
  int bias;
  DType dtype;

  /// [batch, 1, 1, keys], true where a key is no padding.
  std::string visible() const {
    const std::string mask = e.cast(e.name(key.key_mask), e.info(key.key_mask).dtype, DType::kBool);
    return e.reshape(mask, {key.batch, 1, 1, key.length});
  }

  /// [queries, keys], true where the key is not later than the query; both end together.
  std::string not_later() const {
    const auto range = [&](const SymbolicSize& size) {
      const auto number = [&](const SymbolicSize& n) { return e.node("Squeeze", {e.sizes({n}), e.integers({0})}); };
      return e.node("Range", {number(0), number(size), number(1)});
    };
    const std::string rows = e.node("Unsqueeze", {range(query.length), e.integers({1})});
    const std::string apart = e.node("Sub", {e.sizes({key.length}), e.sizes({query.length})});
    return e.node("LessOrEqual",
                  {e.node("Unsqueeze", {range(key.length), e.integers({0})}), e.node("Add", {rows, apart})});
  }

  /// q, k, v: [batch, heads, length, width]; the result is [query tokens, heads * width].
  std::string write(const std::string& q, const std::string& k, const std::string& v,
                    const std::vector<SymbolicSize>& shape) const {
    if (window >= 0) e.refuse("attention with a window");
    std::string mask;
    if (key.key_mask >= 0) mask = visible();
    const bool by_mask = causal && !(query.length == key.length);
    std::string y;
    if (e.opset() >= 23 && bias < 0 && !by_mask) {
      // A mask has the shape of the scores.
      if (!mask.empty()) mask = e.node("Expand", {mask, e.sizes({query.batch, 1, query.length, key.length})});
      y = e.node("Attention", {q, k, v, mask},
                 {{"is_causal", attribute(int64_t{causal})}, {"scale", attribute(scale)}});
    } else {
      if (causal) mask = mask.empty() ? not_later() : e.node("And", {mask, not_later()});
      std::string scores = e.node("MatMul", {q, e.transpose(k, {0, 1, 3, 2})});
      scores = e.node("Mul", {scores, e.scalar(scale, dtype)});
      if (bias >= 0) scores = e.node("Add", {scores, e.cast(e.name(bias), e.info(bias).dtype, dtype)});
      if (!mask.empty())
        scores = e.node("Where", {mask, scores, e.scalar(dtype == DType::kFloat16 ? -65504 : -3e38, dtype)});
      y = e.node("MatMul", {e.node("Softmax", {scores}, {{"axis", attribute(int64_t{-1})}}), v});
    }
    return e.reshape(e.transpose(y, {0, 2, 1, 3}), shape);
  }

  /// Keys or values repeated for each group of heads.
  std::string repeated(const std::string& x) const {
    if (heads == kv_heads) return x;
    const int64_t each = heads / kv_heads;
    const std::string apart = e.node("Unsqueeze", {x, e.integers({2})});
    const std::string wide = e.node("Expand", {apart, e.integers({1, 1, each, 1, 1})});
    return e.reshape(wide, {key.batch, heads, key.length, width});
  }
};

/// Options of attention from argument `at` on: scale, causal, window, dropout, (generator), bias.
AttentionWriter attention_writer(Exporter& e, const Arguments& a, size_t at, const Sequences& query,
                                 const Sequences& key, int64_t heads, int64_t kv_heads, int64_t width, DType dtype) {
  const double scale = a[at].number;
  return {.e = e,
          .query = query,
          .key = key,
          .heads = heads,
          .kv_heads = kv_heads,
          .width = width,
          .scale = scale == 0 ? 1 / std::sqrt(static_cast<double>(width)) : scale,
          .causal = a[at + 1].size.constant() != 0,
          .window = a[at + 2].size.constant(),
          .bias = a[at + 4].value,
          .dtype = dtype};
}

constexpr size_t kLayoutArguments = 6;

/// Packed sequences of several lengths have fewer tokens than batch * the longest; with dynamic sizes trace() refuses
/// them.
void check_padded(Exporter& e, const Graph::Node& node, const Sequences& s) {
  const SymbolicSize& tokens = e.info(node.inputs[0]).shape.at(0);
  SymbolicSize product;
  if (s.batch.is_constant() && s.length.is_constant()) {
    product = s.batch.constant() * s.length.constant();
    if (!(product == tokens)) e.refuse("sequences of different lengths; give the model padded ones");
  }
}

/// Arguments: qkv [tokens, 3, heads, width], layout, options.
void write_self_attention(Exporter& e, const Graph::Node& node, const Arguments& a) {
  const Graph::Value& qkv = e.info(node.inputs[0]);
  const Sequences s = sequences_at(e, a, 1);
  check_padded(e, node, s);
  const int64_t heads = qkv.shape.at(2).constant(), width = qkv.shape.at(3).constant();
  const AttentionWriter writer = attention_writer(e, a, 1 + kLayoutArguments, s, s, heads, heads, width, qkv.dtype);
  const std::string parts =
      e.transpose(e.reshape(e.name(node.inputs[0]), {s.batch, s.length, 3, heads, width}), {2, 0, 3, 1, 4});
  std::array<std::string, 3> each;
  for (size_t i = 0; i < 3; ++i)
    each[i] =
        e.node("Gather", {parts, e.scalar(static_cast<double>(i), DType::kInt64)}, {{"axis", attribute(int64_t{0})}});
  e.set(node.outputs[0], writer.write(each[0], each[1], each[2], e.info(node.outputs[0]).shape));
}

/// Arguments: q, k, v [tokens, heads, width], layouts of queries and keys, options.
void write_attention(Exporter& e, const Graph::Node& node, const Arguments& a) {
  const Graph::Value &q = e.info(node.inputs[0]), &k = e.info(node.inputs[1]);
  const Sequences query = sequences_at(e, a, 3), key = sequences_at(e, a, 3 + kLayoutArguments);
  check_padded(e, node, query);
  const int64_t heads = q.shape.at(1).constant(), kv_heads = k.shape.at(1).constant(), width = q.shape.at(2).constant();
  const AttentionWriter writer =
      attention_writer(e, a, 3 + 2 * kLayoutArguments, query, key, heads, kv_heads, width, q.dtype);
  const auto of_keys = [&](int v) { return writer.repeated(heads_first(e, e.name(v), key, kv_heads, width)); };
  e.set(node.outputs[0], writer.write(heads_first(e, e.name(node.inputs[0]), query, heads, width),
                                      of_keys(node.inputs[1]), of_keys(node.inputs[2]), e.info(node.outputs[0]).shape));
}

/// Arguments: q [tokens, heads, width], kv [tokens, 2, heads, width], layouts of queries and keys, options.
void write_cross_attention(Exporter& e, const Graph::Node& node, const Arguments& a) {
  const Graph::Value &q = e.info(node.inputs[0]), &kv = e.info(node.inputs[1]);
  const Sequences query = sequences_at(e, a, 2), key = sequences_at(e, a, 2 + kLayoutArguments);
  check_padded(e, node, query);
  const int64_t heads = q.shape.at(1).constant(), kv_heads = kv.shape.at(2).constant(),
                width = q.shape.at(2).constant();
  const AttentionWriter writer =
      attention_writer(e, a, 2 + 2 * kLayoutArguments, query, key, heads, kv_heads, width, q.dtype);
  const std::string parts =
      e.transpose(e.reshape(e.name(node.inputs[1]), {key.batch, key.length, 2, kv_heads, width}), {2, 0, 3, 1, 4});
  const auto part = [&](double i) {
    return writer.repeated(e.node("Gather", {parts, e.scalar(i, DType::kInt64)}, {{"axis", attribute(int64_t{0})}}));
  };
  const std::string k = part(0), v = part(1);
  e.set(node.outputs[0],
        writer.write(heads_first(e, e.name(node.inputs[0]), query, heads, width), k, v, e.info(node.outputs[0]).shape));
}

// ---- recurrent layers ----

/// Blocks of rows of a weight in another order.
Tensor reordered(const Tensor& weight, const std::vector<int64_t>& order) {
  const int64_t rows = weight.size(0) / static_cast<int64_t>(order.size());
  std::vector<Tensor> blocks;
  for (const int64_t block : order) blocks.push_back(weight.detach().narrow(0, block * rows, rows));
  return cat(blocks);
}

/// A weight of one direction with its blocks of rows in another order. One that is computed, as it is when the network
/// came from ONNX's order, is ordered in the file.
std::string weight(Exporter& e, int value, const std::vector<int64_t>& order) {
  const Graph::Value& info = e.info(value);
  if (info.constant.defined()) return e.constant(reordered(info.constant, order).unsqueeze(0));
  const int64_t rows = info.shape.at(0).constant() / static_cast<int64_t>(order.size());
  std::vector<int64_t> all;
  for (const int64_t block : order)
    for (int64_t row = 0; row < rows; ++row) all.push_back(block * rows + row);
  return e.node("Unsqueeze", {e.node("Gather", {e.name(value), e.integers(all)}, {{"axis", attribute(int64_t{0})}}),
                              e.integers({0})});
}

/// Arguments: kind, x, batch, steps, batch first, the weights (input, state, their biases, projection), the initial
/// states, reverse.
void write_recurrent(Exporter& e, const Graph::Node& node, const Arguments& a) {
  const auto kind = static_cast<RecurrentKind>(constant_of(e, a[0]));
  if (a[2].kind != GraphArgument::Kind::kInteger)
    e.refuse("sequences of different lengths; give the model padded ones");
  const SymbolicSize batch = a[2].size, steps = a[3].size;
  const bool batch_first = constant_of(e, a[4]) != 0, reverse = constant_of(e, a.back()) != 0;
  const Graph::Value& x = e.info(node.inputs[0]);
  if (node.inputs[5] >= 0) e.refuse("a projection of the state");
  // Ours: input, forget, cell, output; reset, update, new. ONNX: input, output, forget, cell; update, reset, new.
  const std::vector<int64_t> order = kind == RecurrentKind::kLstm  ? std::vector<int64_t>{0, 3, 1, 2}
                                     : kind == RecurrentKind::kGru ? std::vector<int64_t>{1, 0, 2}
                                                                   : std::vector<int64_t>{0};
  const NoGrad off;
  const Graph::Value& of_state = e.info(node.inputs[2]);
  const int64_t hidden = of_state.shape.at(1).constant(), width = x.shape.at(1).constant(),
                rows_of_weights = of_state.shape.at(0).constant();
  const std::string input = weight(e, node.inputs[1], order), state = weight(e, node.inputs[2], order);
  std::string biases;
  if (node.inputs[3] >= 0 || node.inputs[4] >= 0) {
    const Tensor none = zeros({rows_of_weights}, {.dtype = of_state.dtype});
    const auto constant = [&](int v) { return v < 0 ? none : e.info(v).constant; };
    const Tensor first = constant(node.inputs[3]), second = constant(node.inputs[4]);
    const auto row = [&](int v) { return v < 0 ? e.constant(none.unsqueeze(0)) : weight(e, v, order); };
    biases = first.defined() && second.defined()
                 ? e.constant(cat({reordered(first, order), reordered(second, order)}).unsqueeze(0))
                 : e.node("Concat", {row(node.inputs[3]), row(node.inputs[4])}, {{"axis", attribute(int64_t{1})}});
  }
  std::string rows = batch_first ? e.transpose(e.reshape(e.name(node.inputs[0]), {batch, steps, width}), {1, 0, 2})
                                 : e.reshape(e.name(node.inputs[0]), {steps, batch, width});
  Attributes attributes = {{"hidden_size", attribute(hidden)},
                           {"direction", attribute(std::string(reverse ? "reverse" : "forward"))}};
  const bool is_lstm = kind == RecurrentKind::kLstm;
  if (kind == RecurrentKind::kGru) attributes["linear_before_reset"] = attribute(int64_t{1});
  if (kind == RecurrentKind::kRelu) {
    Attribute relu{.kind = AttributeKind::kStrings};
    relu.strings = {"Relu"};
    attributes["activations"] = relu;
  }
  const auto initial = [&](int v) { return v < 0 ? std::string() : e.node("Unsqueeze", {e.name(v), e.integers({0})}); };
  const std::vector<std::string> results =
      e.nodes(is_lstm                       ? "LSTM"
              : kind == RecurrentKind::kGru ? "GRU"
                                            : "RNN",
              {rows, input, state, biases, "", initial(node.inputs[6]), is_lstm ? initial(node.inputs[7]) : ""},
              is_lstm ? 3 : 2, attributes);
  // [steps, 1, batch, hidden]
  const std::string all = e.node("Squeeze", {results[0], e.integers({1})});
  e.set(node.outputs[0], e.reshape(batch_first ? e.transpose(all, {1, 0, 2}) : all, e.info(node.outputs[0]).shape));
  for (size_t i = 1; i < results.size(); ++i)
    if (node.outputs[i] >= 0) e.set(node.outputs[i], e.node("Squeeze", {results[i], e.integers({0})}));
}

}  // namespace

void add_networks(ExportTable& table) {
  table["linear"] = write_linear;
  table["linear_pair"] = write_linear_pair;
  table["matmul"] = write_matmul;
  table["convolution"] = write_convolution;
  table["convolution_input"] = write_transposed;
  table["max_pool"] = write_pool;
  table["mean_pool"] = write_pool;
  table["batch_norm"] = write_batch_norm;
  table["layer_norm"] = write_norm_of_rows;
  table["rms_norm"] = write_norm_of_rows;
  table["group_norm"] = write_group_norm;
  table["self_attention"] = write_self_attention;
  table["attention"] = write_attention;
  table["cross_attention"] = write_cross_attention;
  table["recurrent"] = write_recurrent;
}

}  // namespace tern::onnx
