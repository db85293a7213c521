// Models written as ONNX files and read again: the outputs are those of the model. core/... node tests of ONNX are the
// reference of the reader. Where TERN_PYTHON names a Python with onnx and onnxruntime, they read the files too.

#include "tern/models/onnx/export.h"

#include <cstdlib>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/io/npy.h"
#include "tern/core/ops/ops.h"
#include "tern/data/samples/token_batch.h"
#include "tern/models/families.h"
#include "tern/models/model_graph.h"
#include "tern/models/onnx/onnx.h"
#include "tern/nn/nn.h"
#include "tern/tests/core/fresh.h"
#include "tern/tests/errors.h"
#include "tern/tests/places.h"
#include "tern/tests/support/sanitizer.h"
#include "tern/tests/support/temporary_folder.h"

namespace tern::models {
namespace {

using Tensors = std::vector<Tensor>;

void expect_near(const Tensor& found, const Tensor& expected, double relative) {
  ASSERT_EQ(found.shape(), expected.shape());
  ASSERT_EQ(found.dtype(), expected.dtype());
  const std::vector<double> a = found.to_vector<double>(), b = expected.to_vector<double>();
  double most = 1e-6;
  for (const double v : b) most = std::max(most, std::abs(v));
  for (size_t i = 0; i < a.size(); ++i) ASSERT_TRUE(std::abs(a[i] - b[i]) <= relative * most) << a[i] << " " << b[i];
}

class OnnxExport : public testing::Test {
 protected:
  /// Writes the graph of fn with each opset, reads it, and compares outputs for `others`.
  void check(const TracedFunction& fn, const Tensors& inputs, const TraceOptions& options,
             const std::vector<Tensors>& others) {
    check(trace(fn, inputs, options), fn, others);
  }
  void check(const Graph& graph, const TracedFunction& fn, const std::vector<Tensors>& others) {
    constexpr double relative = 1e-5;
    for (const int64_t opset : {17, 20, 23}) {
      SCOPED_TRACE(opset);
      const std::string name = std::to_string(files_++), path = folder_ / (name + ".onnx");
      onnx::save(graph, path, {.opset = opset});
      const auto model = onnx::load(path);
      keep(name, others.back(), fn(others.back()));
      const NoGrad off;
      for (const Tensors& in : others) {
        const Tensors found = model->forward(in), expected = fn(in);
        ASSERT_EQ(found.size(), expected.size());
        for (size_t i = 0; i < found.size(); ++i) expect_near(found[i], expected[i], relative);
      }
    }
  }
  /// For Python: what a file's model is run on, and what it must give.
  void keep(const std::string& name, const Tensors& inputs, const Tensors& outputs) {
    const NoGrad off;
    for (size_t i = 0; i < inputs.size(); ++i)
      save_npy(inputs[i], folder_ / (name + ".in" + std::to_string(i) + ".npy"));
    for (size_t i = 0; i < outputs.size(); ++i)
      save_npy(outputs[i].detach(), folder_ / (name + ".out" + std::to_string(i) + ".npy"));
  }

  /// In a Python with onnx and onnxruntime, which TERN_PYTHON names, they read the files too.
  void TearDown() override {
    const char* const python = std::getenv("TERN_PYTHON");
    if (!python || files_ == 0 || test::kSanitized) return;
    const std::string command = "'" + std::string(python) + "' '" + test::source_dir() +
                                "/tests/models/python/check_onnx.py' '" + folder_.path().string() + "' 1e-4 2>&1";
    EXPECT_EQ(std::system(command.c_str()), 0);
  }

