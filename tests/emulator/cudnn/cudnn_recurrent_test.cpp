// cuDNN's recurrent layers on the stand-in: descriptors, weights in cuDNN's order, passes and refusals, against loops
// in fp64 and their differences.

#if __has_include(<cudnn.h>)

#include <cudnn.h>

#include <cstdio>

#include "tern/kernels/cuda/cudnn/recurrent.h"
#include "tern/kernels/cuda/gemm/settings.h"
#include "tern/kernels/cuda/support/cudnn_info.h"
#include "tern/kernels/recurrent/sequence.h"
#include "tern/tests/emulator/cudnn/cudnn.h"
#include "tern/tests/emulator/messages.h"
#include "tern/tests/emulator/runtime/standin.h"
#include "tern/tests/kernels/contracts/recurrent.h"

namespace tern::kernels {
namespace {

using recurrent_test::Definition, recurrent_test::Inputs, recurrent_test::Numbers, recurrent_test::Results,
    recurrent_test::Sequences, recurrent_test::Sizes;
using standin::CudnnRefuses;

class StandinCudnnRecurrent : public OnTarget {
 protected:
  void SetUp() override {
    OnTarget::SetUp();
    cuda::set_cudnn_recurrent(true);
  }
  void TearDown() override {
    standin::set_cudnn_refuses(CudnnRefuses::kNothing);
    cuda::set_tf32(false);
    OnTarget::TearDown();
  }
};
INSTANTIATE_TEST_SUITE_P(, StandinCudnnRecurrent, testing::ValuesIn(device_targets()), name_of_target);

constexpr RecurrentKind kKinds[] = {RecurrentKind::kLstm, RecurrentKind::kGru, RecurrentKind::kTanh,
                                    RecurrentKind::kRelu};
constexpr SequenceRows kRows[] = {SequenceRows::kBatchFirst, SequenceRows::kStepsFirst, SequenceRows::kByStep};

uint64_t runs_of(const char* name) { return standin::counters().kernels_by_name[name]; }

/// Lengths and rows of the sequences, in the order in which a library is given them.
Sequences sequences_of(const Sizes& sizes, SequenceRows rows, std::mt19937_64& random) {
  Sequences s(sizes, random);
  std::stable_sort(s.rows.begin(), s.rows.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
  const bool by_step = rows == SequenceRows::kByStep;
  if (!by_step)
    for (auto& own : s.rows) own.resize(static_cast<size_t>(sizes.longest));
  s.total = 0;
  for (size_t t = 0; t < static_cast<size_t>(sizes.longest); ++t)
    for (size_t i = 0; i < s.rows.size() && t < s.rows[i].size(); ++i) {
      const auto step = static_cast<int64_t>(t), sequence = static_cast<int64_t>(i);
      s.rows[i][t] = rows == SequenceRows::kBatchFirst ? sequence * sizes.longest + step : s.total;
      ++s.total;
    }
  return s;
}

/// All that the results depend on, as numbers.
struct Numbered {
  Numbers x, input, state, input_bias, state_bias, projection, initial, initial_cell;
};

/// A layer with random tensors, what it gives, and its gradients.
struct Trial {
  RecurrentKind kind;
  SequenceRows rows;
  DType dtype, weights;  // weights: of their gradients
  int64_t in;
  Sizes sizes;
  bool with_input_bias;
  Sequences sequences;
  Definition definition;
  std::vector<int64_t> lengths;
  Array x, input, state, input_bias, state_bias, projection, initial, initial_cell;
  Array output, last, last_cell, doutput, dlast, dlast_cell;
  Array dx, dinput, dstate, dinput_bias, dstate_bias, dprojection, dinitial, dinitial_cell;
  bool with_gradients = true;  // of the output and the last states; else 0 comes in
  RecurrentSequenceSizes found;
  std::unique_ptr<Array> memory;  // what forward keeps
  bool computed = false;

  Trial(std::mt19937_64& random, RecurrentKind k, SequenceRows r, DType d, const Sizes& s, int64_t width,
        Order order = Order::kContiguous)
      : kind(k),
        rows(r),
        dtype(d),
        weights(random() % 2 ? float32 : d),
        in(width),
        sizes(s),
        with_input_bias(s.with_bias && random() % 4 != 0),
        sequences(sequences_of(s, r, random)),
        definition{k, s, sequences, INFINITY},
        x(random_array(random, d, {sequences.total, width}, -1, 1, order)),
        input(random_array(random, d, {gates(), width}, -bound(), bound(), Order::kMisaligned)),
        state(random_array(random, d, {gates(), states()}, -bound(), bound())),
        input_bias(random_array(random, d, {gates()}, -1, 1)),
        state_bias(random_array(random, d, {gates()}, -1, 1, Order::kMisaligned)),
        projection(random_array(random, d, {states(), s.hidden}, -bound(), bound())),
        initial(random_array(random, d, {s.batch, states()}, -1, 1)),
        initial_cell(random_array(random, d, {s.batch, s.hidden}, -1, 1)),
        output(d, {sequences.total, states()}),
        last(d, {s.batch, states()}),
        last_cell(d, {s.batch, s.hidden}),
        doutput(random_array(random, d, {sequences.total, states()}, -1, 1)),
        dlast(random_array(random, d, {s.batch, states()}, -1, 1)),
        dlast_cell(random_array(random, d, {s.batch, s.hidden}, -1, 1)),
        dx(d, x.shape()),
        dinput(weights, input.shape(), Order::kMisaligned),
        dstate(weights, state.shape()),
        dinput_bias(float32, {gates()}),
        dstate_bias(weights, {gates()}),
        dprojection(weights, projection.shape()),
        dinitial(d, initial.shape()),
        dinitial_cell(d, initial_cell.shape()) {
    for (const auto& own : sequences.rows) lengths.push_back(static_cast<int64_t>(own.size()));
  }
  Trial(const Trial&) = delete;

  int64_t gates() const { return gates_of(kind) * sizes.hidden; }
  int64_t states() const { return sizes.projected > 0 ? sizes.projected : sizes.hidden; }
  double bound() const { return 1 / std::sqrt(static_cast<double>(sizes.hidden)); }
  bool is_lstm() const { return kind == RecurrentKind::kLstm; }
  bool projects() const { return sizes.projected > 0; }

  RecurrentSequence sequence(Call& on) {
    RecurrentSequence s;
    s.kind = kind;
    s.rows = rows;
    s.lengths = lengths.data();
    s.batch = sizes.batch;
    s.x = on(std::as_const(x));
    s.input = on(std::as_const(input));
    s.state = on(std::as_const(state));
    s.input_bias = on.when(with_input_bias, std::as_const(input_bias));
    s.state_bias = on.when(sizes.with_bias, std::as_const(state_bias));
    s.projection = on.when(projects(), std::as_const(projection));
    s.initial = on.when(sizes.with_state, std::as_const(initial));
    s.initial_cell = on.when(sizes.with_state && is_lstm(), std::as_const(initial_cell));
    return s;
  }
  Trial& forward() {
    run_kernel([&](Call& on) {
      const RecurrentSequence s = sequence(on);
      found = recurrent_sequence_sizes(on.stream(), s, false);
      computed =
          found.taken && recurrent_sequence_forward(on.stream(), s, on(output), on(last), on.when(is_lstm(), last_cell),
                                                    nullptr, on.workspace(found.forward));
    });
    return *this;
  }
  Trial& train() {
    run_kernel([&](Call& on) {
      const RecurrentSequence s = sequence(on);
      found = recurrent_sequence_sizes(on.stream(), s, true);
      if (!found.taken) return;
      memory = std::make_unique<Array>(uint8, std::vector<int64_t>{found.kept});  // workspaces of a call are one
      void* const kept = on(*memory).data;
      computed = recurrent_sequence_forward(on.stream(), s, on(output), on(last), on.when(is_lstm(), last_cell), kept,
                                            on.workspace(found.forward));
      if (!computed) return;
      RecurrentSequenceGradients g;
      g.output = on.when(with_gradients, std::as_const(doutput));
      g.last = on.when(with_gradients, std::as_const(dlast));
      g.last_cell = on.when(with_gradients && is_lstm(), std::as_const(dlast_cell));
      g.x = on(dx);
      g.initial = on(dinitial);
      g.initial_cell = on.when(is_lstm(), dinitial_cell);
      g.input = on(dinput);
      g.state = on(dstate);
      g.input_bias = on.when(with_input_bias, dinput_bias);
      g.state_bias = on.when(sizes.with_bias, dstate_bias);
      g.projection = on.when(projects(), dprojection);
      recurrent_sequence_backward(on.stream(), s, on(std::as_const(output)), g, kept, on.workspace(found.backward));
    });
    return *this;
  }

  Numbered numbers() const {
    const auto of = [](bool present, const Array& a) { return present ? a.values() : Numbers(a.numel(), 0.0); };
    return {x.values(),
            input.values(),
            state.values(),
            of(with_input_bias, input_bias),
            of(sizes.with_bias, state_bias),
            of(projects(), projection),
            of(sizes.with_state, initial),
            of(sizes.with_state && is_lstm(), initial_cell)};
  }
  Results results(const Numbered& n) const {
    Inputs of{Numbers(sequences.total * gates()), n.state, n.state_bias, n.projection, n.initial, n.initial_cell};
    for (int64_t r = 0; r < sequences.total; ++r)
      for (int64_t g = 0; g < gates(); ++g) {
        double sum = n.input_bias[g];
        for (int64_t k = 0; k < in; ++k) sum += n.x[r * in + k] * n.input[g * in + k];
        of.gates[r * gates() + g] = sum;
      }
    return definition(of);
  }
  double loss(const Results& r) const {
    double sum = 0;
    for (int64_t i = 0; i < output.numel(); ++i) sum += r.output[i] * doutput.at(i);
    for (int64_t i = 0; i < last.numel(); ++i) sum += r.last[i] * dlast.at(i);
    for (int64_t i = 0; is_lstm() && i < last_cell.numel(); ++i) sum += r.last_cell[i] * dlast_cell.at(i);
    return sum;
  }
  /// Rounding errors of a step are passed on; they grow by little, since most slopes are below 1.
  double error() const {
    const double steps = 4 + static_cast<double>(sizes.longest);
    return 8 * steps * epsilon_of(dtype) + 40 * steps * epsilon_of(float32);
  }
  void expect_results() const {
    const Results expected = results(numbers());
    recurrent_test::expect_close("output", output.values(), expected.output, error());
    recurrent_test::expect_close("last", last.values(), expected.last, error());
    if (is_lstm()) recurrent_test::expect_close("cell", last_cell.values(), expected.last_cell, error());
  }
  void expect_gradients() const {
    Numbered n = numbers();
    definition.nearest = INFINITY;
    results(n);
    const double allowed = 4 * error() + 1e-7;
    if (definition.nearest < allowed + 1e-4) return;  // slopes of ReLU jump there
    const auto expect = [&](const char* name, const Array& found_here, Numbers Numbered::*member) {
      Numbers slopes((n.*member).size());
      for (size_t i = 0; i < slopes.size(); ++i) {
        const double at = (n.*member)[i], step = 1e-5;
        (n.*member)[i] = at + step;
        const double above = loss(results(n));
        (n.*member)[i] = at - step;
        slopes[i] = (above - loss(results(n))) / (2 * step);
        (n.*member)[i] = at;
      }
      recurrent_test::expect_close(name, found_here.values(), slopes, allowed);
    };
    expect("x", dx, &Numbered::x);
    expect("input", dinput, &Numbered::input);
    expect("state", dstate, &Numbered::state);
    if (with_input_bias) expect("input's bias", dinput_bias, &Numbered::input_bias);
    if (sizes.with_bias) expect("state's bias", dstate_bias, &Numbered::state_bias);
    if (projects()) expect("projection", dprojection, &Numbered::projection);
    expect("initial", dinitial, &Numbered::initial);
    if (is_lstm()) expect("initial cell", dinitial_cell, &Numbered::initial_cell);
  }
};

/// body(kind, rows, dtype, sizes with a projection for some LSTMs).
template <class Body>
void for_each_layer(std::mt19937_64& random, const Body& body) {
  for (const RecurrentKind kind : kKinds)
    for (const SequenceRows rows : kRows)
      for (const DType dtype : {float32, bfloat16, float16}) {
        Sizes sizes{1 + static_cast<int64_t>(random() % 5), 2 + static_cast<int64_t>(random() % 4),
                    2 + static_cast<int64_t>(random() % 4), 0};
        if (kind == RecurrentKind::kLstm && random() % 2) sizes.projected = sizes.hidden - 1;
        sizes.with_state = random() % 2;
        sizes.with_bias = random() % 4 != 0;
        SCOPED_TRACE(testing::Message() << "kind " << static_cast<int>(kind) << ", rows " << static_cast<int>(rows)
                                        << ", " << name_of(dtype) << ", batch " << sizes.batch << ", steps "
                                        << sizes.longest << ", hidden " << sizes.hidden << ", projected "
                                        << sizes.projected << (sizes.with_state ? ", state" : "")
                                        << (sizes.with_bias ? ", bias" : ""));
        body(kind, rows, dtype, sizes);
        if (testing::Test::HasFatalFailure()) return;
      }
}

TEST_P(StandinCudnnRecurrent, MatchesDefinition) {
  for_each_layer(random, [&](RecurrentKind kind, SequenceRows rows, DType dtype, const Sizes& sizes) {
    Trial t(random, kind, rows, dtype, sizes, 1 + static_cast<int64_t>(random() % 6));
    standin::reset_counters();
    ASSERT_TRUE(t.forward().computed) << standin::cudnn_message();
    EXPECT_EQ(runs_of("cudnnRNNForward"), 1u);
    EXPECT_EQ(standin::last_recurrent_call().layout,
              rows == SequenceRows::kByStep       ? CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED
              : rows == SequenceRows::kStepsFirst ? CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED
                                                  : CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED);
    EXPECT_FALSE(standin::last_recurrent_call().training);
    t.expect_results();
  });
}

TEST_P(StandinCudnnRecurrent, Gradients) {
  for_each_layer(random, [&](RecurrentKind kind, SequenceRows rows, DType dtype, const Sizes& sizes) {
    Trial t(random, kind, rows, dtype, sizes, 1 + static_cast<int64_t>(random() % 6));
    standin::reset_counters();
    ASSERT_TRUE(t.train().computed) << standin::cudnn_message();
    EXPECT_EQ(runs_of("cudnnRNNBackwardData_v8"), 1u);
    EXPECT_EQ(runs_of("cudnnRNNBackwardWeights_v8"), 1u);
    EXPECT_TRUE(standin::last_recurrent_call().training);
    t.expect_results();
    t.expect_gradients();
  });
}

TEST_P(StandinCudnnRecurrent, AbsentGradientsAreZero) {
  for (const RecurrentKind kind : kKinds) {
    Trial t(random, kind, SequenceRows::kByStep, float32, {3, 4, 5, 0, true, true}, 4);
    t.with_gradients = false;
    ASSERT_TRUE(t.train().computed);
    for (const Array* result : {&t.dx, &t.dinput, &t.dstate, &t.dstate_bias, &t.dinitial})
      EXPECT_EQ(result->values(), Numbers(result->numel(), 0.0));
  }
}

TEST_P(StandinCudnnRecurrent, Tf32OnlyOnRequest) {
  for (const bool fast : {true, false}) {
    cuda::set_tf32(fast);
    for (const DType dtype : {float32, bfloat16, float16}) {
      EXPECT_TRUE(
          Trial(random, RecurrentKind::kLstm, SequenceRows::kByStep, dtype, {2, 3, 4, 0}, 3).forward().computed);
      EXPECT_EQ(standin::last_recurrent_call().math, dtype != float32 ? CUDNN_TENSOR_OP_MATH
                                                     : fast           ? CUDNN_DEFAULT_MATH
                                                                      : CUDNN_FMA_MATH);
    }
  }
}

TEST_P(StandinCudnnRecurrent, LeavesOtherCallsToTern) {
  const Sizes good{2, 3, 4, 0};
  const auto trial = [&](DType dtype, const Sizes& sizes) {
    return std::make_unique<Trial>(random, RecurrentKind::kLstm, SequenceRows::kBatchFirst, dtype, sizes, 7);
  };
  EXPECT_TRUE(trial(float32, good)->forward().found.taken);
  EXPECT_FALSE(trial(float64, good)->forward().found.taken);
  EXPECT_FALSE(trial(float32, {2, 1, 4, 0})->forward().found.taken) << "one step";
  cuda::set_cudnn_recurrent(false);
  EXPECT_FALSE(trial(float32, good)->forward().found.taken);
  cuda::set_cudnn_recurrent(true);
  Trial misaligned(random, RecurrentKind::kLstm, SequenceRows::kBatchFirst, float32, good, 7, Order::kMisaligned);
  EXPECT_FALSE(misaligned.forward().found.taken);
  // Rows that an int does not count.
  RecurrentSequence large;
  const int64_t length = int64_t{1} << 28, wide[] = {length, 8}, strides[] = {8, 1};
  large.rows = SequenceRows::kBatchFirst;
  large.lengths = &length;
  large.batch = 1;
  large.x = ConstView(nullptr, float32, 2, wide, strides);
  const int64_t weight[] = {32, 8};
  large.input = large.state = ConstView(nullptr, float32, 2, weight, strides);
  EXPECT_FALSE(recurrent_sequence_sizes(target().stream(), large, false).taken);
}

TEST_P(StandinCudnnRecurrent, RefusalsGiveNoResult) {
  standin::set_cudnn_refuses(CudnnRefuses::kRecurrentLayers);
  Trial layer(random, RecurrentKind::kGru, SequenceRows::kByStep, bfloat16, {3, 5, 6, 0}, 11);
  EXPECT_FALSE(layer.train().found.taken);
  standin::set_cudnn_refuses(CudnnRefuses::kRecurrentCalls);
  Trial call(random, RecurrentKind::kGru, SequenceRows::kByStep, bfloat16, {3, 5, 7, 0}, 11);
  standin::reset_counters();
  EXPECT_TRUE(call.train().found.taken);
  EXPECT_FALSE(call.computed);
  EXPECT_EQ(runs_of("cudnnRNNForward"), 0u);
  standin::set_cudnn_refuses(CudnnRefuses::kNothing);
  EXPECT_TRUE(call.train().computed);
  call.expect_results();
}

TEST_P(StandinCudnnRecurrent, EveryCallMayFail) {
  int64_t width = 20;
  for (const auto& [name, n] : std::vector<std::pair<const char*, int>>{{"cudnnCreateRNNDescriptor", 1},
                                                                        {"cudnnSetRNNDescriptor_v8", 1},
                                                                        {"cudnnCreateRNNDataDescriptor", 2},
                                                                        {"cudnnSetRNNDataDescriptor", 1},
                                                                        {"cudnnSetRNNDataDescriptor", 2},
                                                                        {"cudnnCreateTensorDescriptor", 1},
                                                                        {"cudnnCreateTensorDescriptor", 3},
                                                                        {"cudnnSetTensorNdDescriptor", 2},
                                                                        {"cudnnGetTensorNdDescriptor", 3},
                                                                        {"cudnnGetRNNWeightSpaceSize", 1},
                                                                        {"cudnnGetRNNTempSpaceSizes", 2},
                                                                        {"cudnnGetRNNWeightParams", 4},
                                                                        {"cudnnSetStream", 2},
                                                                        {"cudaMemsetAsync", 1},
                                                                        {"cudnnRNNForward", 1},
                                                                        {"cudnnRNNBackwardData_v8", 1},
                                                                        {"cudnnRNNBackwardWeights_v8", 1}}) {
    SCOPED_TRACE(testing::Message() << name << " " << n);
    // A layer of which no plan is left from another case.
    Trial t(random, RecurrentKind::kLstm, SequenceRows::kByStep, float32, {2, 3, 4, 0, true, true}, ++width);
    const bool of_cudnn = std::string(name).starts_with("cudnn");
    standin::fail_call(name, n,
                       of_cudnn ? static_cast<int>(CUDNN_STATUS_INTERNAL_ERROR) : static_cast<int>(cudaErrorUnknown));
    const int before = standin::live_recurrent_descriptors();
    expect_error([&] { t.train(); },
                 {std::string(name).substr(of_cudnn ? 5 : 0), of_cudnn ? "CUDNN_STATUS_INTERNAL_ERROR" : "cudaError"});
    standin::clear_faults();
    const int after = standin::live_recurrent_descriptors();
    EXPECT_TRUE(after == before || after == before + 5) << before << " descriptors before, " << after << " after";
    ASSERT_TRUE(t.train().computed);  // the next call works
    t.expect_results();
    t.expect_gradients();
  }
}

TEST_P(StandinCudnnRecurrent, MemoryThatCudnnDoesNotGetIsAnOutOfMemoryError) {
  for (const char* name : {"cudnnSetRNNDataDescriptor", "cudnnRNNForward", "cudnnRNNBackwardData_v8"}) {
    Trial t(random, RecurrentKind::kLstm, SequenceRows::kByStep, float32, {2, 4, 4, 0}, 32);
    standin::fail_call(name, 1, CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED);
    EXPECT_THROW(t.train(), OutOfMemoryError) << name;
    standin::clear_faults();
    EXPECT_TRUE(t.train().computed);
  }
}

/// Batches of one size and longest sequence, and other lengths of the rest.
TEST_P(StandinCudnnRecurrent, EveryBatchHasItsLengths) {
  for (int n = 0; n < 8; ++n) {
    Trial t(random, RecurrentKind::kTanh, SequenceRows::kByStep, float32, {5, 6, 3, 0}, 31);
    ASSERT_TRUE(t.forward().computed);
    t.expect_results();
  }
}

/// Packed batches have other lengths in every step of a training.
TEST_P(StandinCudnnRecurrent, OldPlansAreForgotten) {
  for (int64_t n = 2; n < 600; ++n) {
    RecurrentSequence s;
    const int64_t lengths[] = {n, 1}, shape[] = {n + 1, 4}, strides[] = {4, 1}, weight[] = {16, 4};
    s.lengths = lengths;
    s.batch = 2;
    s.x = ConstView(nullptr, float32, 2, shape, strides);
    s.input = s.state = ConstView(nullptr, float32, 2, weight, strides);
    ASSERT_TRUE(recurrent_sequence_sizes(target().stream(), s, false).taken);
  }
  EXPECT_LE(standin::live_recurrent_descriptors(), 5 * 513);
}

TEST_P(StandinCudnnRecurrent, DISABLED_ComputesWithoutTheLibrary) {
  Trial t(random, RecurrentKind::kLstm, SequenceRows::kByStep, float32, {2, 3, 4, 0}, 3);
  std::printf("taken: %d\nreason: %s\n", t.forward().found.taken, cuda::cudnn_info().reason.c_str());
}

TEST_P(StandinCudnnRecurrent, WithoutTheLibraryTernComputes) {
  expect_contains(
      output_of("TERN_CUDNN=/nowhere/libcudnn.so.9", "StandinCudnnRecurrent.DISABLED_ComputesWithoutTheLibrary/*"),
      {"[  PASSED  ] 1 test", "taken: 0", "reason: /nowhere/libcudnn.so.9: cannot open"});
}

}  // namespace

/// Without the fixture's setting.
TEST(StandinCudnnRecurrentSetting, DISABLED_SaysWhetherItIsOn) { std::printf("on: %d\n", cuda::cudnn_recurrent()); }
TEST(StandinCudnnRecurrentSetting, IsOnWhereCublasHasOneBufferSize) {
  for (const auto& [value, on] : std::vector<std::pair<const char*, int>>{{":4096:8", 1},
                                                                          {":16:8", 1},
                                                                          {":4096:2", 1},
                                                                          {":4096:2:16:8", 0},
                                                                          {"", 0},
                                                                          {":0:0", 0},
                                                                          {"4096:8", 0},
                                                                          {":4096", 0},
                                                                          {":4096:8 ", 0}})
    expect_contains(output_of(std::string("CUBLAS_WORKSPACE_CONFIG='") + value + "'",
                              "StandinCudnnRecurrentSetting.DISABLED_SaysWhetherItIsOn"),
                    {"[  PASSED  ] 1 test", "on: " + std::to_string(on)});
  expect_contains(
      output_of("env -u CUBLAS_WORKSPACE_CONFIG", "StandinCudnnRecurrentSetting.DISABLED_SaysWhetherItIsOn"),
      {"[  PASSED  ] 1 test", "on: 0"});
}

}  // namespace tern::kernels

#endif
