// LSTM, GRU, RNN and their cells: PyTorch's numbers in float32 and float64, packed and padded sequences, gradients, and
// what is refused.

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/checkpoint.h"
#include "tern/core/ops/gradcheck.h"
#include "tern/nn/nn.h"
#include "tern/optim/optim.h"
#include "tern/tests/core/state.h"
#include "tern/tests/nn/recurrent_golden.h"

namespace tern::test {
namespace {

using golden::flat;
using golden::Json;
using golden::Tensors;

TEST(Recurrent, HasPyTorchsNumbers) {
  for (const DType dtype : {float64, float32})
    golden::check("recurrent.json", "recurrent", dtype, [&](const std::string& op, const Json& params, Tensors& in) {
      return golden::run_recurrent(dtype, cpu, op, params, in);
    });
}

nn::Scope fresh_scope(DType dtype = float64) { return nn::Scope({.dtype = dtype, .generator = fresh_generator()}); }

/// Rows of a product may be rounded otherwise where there are more of them.
void expect_close(const Tensor& got, const Tensor& expected) {
  ASSERT_EQ(got.shape(), expected.shape());
  if (got.numel() == 0) return;
  EXPECT_LE(max(abs(got - expected)).item<double>(), 1e-12);
}

/// Random lengths, the longest of them `steps`.
std::vector<int64_t> fresh_lengths(int64_t batch, int64_t steps) {
  auto random = fresh_random();
  std::vector<int64_t> lengths(static_cast<size_t>(batch));
  for (int64_t& length : lengths) length = 1 + static_cast<int64_t>(random() % steps);
  if (batch > 0) lengths[random() % lengths.size()] = steps;
  return lengths;
}

/// body(module, kind's name) for one module of each kind.
template <class Body>
void for_each_module(int64_t in, int64_t hidden, const nn::RecurrentOptions& options, const Body& body) {
  auto lstm_options = golden::with_options<nn::LSTMOptions>(options);
  nn::LSTM lstm(fresh_scope(), in, hidden, lstm_options);
  lstm_options.proj_size = hidden - 1;
  nn::LSTM projected(fresh_scope(), in, hidden, lstm_options);
  nn::GRU gru(fresh_scope(), in, hidden, options);
  nn::RNN rnn(fresh_scope(), in, hidden, golden::with_options<nn::RNNOptions>(options));
  body(lstm, "lstm");
  body(projected, "projected");
  body(gru, "gru");
  body(rnn, "rnn");
}

/// Options are named in one order, whatever the kind.
TEST(Recurrent, OptionsAreNamed) {
  const nn::GRU gru(fresh_scope(), 4, 5, {.layers = 2, .bidirectional = true, .batch_first = true, .bias = false});
  const nn::LSTM lstm(fresh_scope(), 4, 5, {.layers = 2, .bidirectional = true, .dropout = 0.5, .proj_size = 3});
  const nn::RNN rnn(fresh_scope(), 4, 5, {.layers = 2, .nonlinearity = nn::RecurrentActivation::kRelu});
  EXPECT_EQ(gru.parameters().size(), 8u);
  EXPECT_EQ(lstm.parameters().size(), 20u);
  EXPECT_EQ(rnn.parameters().size(), 8u);
  const Tensor x = ones({3, 2, 4}, {.dtype = float64});
  EXPECT_EQ(gru.forward(x).state.hidden.shape(), (Shape{4, 3, 5}));
  EXPECT_EQ(lstm.forward(x).output.shape(), (Shape{3, 2, 6}));
  EXPECT_GE(min(rnn.forward(x).output).item<double>(), 0);
}

/// Braces are an initial state, as PyTorch's tuple; numbers in braces are lengths.
TEST(Recurrent, BracesAreAnInitialState) {
  Generator generator = fresh_generator();
  const nn::GRU gru(fresh_scope(), 4, 5);
  const nn::LSTM lstm(fresh_scope(), 4, 5);
  const TensorOptions wide = {.dtype = float64};
  const Tensor x = randn({3, 2, 4}, generator, wide), h0 = randn({1, 2, 5}, generator, wide);
  const Tensor c0 = randn({1, 2, 5}, generator, wide);
  const auto got = [](const nn::RecurrentOutput& found) { return found.output.to_vector<double>(); };
  EXPECT_EQ(got(gru.forward(x, {h0})), got(gru.forward(x, h0)));
  EXPECT_EQ(got(gru.forward(x, {})), got(gru.forward(x)));
  EXPECT_NE(got(gru.forward(x, {h0})), got(gru.forward(x)));
  EXPECT_EQ(got(lstm.forward(x, {h0, c0})), got(lstm.forward(x, nn::RecurrentState(h0, c0))));
  EXPECT_NE(got(lstm.forward(x, {h0, c0})), got(lstm.forward(x, {h0})));
  EXPECT_EQ(got(lstm.forward(x, {3, 3}, {h0, c0})), got(lstm.forward(x, {h0, c0})));
  expect_error([&] { gru.forward(x, {h0, c0, c0}); }, {"the initial state is {state}", "got 3 tensors"});
}

/// Padded with lengths, packed by offsets, and each sequence alone.
TEST(Recurrent, PackedIsPaddedIsOneByOne) {
  Generator generator = fresh_generator();
  const std::vector<int64_t> lengths = fresh_lengths(5, 6);
  for (const bool batch_first : {false, true}) {
    const Tensor x = randn(batch_first ? Shape{5, 6, 3} : Shape{6, 5, 3}, generator, {.dtype = float64});
    for_each_module(3, 4, {.layers = 2, .bidirectional = true, .batch_first = batch_first},
                    [&](nn::RecurrentLayers& module, const char* name) {
                      SCOPED_TRACE(name);
                      const nn::RecurrentOutput padded = module.forward(x, lengths);
                      const nn::PackedSequence packed = nn::pack_padded_sequence(x, lengths, batch_first);
                      const nn::RecurrentOutput found = module.forward(packed.data, packed.layout);
                      expect_close(found.state.hidden, padded.state.hidden);
                      expect_close(nn::pad_packed_sequence({found.output, packed.layout}, batch_first), padded.output);
                      for (int64_t b = 0; b < 5; ++b) {
                        const Tensor own = (batch_first ? x[b] : x.select(1, b)).slice(0, 0, lengths[b]);
                        const nn::RecurrentOutput alone = module.forward(own);
                        const Tensor row = batch_first ? padded.output[b] : padded.output.select(1, b);
                        expect_close(alone.output, row.slice(0, 0, lengths[b]));
                        expect_equal(row.slice(0, lengths[b]), zeros_like(row.slice(0, lengths[b])));
                        expect_close(alone.state.hidden, padded.state.hidden.select(1, b));
                        if (alone.state.cell.defined()) expect_close(alone.state.cell, padded.state.cell.select(1, b));
                      }
                    });
  }
}

/// The state carries a sequence over a cut.
TEST(Recurrent, ChunksAreTheWhole) {
  Generator generator = fresh_generator();
  const Tensor x = randn({9, 4, 3}, generator, {.dtype = float64});
  for_each_module(3, 5, {.layers = 2}, [&](nn::RecurrentLayers& module, const char* name) {
    SCOPED_TRACE(name);
    const nn::RecurrentOutput whole = module.forward(x);
    const nn::RecurrentOutput first = module.forward(x.slice(0, 0, 4));
    const nn::RecurrentOutput second = module.forward(x.slice(0, 4), first.state);
    expect_close(cat({first.output, second.output}), whole.output);
    expect_close(second.state.hidden, whole.state.hidden);
  });
}

/// The loop by hand with the layer's weights.
TEST(Recurrent, CellsAreTheLayer) {
  Generator generator = fresh_generator();
  const Tensor x = randn({4, 3, 2}, generator, {.dtype = float64});
  const auto weights_of = [](nn::Module& layer) {
    StateView state;
    for (const NamedTensor& entry : layer.state_dict())
      state.push_back({entry.name.substr(0, entry.name.size() - 3), entry.tensor});  // without _l0
    return state;
  };
  nn::LSTM lstm(fresh_scope(), 2, 5);
  nn::LSTMCell lstm_cell(fresh_scope(), 2, 5);
  lstm_cell.load_state_dict(weights_of(lstm));
  nn::RecurrentState state;
  for (const Tensor& step : x.unbind()) state = lstm_cell.forward(step, state);
  expect_close(state.hidden, lstm.forward(x).state.hidden[0]);
  expect_close(state.cell, lstm.forward(x).state.cell[0]);
  nn::GRU gru(fresh_scope(), 2, 5);
  nn::GRUCell gru_cell(fresh_scope(), 2, 5);
  gru_cell.load_state_dict(weights_of(gru));
  Tensor hidden;
  for (const Tensor& step : x.unbind()) hidden = gru_cell.forward(step, hidden);
  expect_close(hidden, gru.forward(x).state.hidden[0]);
}

/// A step of `cell` and of its weights without the cell's packed copies, and the gradients by the weights: equal bits.
template <class Cell>
void expect_unpacked(RecurrentKind kind, const Cell& cell, const Tensor& x, const Tensor& state, bool records) {
  std::vector<Tensor> weights;  // weight_ih, weight_hh, bias_ih, bias_hh
  for (const NamedTensor& parameter : cell.parameters()) weights.push_back(parameter.tensor);
  ASSERT_EQ(weights.size(), 4u);
  const auto unpacked = [&](const Tensor& from) {
    const auto layout = RecurrentLayout::padded(x.size(0), 1, true);
    return recurrent(kind, x, layout, {weights[0], weights[1], weights[2], weights[3]}, from).last;
  };
  const auto packed = [&](const Tensor& from) { return nn::RecurrentState(cell.forward(x, from)).hidden; };
  GradMode mode(records);
  const Tensor got = packed(packed(state)), expected = unpacked(unpacked(state));
  expect_equal(got, expected);
  if (records) expect_equal(grad({sum(got * got)}, weights), grad({sum(expected * expected)}, weights));
}

/// The packed copy of a cell's weight is of the weight as it is: after an optimizer's step, an in-place op, new values
/// and another dtype, with gradients and without.
TEST(Recurrent, CellsSeeThatTheirWeightChanged) {
  const auto check = [](RecurrentKind kind, auto cell, auto again) {
    Generator generator = fresh_generator();
    Tensor x = randn({5, 6}, generator), state = randn({5, 19}, generator);
    const auto expect_both = [&](const char* what) {
      SCOPED_TRACE(what);
      for (const bool records : {true, false, true}) expect_unpacked(kind, *cell, x, state, records);
    };
    expect_both("new");
    optim::SGD optimizer(cell->parameters(), {.lr = 0.5});
    for (int step = 0; step < 2; ++step) {
      sum(nn::RecurrentState(cell->forward(x, state)).hidden).backward();
      optimizer.step();
      expect_both("after a step");
    }
    {
      const NoGrad off;
      find(cell->state_dict(), "weight_hh").neg_();
    }
    expect_both("after an op");
    cell->load_state_dict(again->state_dict());
    expect_both("after loading");
    const nn::RecurrentState before(cell->forward(x, state));
    cell->to(float64);
    x = x.to(float64), state = state.to(float64);
    expect_both("in float64");
    EXPECT_TRUE(allclose(nn::RecurrentState(cell->forward(x, state)).hidden, before.hidden.to(float64), 1e-4, 1e-4));
  };
  const auto scope = [](uint64_t salt) { return nn::Scope({.generator = fresh_generator(salt)}); };
  check(RecurrentKind::kGru, std::make_unique<nn::GRUCell>(scope(1), 6, 19),
        std::make_unique<nn::GRUCell>(scope(2), 6, 19));
  check(RecurrentKind::kLstm, std::make_unique<nn::LSTMCell>(scope(1), 6, 19),
        std::make_unique<nn::LSTMCell>(scope(2), 6, 19));
  check(RecurrentKind::kTanh, std::make_unique<nn::RNNCell>(scope(1), 6, 19),
        std::make_unique<nn::RNNCell>(scope(2), 6, 19));
}

/// First and second derivatives by all inputs; the second is made of ops, so that both agree.
TEST(Recurrent, Derivatives) {
  Generator generator = fresh_generator();
  const TensorOptions options{.dtype = float64};
  const auto layout = RecurrentLayout::packed(fresh_lengths(3, 4));
  for (const RecurrentKind kind : {RecurrentKind::kLstm, RecurrentKind::kGru, RecurrentKind::kTanh})
    for (const bool reverse : {false, true})
      for (const bool projects : {false, true}) {
        if (projects && kind != RecurrentKind::kLstm) continue;
        const bool is_lstm = kind == RecurrentKind::kLstm;
        const int64_t width = kernels::gates_of(kind) * 3, state = projects ? 2 : 3;
        std::vector<Tensor> in = {randn({layout.rows(), 2}, generator, options),
                                  randn({width, 2}, generator, options),
                                  randn({width, state}, generator, options),
                                  randn({width}, generator, options),
                                  randn({width}, generator, options),
                                  randn({3, state}, generator, options)};
        if (is_lstm) in.push_back(randn({3, 3}, generator, options));
        if (projects) in.push_back(randn({2, 3}, generator, options));
        for (Tensor& t : in) t.set_requires_grad(true);
        const auto run = [&](const std::vector<Tensor>& t) {
          const RecurrentResult r = recurrent(kind, t[0], layout, {t[1], t[2], t[3], t[4], projects ? t[7] : Tensor()},
                                              t[5], is_lstm ? t[6] : Tensor(), reverse);
          return flat({r.output, r.last, r.last_cell});
        };
        expect_derivatives(run, in);
      }
}

/// A tensor that is two of the inputs has both gradients, in the second derivative too.
TEST(Recurrent, OneTensorAsBothStates) {
  Generator generator = fresh_generator();
  const nn::LSTM lstm(fresh_scope(), 2, 3);
  const Tensor x = randn({4, 2, 2}, generator, {.dtype = float64});
  const Tensor both = randn({1, 2, 3}, generator, {.dtype = float64}).set_requires_grad(true);
  const Tensor by_kernel = grad({sum(lstm.forward(x, {both, both}).output)}, {both})[0];
  const Tensor by_ops = grad({sum(lstm.forward(x, {both, both}).output)}, {both}, {.create_graph = true})[0];
  expect_close(by_ops, by_kernel);
}

TEST(Recurrent, EmptyBatchAndOneStep) {
  Generator generator = fresh_generator();
  for_each_module(3, 4, {.layers = 2, .bidirectional = true}, [&](nn::RecurrentLayers& module, const char* name) {
    SCOPED_TRACE(name);
    const Tensor none = zeros({5, 0, 3}, {.dtype = float64}).set_requires_grad(true);
    const nn::RecurrentOutput found = module.forward(none);
    EXPECT_EQ(found.output.shape(), (Shape{5, 0, module.output_size()}));
    EXPECT_EQ(found.state.hidden.shape(), (Shape{4, 0, module.output_size() / 2}));
    sum(found.output).backward();
    EXPECT_EQ(none.grad().shape(), none.shape());
    for (const NamedTensor& p : module.parameters()) expect_equal(p.tensor.grad(), zeros_like(p.tensor));
    const Tensor one = randn({1, 2, 3}, generator, {.dtype = float64});
    const nn::RecurrentOutput step = module.forward(one);
    expect_close(step.output[0], cat({step.state.hidden[2], step.state.hidden[3]}, 1));
  });
}

/// A recomputed layer keeps nothing and has the same gradients.
TEST(Recurrent, Recomputed) {
  Generator generator = fresh_generator();
  const Tensor x = randn({4, 3, 2}, generator, {.dtype = float64}).set_requires_grad(true);
  for_each_module(2, 3, {.layers = 2, .bidirectional = true}, [&](nn::RecurrentLayers& module, const char* name) {
    SCOPED_TRACE(name);
    const auto run = [&](const Tensor& in) { return module.forward(in).output; };
    expect_equal(grad({sum(square(checkpoint(run, x)))}, {x})[0], grad({sum(square(run(x)))}, {x})[0]);
  });
}

/// A view that is not contiguous is the same input.
TEST(Recurrent, Views) {
  Generator generator = fresh_generator();
  const Tensor x = randn({3, 5, 8}, generator, {.dtype = float64}).transpose(0, 1).slice(2, 0, 8, 2);
  const Tensor h = randn({3, 2, 5}, generator, {.dtype = float64}).permute({1, 0, 2});
  const nn::GRU gru(fresh_scope(), 4, 5, {.layers = 2});
  expect_close(gru.forward(x, h).output, gru.forward(x.clone(), h.clone()).output);
}

TEST(Recurrent, DropoutIsBetweenLayersInTrainingAlone) {
  Generator generator = fresh_generator();
  const Tensor x = randn({4, 3, 5}, generator, {.dtype = float64});
  nn::LSTM two(fresh_scope(), 5, 16, {.layers = 2, .dropout = 0.5}), one(fresh_scope(), 5, 16, {.dropout = 0.5});
  const auto differs = [&](nn::LSTM& module) {
    return max(abs(module.forward(x).output - module.forward(x).output)).item<double>() > 0;
  };
  EXPECT_TRUE(differs(two));
  EXPECT_FALSE(differs(one));
  two.eval();
  EXPECT_FALSE(differs(two));
}

/// Gradients of fp32 weights in a region of 16 bits, near those without it.
/// With row keys a sequence's masks, and so its gradients, do not depend on the other sequences and their order.
TEST(Recurrent, DropoutIsKeyedByRows) {
  Generator generator = fresh_generator();
  const Tensor x = randn({7, 3}, generator, {.dtype = float64}), keys = arange(100, 107);
  for_each_module(3, 4, {.layers = 3, .bidirectional = true, .dropout = 0.5},
                  [&](nn::RecurrentLayers& module, const char* name) {
                    SCOPED_TRACE(name);
                    const auto run = [&](const Tensor& rows, const std::vector<int64_t>& lengths) {
                      module.generator().set_offset(9);
                      SequenceLayout layout = packed_layout(lengths);
                      layout.row_keys = keys.index({rows});
                      const Tensor in = x.index({rows}).set_requires_grad(true);
                      const Tensor y = module.forward(in, layout).output;
                      return std::pair(y.detach(), grad({sum(square(y))}, {in})[0]);
                    };
                    const auto whole = run(arange(0, 7), {4, 3});
                    const auto turned = run(cat({arange(4, 7), arange(0, 4)}), {3, 4});
                    const auto alone = run(arange(4, 7), {3});
                    expect_close(turned.first, cat({whole.first.slice(0, 4), whole.first.slice(0, 0, 4)}));
                    expect_close(turned.second, cat({whole.second.slice(0, 4), whole.second.slice(0, 0, 4)}));
                    expect_close(alone.first, whole.first.slice(0, 4));
                    expect_close(alone.second, whole.second.slice(0, 4));
                  });
}

TEST(Recurrent, Autocast) {
  Generator generator = fresh_generator();
  const Tensor x = randn({6, 3, 5}, generator);
  nn::LSTM lstm(fresh_scope(float32), 5, 8);
  const auto run = [&](bool cast) {
    for (const NamedTensor& p : lstm.parameters()) Tensor(p.tensor).set_grad({});
    Autocast region({}, cast ? bfloat16 : float32);
    const Tensor y = lstm.forward(x).output;
    EXPECT_EQ(y.dtype(), cast ? bfloat16 : float32);
    sum(y.to(float32)).backward();
    std::vector<Tensor> grads;
    for (const NamedTensor& p : lstm.parameters()) grads.push_back(p.tensor.grad().flatten());
    return cat(grads);
  };
  const Tensor exact = run(false), rounded = run(true);
  EXPECT_EQ(rounded.dtype(), float32);
  EXPECT_LE(golden::norm_of((rounded - exact).to_vector<double>()), 0.1 * golden::norm_of(exact.to_vector<double>()));
}

TEST(Recurrent, NamesAndInitialValues) {
  const nn::LSTM lstm(fresh_scope(float32), 3, 16, {.layers = 2, .bidirectional = true, .proj_size = 4});
  EXPECT_EQ(names_of(lstm.state_dict()),
            (std::vector<std::string>{
                "weight_ih_l0",         "weight_hh_l0",         "bias_ih_l0",           "bias_hh_l0",
                "weight_hr_l0",         "weight_ih_l0_reverse", "weight_hh_l0_reverse", "bias_ih_l0_reverse",
                "bias_hh_l0_reverse",   "weight_hr_l0_reverse", "weight_ih_l1",         "weight_hh_l1",
                "bias_ih_l1",           "bias_hh_l1",           "weight_hr_l1",         "weight_ih_l1_reverse",
                "weight_hh_l1_reverse", "bias_ih_l1_reverse",   "bias_hh_l1_reverse",   "weight_hr_l1_reverse"}));
  for (const NamedTensor& p : lstm.parameters()) {
    EXPECT_LE(max(abs(p.tensor)).item<double>(), 0.25) << p.name;
    EXPECT_GT(max(abs(p.tensor)).item<double>(), 0.2) << p.name;
  }
}

TEST(Recurrent, Errors) {
  const auto s = [] { return fresh_scope(float32); };
  expect_error([&] { nn::LSTM(s(), 0, 3); }, {"nn::LSTM: sizes must be > 0, got input 0"});
  expect_error([&] { nn::LSTM(s(), 2, 3, {.proj_size = 3}); }, {"proj_size must be in [0, 3), below hidden, got 3"});
  expect_error([&] { nn::GRU(s(), 2, 3, {.layers = 0}); }, {"layers must be > 0, got 0"});
  expect_error([&] { nn::RNN(s(), 2, 3, {.dropout = 1.5}); }, {"dropout must be in [0, 1], got 1.5"});
  const nn::GRU gru(s(), 2, 3, {.layers = 2});
  const Tensor x = ones({5, 4, 2});
  expect_error([&] { gru.forward(ones({5, 4, 3})); }, {"expected x [steps, batch, 2] or [steps, 2], got [5, 4, 3]"});
  expect_error([&] { gru.forward(ones({5, 3, 3}), {5, 2, 1}); }, {"padded sequences [steps, batch, 2], got [5, 3, 3]"});
  expect_error(
      [&] {
        gru.forward(ones({5, 2}), ones({2, 1, 3}));
      },
      {"must be [2, 3] (layers * directions, width; x has no batch), got [2, 1, 3]"});
  expect_error([&] { gru.forward(x.to(int64)); }, {"x must be of a floating dtype, got int64"});
  expect_error([&] { gru.forward(ones({5})); }, {"expected x [steps, batch, 2] or [steps, 2], got [5]"});
  expect_error([&] { gru.forward(x.slice(0, 0, 0)); }, {"at least one step, got batch 4 and 0 steps"});
  expect_error([&] { gru.forward(x, {1, 2, 3}); }, {"expected 4 lengths", "got 3"});
  expect_error([&] { gru.forward(x, {1, 0, 3, 4}); }, {"length 1 must be in [1, 5], got 0"});
  expect_error([&] { gru.forward(x, {1, 2, 3, 6}); }, {"length 3 must be in [1, 5], got 6"});
  expect_error([&] { gru.forward(x, ones({2, 4, 2})); }, {"must be [2, 4, 3]", "got [2, 4, 2]"});
  expect_error([&] { gru.forward(x, {Tensor(), ones({2, 4, 3})}); }, {"only nn::LSTM has cells"});
  expect_error([&] { gru.forward(x.to(float64)); }, {"x is float64 and a weight or state float32"});
  expect_error([&] { gru.forward(x, ones({2, 4, 3}, {.dtype = float64})); }, {"a weight or state float64"});
  const Tensor tokens = ones({6, 2});
  const auto offsets = [](const std::vector<int32_t>& at) {
    SequenceLayout layout;
    layout.offsets = from_vector(at, {static_cast<int64_t>(at.size())});
    return layout;
  };
  expect_error([&] { gru.forward(tokens, offsets({0, 4, 3, 6})); }, {"offsets must ascend", "got 4 and 3"});
  expect_error([&] { gru.forward(tokens, offsets({0, 4, 4, 6})); }, {"leave empty sequences out"});
  expect_error([&] { gru.forward(tokens, offsets({1, 6})); }, {"must begin with 0, got 1"});
  expect_error([&] { gru.forward(tokens, offsets({0, 5})); }, {"x has 6 rows, and the layout's sequences 5"});
  expect_error([&] { gru.forward(tokens, offsets({0, 7})); }, {"the last offset must be the number of rows"});
  expect_error([&] { gru.forward(tokens, padded_layout(2, 3, ones({2, 3}, {.dtype = boolean}))); }, {"key_mask"});
  const nn::LSTMCell cell(s(), 2, 3);
  expect_error([&] { cell.forward(ones({4, 3})); }, {"nn::LSTMCell: expected x [batch, 2] or [2], got [4, 3]"});
  expect_error([&] { cell.forward(ones({4, 2}), ones({3, 3})); }, {"the state must be [4, 3], got [3, 3]"});
  expect_error(
      [&] {
        nn::pad_packed_sequence({tokens, offsets({0, 4, 6})}, false, 0, 3);
      },
      {"steps must be at least 4"});
  expect_error([&] { nn::pad_packed_sequence({tokens, offsets({0, 4})}); }, {"must have 4 rows"});
  const auto layout = RecurrentLayout::packed({4, 2});
  const auto layer = [&](const Tensor& input, const Tensor& state, const Tensor& projection = {}) {
    recurrent(RecurrentKind::kGru, tokens, layout, {input, state, {}, {}, projection});
  };
  expect_error([&] { gru.forward(tokens, RecurrentLayout()); }, {"the layout is empty"});
  expect_error([&] { layer(ones({7, 2}), ones({6, 2})); }, {"must be [3 * hidden, in]"});
  expect_error([&] { layer(ones({6, 2}), ones({6, 3})); }, {"the state's weight must be [6, 2]"});
  expect_error([&] { layer(ones({6, 2}), ones({6, 2}), ones({1, 2})); }, {"only LSTM may have a projection"});
}

}  // namespace
}  // namespace tern::test