  int files_ = 0;
  test::TemporaryFolder folder_;
  Generator generator_ = test::fresh_generator();
};

TEST_F(OnnxExport, EveryFamily) {
  for (const ModelFamily& family : model_families()) {
    for (const ModelPreset& preset : family.presets) {
      const std::string name = preset.name;
      const bool smallest = name == family.presets.front().name && family.name != "cnn";
      if (!smallest && name != "mobilenet_v3_small" && name != "quick") continue;
      SCOPED_TRACE(family.name + " " + name);
      BuildOptions options;
      options.labels = {"a", "b", "c"};
      options.image_size = 32;
      const std::unique_ptr<Model> model = family.make(name, options);
      test::expect_contains(test::error_of([&] { graph_of(*model); }), {"training mode", "eval()"});
      model->eval();
      const Graph graph = graph_of(*model);
      if (const auto* text = dynamic_cast<const SequenceClassifier*>(model.get())) {
        std::vector<std::string> names;
        for (const int v : graph.inputs()) names.push_back(graph.values()[static_cast<size_t>(v)].name);
        std::vector<std::string> expected = {"input_ids", "attention_mask", "token_type_ids"};
        expected.resize(family.name == "bert" ? 3 : family.name == "lstm" ? 1 : 2);
        EXPECT_EQ(names, expected);
        const auto inputs = [&](int64_t batch, int64_t length) {
          Tensors in = {(rand({batch, length}, generator_) * 90 + 5).to(int64)};
          if (!text->reads_lengths()) {
            in.push_back((rand({batch, length}, generator_) > 0.4).to(int64));
            in[1].slice(1, 0, 1).fill_(1);
          }
          if (text->token_types() > 1) in.push_back((rand({batch, length}, generator_) > 0.5).to(int64));
          return in;
        };
        check(graph,
              [&](const Tensors& in) {
                return Tensors{text->forward(
                    data::padded_input(in[0], in.size() > 1 ? in[1] : Tensor(), in.size() > 2 ? in[2] : Tensor()))};
              },
              {inputs(3, 4), inputs(1, 1), inputs(2, 9)});
      } else {
        const auto& image = dynamic_cast<const ImageClassifier&>(*model);
        const int64_t side = image.input().size;
        const auto images = [&](int64_t n) {
          return Tensors{randn({n, image.input().channels, side, side}, generator_)};
        };
        check(graph, [&](const Tensors& in) { return Tensors{image.forward(in[0])}; }, {images(1), images(3)});
      }
    }
  }
}

TEST_F(OnnxExport, NumbersForEachToken) {
  for (const std::string name : {"bert_tagger", "bert_masked", "bert_model", "roberta_masked"}) {
    SCOPED_TRACE(name);
    const auto model = load_pretrained<TextModel>(test::source_dir() + "/tests/golden/bert/" + name);
    model->eval();
    const bool typed = model->token_types() > 1;
    const auto inputs = [&](int64_t batch, int64_t length) {
      Tensors in = {(rand({batch, length}, generator_) * 40 + 2).to(int64),
                    (rand({batch, length}, generator_) > 0.3).to(int64)};
      in[1].slice(1, 0, 1).fill_(1);
      if (typed) in.push_back((rand({batch, length}, generator_) > 0.5).to(int64));
      return in;
    };
    const auto fn = [&](const Tensors& in) {
      const data::TokenInput input = data::padded_input(in[0], in[1], typed ? in[2] : Tensor());
      Tensor rows;
      if (const auto* tagger = dynamic_cast<const TokenClassifier*>(model.get()))
        rows = tagger->forward(input);
      else if (const auto* words = dynamic_cast<const MaskedWordModel*>(model.get()))
        rows = words->forward(input);
      else
        rows = model->hidden_states(input);
      return Tensors{rows.reshape({in[0].size(0), in[0].size(1), -1})};
    };
    const Graph graph = graph_of(*model);
    EXPECT_EQ(graph.values()[static_cast<size_t>(graph.outputs()[0])].name,
              name == "bert_model" ? "last_hidden_state" : "logits");
    check(graph, fn, {inputs(3, 4), inputs(2, 9)});
  }
}

TEST_F(OnnxExport, WeightsAreParametersUnderTheirNames) {
  const nn::Linear layer(nn::Scope({.generator = generator_}), 3, 2);
  const Graph graph = trace([&](const Tensors& in) { return Tensors{layer.forward(in[0])}; }, {zeros({4, 3})},
                            {.names = layer.parameters(), .input_names = {"x"}, .output_names = {"y"}});
  const std::string path = folder_ / "linear.onnx";
  onnx::save(graph, path, {.metadata = {{"labels", "a,b"}}});
  const auto model = onnx::load(path);
  const StateView parameters = model->parameters();
  ASSERT_EQ(parameters.size(), 2u);
  expect_near(find(parameters, "weight"), find(layer.parameters(), "weight"), 0);
  expect_near(find(parameters, "bias"), find(layer.parameters(), "bias"), 0);
  EXPECT_EQ(model->metadata().at("labels"), "a,b");
  EXPECT_EQ(model->inputs()[0].name, "x");
  EXPECT_EQ(model->outputs()[0].name, "y");
}

TEST_F(OnnxExport, LargeWeightsAreBesideTheModel) {
  const Tensor w = randn({33, 21}, generator_), b = randn({21}, generator_);
  const auto fn = [&](const Tensors& in) { return Tensors{matmul(in[0], w) + b}; };
  const Graph graph = trace(fn, {zeros({2, 33})}, {.names = {{"w", w}, {"b", b}}});
  const std::string path = folder_ / "m.onnx";
  onnx::save(graph, path, {.most_bytes_inside = 100});
  const Tensor x = randn({2, 33}, generator_);
  expect_near(onnx::load(path)->forward(x), fn({x})[0], 1e-6);
}

TEST_F(OnnxExport, ElementwiseOps) {
  std::vector<std::function<Tensor(const Tensor&, const Tensor&)>> ops;
  for (Tensor (*const op)(const Tensor&) : std::initializer_list<Tensor (*)(const Tensor&)>{
           abs,  neg,   exp,  log1p,    sqrt,      rsqrt,       reciprocal, square,  expm1, exp2,
           log2, log10, erf,  erfc,     sin,       cos,         tan,        atan,    sinh,  cosh,
           tanh, asinh, sign, ceil,     floor,     round,       trunc,      sigmoid, relu,  silu,
           mish, selu,  gelu, softsign, hardswish, hardsigmoid, logsigmoid, relu6})
    ops.emplace_back([op](const Tensor& a, const Tensor&) { return op(a); });
  for (Tensor (*const op)(const Tensor&, const Tensor&) :
       std::initializer_list<Tensor (*)(const Tensor&, const Tensor&)>{
           add, sub, mul, div, maximum, minimum, pow, remainder, fmod, floor_divide, logaddexp, eq, ne, lt, le, gt, ge})
    ops.emplace_back(op);
  ops.emplace_back([](const Tensor& a, const Tensor&) { return leaky_relu(a - 1, 0.2); });
  ops.emplace_back([](const Tensor& a, const Tensor&) { return elu(a - 1, 0.7); });
  ops.emplace_back([](const Tensor& a, const Tensor&) { return celu(a - 1, 0.7); });
  ops.emplace_back([](const Tensor& a, const Tensor&) { return clamp(a, 0.6, 1.1); });
  ops.emplace_back([](const Tensor& a, const Tensor& b) { return where(a > b, a, 0.5); });
  ops.emplace_back([](const Tensor& a, const Tensor& b) { return lerp(a, b, 0.3); });
  ops.emplace_back([](const Tensor& a, const Tensor& b) { return nan_to_num(log(a - b), 7, 1, -2); });
  ops.emplace_back([](const Tensor& a, const Tensor& b) { return logical_not(isfinite(log(a - b))); });
  ops.emplace_back([](const Tensor& a, const Tensor& b) { return (a * 5).to(int64) / (b * 3).to(int32); });
  ops.emplace_back(
      [](const Tensor& a, const Tensor& b) { return floor_divide((a * -5).to(int64), (b * 3).to(int32)); });
  ops.emplace_back([](const Tensor& a, const Tensor& b) { return remainder((a * -5).to(int64), (b * 3).to(int64)); });
  const auto fn = [&](const Tensors& in) {
    Tensors results;
    for (const auto& op : ops) results.push_back(op(in[0], in[1]));
    return results;
  };
  const auto draw = [&] { return Tensors{rand({3, 5}, generator_) + 0.5, rand({5}, generator_) + 0.4}; };
  check(fn, draw(), {}, {draw()});
}

TEST_F(OnnxExport, ViewsReductionsAndIndexing) {
  const auto fn = [](const Tensors& in) {
    const Tensor& x = in[0];
    const int64_t n = x.size(0), m = x.size(1);
    const std::vector<Tensor> parts = x.split({1, 3}, 2);
    return Tensors{x.permute({2, 0, 1}),
                   x.slice(1, 1).reshape({n * (m - 1) * 4}),
                   x.slice(2, 3, 0, 1),
                   x.slice(0, 0, n - 1),
                   parts[1],
                   x.unbind(2)[1],
                   cat({x, x * 2}, 1),
                   x.expand({2, n, m, 4}),
                   sum(x, {0, 2}),
                   mean(x, {1}, true),
                   max(x, {1}),
                   min(x, {0, 1, 2}),
                   prod(x, {2}),
                   logsumexp(x, {2}),
                   var(x, {2}),
                   argmax(x, 2),
                   softmax(x, 1),
                   log_softmax(x, 2),
                   cumsum(x, 2),
                   topk(x, 2, 2).values,
                   sort(x, 1).values,
                   tril(x),
                   pad(x, {1, 2, 0, 1}, PadMode::kConstant, 3),
                   flip(x, {0, 1}),
                   index_select(x, 2, in[1]),
                   gather(x, 2, in[1].expand({n, m, 3})),
                   x.index({Slice{}, Slice{}, in[1]}),
                   full({n, 2}, 3) + arange(0, 2).to(float32),
                   ones_like(x),
                   any(x > 0.5, {1}),
                   all(x > 0.1),
                   vector_norm(x, 2, {2})};
  };
  const auto inputs = [&](int64_t n, int64_t m) {
    return Tensors{rand({n, m, 4}, generator_), from_vector<int64_t>({3, 0, 1}, {3})};
  };
  check(fn, inputs(2, 3), {.dynamic = {{0, 0, "n"}, {0, 1, "m"}}}, {inputs(3, 5), inputs(2, 2)});
}

TEST_F(OnnxExport, Layers) {
  const nn::Scope scope({.generator = generator_});
  const Tensor w1 = randn({6, 2, 3}, generator_), w2 = randn({4, 6, 3, 2}, generator_),
               wt = randn({4, 3, 3, 3}, generator_), bias = randn({6}, generator_), g = rand({4}, generator_);
  const auto fn = [&](const Tensors& in) {
    const Tensor a = conv1d(in[0], w1, bias, {.stride = 2, .padding = 1, .groups = 2});
    const Tensor b = conv2d(in[1], w2, {}, {.stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 2}});
    return Tensors{a,
                   b,
                   conv_transpose2d(b, wt, {}, {.stride = 2, .padding = 1, .output_padding = 1}),
                   max_pool2d(in[1], 3, {.stride = 2, .padding = 1, .ceil_mode = true}),
                   avg_pool2d(in[1], 2, {.stride = 1, .padding = 1, .count_include_pad = false}),
                   adaptive_avg_pool2d(in[1], 1),
                   group_norm(b, 2, g, g),
                   layer_norm(in[1], {}, {}, 1e-5),
                   rms_norm(in[1], g.slice(0, 0, 1).expand({9}).contiguous(), 1e-6)};
  };
  const auto inputs = [&](int64_t n) {
    return Tensors{randn({n, 4, 11}, generator_), randn({n, 6, 8, 9}, generator_)};
  };
  check(fn, inputs(2), {.dynamic = {{0, 0, "n"}, {1, 0, "n"}}}, {inputs(3), inputs(1)});
}

TEST_F(OnnxExport, ImagesOfAnotherSize) {
  const auto fn = [](const Tensors& in) {
    const Tensor& x = in[0];
    using Mode = InterpolateMode;
    Tensors results;
    for (const Mode mode : {Mode::kNearest, Mode::kNearestExact, Mode::kLinear, Mode::kCubic}) {
      results.push_back(interpolate(x, {.size = {11, 4}, .mode = mode}));
      results.push_back(interpolate(x, {.scale_factor = {1.7, 2.5}, .mode = mode}));
      results.push_back(interpolate(x, {.size = {3, 7}, .mode = mode}));
      results.push_back(interpolate(x, {.scale_factor = {2}, .mode = mode, .recompute_scale_factor = true}));
    }
    for (const Mode mode : {Mode::kLinear, Mode::kCubic})
      results.push_back(interpolate(x, {.size = {9, 1}, .mode = mode, .align_corners = true}));
    results.push_back(interpolate(x.channels_last(), {.size = {9, 3}, .mode = Mode::kLinear}));
    return results;
  };
  const auto x = [&](int64_t n) { return Tensors{randn({n, 2, 5, 7}, generator_)}; };
  check(fn, x(2), {.dynamic = {{0, 0, "n"}}}, {x(3), x(1)});
  const Graph filtered = trace(
      [](const Tensors& in) {
        return Tensors{interpolate(in[0], {.size = {3, 4}, .mode = InterpolateMode::kLinear, .antialias = true})};
      },
      x(1));
  test::expect_contains(test::error_of([&] { onnx::save(filtered, folder_ / "m.onnx", {.opset = 17}); }),
                        {"antialias", "opset 18"});
}

TEST_F(OnnxExport, SeveralIndices) {
  const auto fn = [](const Tensors& in) {
    const Tensor& x = in[0];
    const Slice all;
    return Tensors{x.index({in[1], in[2]}), x.index({all, in[1], in[2].reshape({2, 1})}), x.index({in[1], all, in[2]}),
                   x.index({in[1].to(int32), in[2], in[1]})};
  };
  const auto inputs = [&](int64_t n) {
    return Tensors{randn({n, 4, 3}, generator_), from_vector<int64_t>({1, 0}, {2}), from_vector<int64_t>({2, -1}, {2})};
  };
  check(fn, inputs(3), {.dynamic = {{0, 0, "n"}}}, {inputs(2), inputs(5)});
}

TEST_F(OnnxExport, RecurrentWeightsThatAreComputed) {
  const Tensor input = randn({12, 3}, generator_), state = randn({12, 4}, generator_), bias = randn({12}, generator_);
  const RecurrentLayout layout = RecurrentLayout::padded(2, 5, true);
  const auto fn = [&](const Tensors& in) {
    const Tensor& scale = in[1];
    return Tensors{recurrent(RecurrentKind::kGru, in[0].reshape({10, 3}), layout,
                             {.input = input * scale, .state = state, .input_bias = bias * scale, .state_bias = bias})
                       .output};
  };
  const auto inputs = [&] { return Tensors{randn({2, 5, 3}, generator_), rand({1}, generator_) + 0.5}; };
  check(fn, inputs(), {}, {inputs()});
}

TEST_F(OnnxExport, RecurrentLayers) {
  const nn::Scope scope({.generator = generator_});
  class All final : public nn::Module {
   public:
    explicit All(const nn::Scope& s)
        : Module(s),
          lstm_(sub("lstm"), 3, 4, {.bidirectional = true}),
          gru_(sub("gru"), 8, 5),
          rnn_(sub("rnn"), 5, 2) {}
    Tensor forward(const Tensor& x) const {
      const RecurrentLayout layout = RecurrentLayout::padded(x.size(0), x.size(1), true);
      const Tensor rows = x.reshape({x.size(0) * x.size(1), x.size(2)});
      return rnn_.forward(gru_.forward(lstm_.forward(rows, layout).output, layout).output, layout).output;
    }

   private:
    nn::LSTM lstm_;
    nn::GRU gru_;
    nn::RNN rnn_;
  };
  const All all(scope);
  const auto x = [&](int64_t n, int64_t t) { return Tensors{randn({n, t, 3}, generator_)}; };
  check([&](const Tensors& in) { return Tensors{all.forward(in[0])}; }, x(2, 4),
        {.names = all.parameters(), .dynamic = {{0, 0, "batch"}, {0, 1, "length"}}}, {x(3, 2), x(1, 5)});
}

TEST_F(OnnxExport, ErrorsNameTheOp) {
  const std::string path = folder_ / "m.onnx";
  const auto error = [&](const TracedFunction& fn, int64_t opset = 20) {
    const Graph graph = trace(fn, {ones({2, 3})});
    return test::error_of([&] { onnx::save(graph, path, {.opset = opset}); });
  };
  test::expect_contains(error([](const Tensors& in) { return Tensors{lgamma(in[0])}; }),
                        {"lgamma of float32 [2, 3]", "opset 20", "counterpart"});
  test::expect_contains(error([](const Tensors& in) { return in; }, 16), {"opset 16", "17 to 23"});
  test::expect_contains(error([](const Tensors& in) {
                          return Tensors{pad(in[0], {1, 1}, PadMode::kReflect)};
                        }),
                        {"rearrange", "reflects"});
  test::expect_contains(error([](const Tensors& in) { return Tensors{in[0]}; }), {"no error"});
  const Graph graph = trace([](const Tensors& in) { return Tensors{in[0] * 2}; }, {ones({2})});
  test::expect_contains(test::error_of([&] { onnx::save(graph, folder_ / "none/m.onnx"); }), {"none"});
}

}  // namespace
}  // namespace tern::models
