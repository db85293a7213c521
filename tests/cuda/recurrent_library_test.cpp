// Recurrent layers by cuDNN in the engine: PyTorch's numbers, every order of rows, what is saved for backward, captured
// steps, and where Tern's own kernels compute instead.

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/captured_step.h"
#include "tern/core/autograd/checkpoint.h"
#include "tern/core/ops/recurrent/recurrent.h"
#include "tern/kernels/cuda/cudnn/recurrent.h"
#include "tern/kernels/cuda/support/cudnn_info.h"
#include "tern/nn/layers/recurrent.h"
#include "tern/tests/cuda/device_test.h"
#include "tern/tests/cuda/free_memory.h"
#include "tern/tests/nn/recurrent_golden.h"
#ifdef TERN_STANDIN
#include "tern/tests/emulator/cudnn/cudnn.h"
#include "tern/tests/emulator/runtime/standin.h"
#endif

namespace tern {
namespace {

using kernels::cuda::set_cudnn_recurrent;
using test::golden::flat;

class RecurrentLibrary : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (!kernels::cuda::cudnn_info().found) GTEST_SKIP() << "cuda: cuDNN was not found";
    before_ = kernels::cuda::cudnn_recurrent();
    set_cudnn_recurrent(true);
  }
  void TearDown() override { set_cudnn_recurrent(before_); }

 private:
  bool before_ = false;
};

/// Calls of cuDNN's passes while `body` runs, as far as they are counted: forward, of the data, of the weights.
void expect_passes([[maybe_unused]] const std::vector<uint64_t>& expected, const std::function<void()>& body) {
#ifdef TERN_STANDIN
  standin::reset_counters();
  body();
  auto runs = standin::counters().kernels_by_name;
  EXPECT_EQ((std::vector<uint64_t>{runs["cudnnRNNForward"], runs["cudnnRNNBackwardData_v8"],
                                   runs["cudnnRNNBackwardWeights_v8"]}),
            expected);
#else
  body();
#endif
}

/// body(kind, whether it has a projection).
template <class Body>
void for_each_kind(const Body& body) {
  for (const RecurrentKind kind :
       {RecurrentKind::kLstm, RecurrentKind::kGru, RecurrentKind::kTanh, RecurrentKind::kRelu})
    for (const bool projects : {false, true}) {
      if (projects && kind != RecurrentKind::kLstm) continue;
      SCOPED_TRACE(testing::Message() << "kind " << static_cast<int>(kind) << (projects ? ", projection" : ""));
      body(kind, projects);
    }
}

/// The tensors of a layer: x, weights, biases, the projection or nothing, the initial states.
struct LayerTensors {
  Tensors all;
  RecurrentKind kind;

  LayerTensors(RecurrentKind k, bool projects, int64_t rows, int64_t batch, DType dtype, Generator& generator,
               int64_t in = 5)
      : kind(k) {
    const int64_t hidden = 6, state = projects ? 4 : hidden, width = kernels::gates_of(k) * hidden;
    const auto draw = [&](const Shape& shape) {
      const Tensor values = mul(randn(shape, generator), 0.5).to(dtype);
      return k == RecurrentKind::kRelu ? abs(values) : values;  // away from 0, where its slope jumps
    };
    all = {draw({rows, in}), draw({width, in}), draw({width, state}), draw({width}), draw({width})};
    all.push_back(projects ? draw({state, hidden}) : Tensor());
    all.push_back(draw({batch, state}));
    all.push_back(k == RecurrentKind::kLstm ? draw({batch, hidden}) : Tensor());
  }
  RecurrentResult run(const Tensors& t, const RecurrentLayout& layout, bool reverse) const {
    return recurrent(kind, t[0], layout, {t[1], t[2], t[3], t[4], t[5]}, t[6], t[7], reverse);
  }
};

Tensor joined(const RecurrentResult& r) { return flat({r.output, r.last, r.last_cell}); }

TEST_F(RecurrentLibrary, HasPyTorchsNumbers) {
#ifdef TERN_STANDIN
  standin::reset_counters();
#endif
  test::golden::check("recurrent.json", "recurrent", float32,
                      [](const std::string& op, const test::golden::Json& params, test::golden::Tensors& in) {
                        return test::golden::run_recurrent(float32, kCuda, op, params, in);
                      });
#ifdef TERN_STANDIN
  EXPECT_GE(standin::counters().kernels_by_name["cudnnRNNBackwardWeights_v8"], 10u);
#endif
}

TEST_F(RecurrentLibrary, EveryOrderOfRowsIsTheCpusLayer) {
  const std::vector<std::function<RecurrentLayout(Device)>> layouts = {
      [](Device d) {
        return RecurrentLayout::packed({2, 5, 1, 3}, d);
      },
      [](Device d) {
        return RecurrentLayout::packed({3, 3, 3}, d);
      },
      [](Device d) { return RecurrentLayout::padded(3, 4, true, d); },
      [](Device d) { return RecurrentLayout::padded(4, 3, false, d); }};
  for (size_t l = 0; l < layouts.size(); ++l)
    for (const DType dtype : {float32, bfloat16, float16})
      for (const bool reverse : {false, true})
        for_each_kind([&](RecurrentKind kind, bool projects) {
          SCOPED_TRACE(testing::Message() << "layout " << l << ", " << name_of(dtype) << (reverse ? ", reverse" : ""));
          const RecurrentLayout own = layouts[l](cpu);
          const LayerTensors layer(kind, projects, own.rows(), own.batch(), dtype, generator);
          expect_passes({1, 1, 1}, [&] {
            expect_parity("recurrent", layer.all, 16, [&](const Tensors& in) {
              return joined(layer.run(in, layouts[l](in[0].device()), reverse));
            });
          });
        });
}

/// The results of a pass for a loss that depends on them, and the gradients of `in`.
Tensors results_and_gradients(const LayerTensors& layer, const RecurrentLayout& layout, Tensors in, bool create_graph) {
  Tensors wanted;
  for (Tensor& t : in)
    if (t.defined()) wanted.push_back(t = t.detach().clone().to(kCuda).set_requires_grad(true));
  const Tensor y = joined(layer.run(in, layout, true));
  Tensors results = grad({sum(mul(square(y), 0.5))}, wanted, {.create_graph = create_graph});
  if (create_graph) {
    Tensor squares = zeros({}, y.options());
    for (const Tensor& g : results) squares = add(squares, sum(square(g)));
    results = grad({squares}, wanted);
  }
  results.push_back(y.detach());
  return results;
}

TEST_F(RecurrentLibrary, SecondDerivativesAreThoseOfTheLayerMadeOfOps) {
  const RecurrentLayout layout = RecurrentLayout::packed({3, 1, 2}, kCuda);
  for_each_kind([&](RecurrentKind kind, bool projects) {
    const LayerTensors layer(kind, projects, 6, 3, float32, generator);
    const Tensors by_library = results_and_gradients(layer, layout, layer.all, true);
    set_cudnn_recurrent(false);
    const Tensors own = results_and_gradients(layer, layout, layer.all, true);
    set_cudnn_recurrent(true);
    for (size_t i = 0; i < own.size(); ++i) expect_same(own[i].to(cpu), by_library[i], 1e-4, "second derivative");
  });
}

/// What cuDNN keeps for its backward pass serves one pass alone.
TEST_F(RecurrentLibrary, AGraphCanBeRunAgain) {
  const RecurrentLayout layout = RecurrentLayout::packed({3, 1, 2}, kCuda);
  for_each_kind([&](RecurrentKind kind, bool projects) {
    const LayerTensors layer(kind, projects, 6, 3, float32, generator);
    Tensors in;
    for (const Tensor& t : layer.all)
      in.push_back(t.defined() ? t.detach().clone().to(kCuda).set_requires_grad(true) : t);
    const Tensor loss = sum(square(joined(layer.run(in, layout, false))));
    loss.backward({}, true);
    std::vector<Tensor> once;
    for (const Tensor& t : in)
      if (t.defined()) once.push_back(t.grad().detach().clone());
    loss.backward();
    size_t next = 0;
    for (const Tensor& t : in)
      if (t.defined()) test::expect_equal(t.grad(), mul(once[next++], 2.0));
  });
}

TEST_F(RecurrentLibrary, Recomputed) {
  const nn::LSTM lstm(nn::Scope({.device = kCuda, .generator = generator}), 5, 6, {.layers = 2, .bidirectional = true});
  const Tensor x = normal({4, 3, 5}, float32).to(kCuda).set_requires_grad(true);
  const auto run = [&](const Tensor& in) { return lstm.forward(in).output; };
  expect_passes({12, 8, 8}, [&] {
    test::expect_equal(grad({sum(square(checkpoint(run, x)))}, {x})[0], grad({sum(square(run(x)))}, {x})[0]);
  });
}

TEST_F(RecurrentLibrary, OnlyWantedGradientsAreComputed) {
  const RecurrentLayout layout = RecurrentLayout::padded(3, 2, true, kCuda);
  for_each_kind([&](RecurrentKind kind, bool projects) {
    const LayerTensors layer(kind, projects, 6, 3, float32, generator);
    const auto on_device = [&](size_t wanted) {
      Tensors in;
      for (size_t i = 0; i < layer.all.size(); ++i) {
        const Tensor& t = layer.all[i];
        in.push_back(t.defined() ? t.detach().clone().to(kCuda) : t);
        if (i == wanted) in.back().set_requires_grad(true);
      }
      return in;
    };
    Tensors all;
    for (const Tensor& t : layer.all)
      all.push_back(t.defined() ? t.detach().clone().to(kCuda).set_requires_grad(true) : t);
    sum(square(layer.run(all, layout, false).output)).backward();
    for (size_t i = 0; i < layer.all.size(); ++i) {
      if (!layer.all[i].defined()) continue;
      const Tensors in = on_device(i);
      const bool is_weight = i >= 1 && i <= 5;
      expect_passes({1, 1, is_weight ? uint64_t{1} : 0}, [&] {
        sum(square(layer.run(in, layout, false).output)).backward();
        in[i].grad().to(cpu);
      });
      test::expect_equal(in[i].grad(), all[i].grad());
    }
    expect_passes({1, 0, 0}, [&] { layer.run(on_device(99), layout, false).output.to(cpu); });
  });
}

/// Weights in fp32 within a region of 16 bits have gradients in fp32.
TEST_F(RecurrentLibrary, Autocast) {
  for (const bool bidirectional : {false, true}) {
    nn::LSTM lstm(nn::Scope({.device = kCuda, .generator = generator}), 5, 8,
                  {.bidirectional = bidirectional, .proj_size = 3});
    const Tensor x = normal({6, 3, 5}, float32).to(kCuda);
    const auto run = [&](bool library) {
      set_cudnn_recurrent(library);
      for (const NamedTensor& p : lstm.parameters()) Tensor(p.tensor).set_grad({});
      const Tensor y = autocast(kCuda, bfloat16, [&] { return lstm.forward(x).output; });
      EXPECT_EQ(y.dtype(), bfloat16);
      sum(square(y.to(float32))).backward();
      Tensors grads;
      for (const NamedTensor& p : lstm.parameters()) {
        EXPECT_EQ(p.tensor.grad().dtype(), float32);
        grads.push_back(p.tensor.grad());
      }
      return flat(grads);
    };
    const Tensor own = run(false), by_library = run(true);
    expect_same(own.to(cpu), by_library, 4 * device_tolerance(bfloat16), "gradients");
  }
}

TEST_F(RecurrentLibrary, OtherCallsAreTerns) {
  const RecurrentLayout layout = RecurrentLayout::packed({2, 3}, kCuda);
  const auto run = [&](DType dtype, const RecurrentLayout& of) {
    const LayerTensors layer(RecurrentKind::kLstm, false, of.rows(), of.batch(), dtype, generator);
    Tensors in;
    for (const Tensor& t : layer.all) in.push_back(t.defined() ? t.to(kCuda) : t);
    layer.run(in, of, false).output.to(cpu);
  };
  expect_passes({1, 0, 0}, [&] { run(float32, layout); });
  expect_passes({0, 0, 0}, [&] { run(float64, layout); });
  expect_passes({0, 0, 0}, [&] { run(float32, RecurrentLayout::padded(3, 1, true, kCuda)); });
  expect_passes({0, 0, 0}, [&] { run(float32, RecurrentLayout::padded(0, 4, true, kCuda)); });
  set_cudnn_recurrent(false);
  expect_passes({0, 0, 0}, [&] { run(float32, layout); });
}

/// A layer of two directions, captured after one call and replayed while other batches come and go.
TEST_F(RecurrentLibrary, CapturedSteps) {
  for (const bool batch_first : {true, false}) {
    nn::LSTMOptions options;
    options.layers = 2;
    options.batch_first = batch_first;
    options.bidirectional = true;
    const nn::LSTM lstm(nn::Scope({.device = kCuda, .generator = generator}), 5, 6, options);
    const auto results = [&](const Tensors& in) {
      const Tensor x = in[0].detach().clone().set_requires_grad(true);
      const Tensor y = lstm.forward(x).output;
      sum(square(y)).backward();
      return Tensors{y, x.grad()};
    };
    CapturedStep step(results, {.warmup = 1});
    for (int i = 0; i < 4; ++i) {
      const Tensor x = normal({3, 4, 5}, float32).to(kCuda);
      const Tensors captured = step({x}), expected = results({x});
      EXPECT_EQ(step.captured(), i > 0);
      for (size_t k = 0; k < expected.size(); ++k)
        EXPECT_EQ(captured[k].to_vector<double>(), expected[k].to_vector<double>()) << "step " << i << ", result " << k;
      for (int64_t n = 0; i == 1 && n < 600; ++n) {  // more than are remembered
        const LayerTensors layer(RecurrentKind::kTanh, false, n + 4, 2, float32, generator);
        layer.run({layer.all[0].to(kCuda), layer.all[1].to(kCuda), layer.all[2].to(kCuda), {}, {}, {}, {}, {}},
                  RecurrentLayout::packed({n + 3, 1}, kCuda), false);
      }
    }
  }
}

/// A layout that was first used in a recording which failed has no tensors of it.
TEST_F(RecurrentLibrary, AFailedRecordingLeavesTheLayoutAsItWas) {
  const auto first = RecurrentLayout::padded(3, 2, true, kCuda), second = RecurrentLayout::padded(3, 2, true, kCuda);
  const LayerTensors layer(RecurrentKind::kGru, false, 6, 3, float32, generator);
  Tensors in;
  for (const Tensor& t : layer.all) in.push_back(t.defined() ? t.to(kCuda) : t);
  int calls = 0;
  CapturedStep step(
      [&](const Tensors&) {
        const Tensor y = layer.run(in, calls == 0 ? first : second, true).output;
        if (calls++ > 0) y.to(cpu);
        return Tensors{y};
      },
      {.warmup = 1});
  const Tensor expected = step({in[0]})[0];
  expect_error([&] { step({in[0]}); }, {"copy between host and device"});
  test::expect_equal(layer.run(in, second, true).output, expected);
}

/// Twice the same, in every type; rows of one length, whose order is not changed, and others.
TEST_F(RecurrentLibrary, EveryRunGivesTheSameBits) {
  for (const DType dtype : {float32, bfloat16})
    for (const auto& layout :
         {RecurrentLayout::packed({7, 30, 2, 11}, kCuda), RecurrentLayout::padded(5, 10, false, kCuda)})
      for_each_kind([&](RecurrentKind kind, bool projects) {
        const LayerTensors layer(kind, projects, 50, layout.batch(), dtype, generator);
        const Tensors first = results_and_gradients(layer, layout, layer.all, false);
        const Tensors second = results_and_gradients(layer, layout, layer.all, false);
        for (size_t i = 0; i < first.size(); ++i) test::expect_equal(first[i], second[i]);
      });
}

/// A pass that runs out of memory is one error, and can be repeated.
TEST_F(RecurrentLibrary, OutOfMemory) {
  const RecurrentLayout layout = RecurrentLayout::packed({30, 7, 13}, kCuda);
  const LayerTensors layer(RecurrentKind::kLstm, true, 50, 3, float32, generator, 60);
  const Tensors expected = results_and_gradients(layer, layout, layer.all, false);
  CachingAllocator& memory = allocator(kCuda);
  memory.empty_cache();
  const Tensors filler = fill_free_memory(kCuda);
  int failures = 0;
  bool done = false;
  for (int64_t more = 1 << 9; !done; more += more / 4) {
    Tensors found;
    memory.empty_cache();
    memory.set_limit(memory.statistics().reserved_bytes + more);
    try {
      found = results_and_gradients(layer, layout, layer.all, false);
      done = true;
    } catch (const OutOfMemoryError& error) {
      expect_contains(error.what(), {"out of memory on"});
      ++failures;
    }
    memory.set_limit(0);
    for (size_t i = 0; i < found.size(); ++i) test::expect_equal(found[i], expected[i]);
  }
  EXPECT_GE(failures, 3);
}

#ifdef TERN_STANDIN

/// Where cuDNN refuses a layer, or the call, the bits are those of Tern's kernels.
TEST_F(RecurrentLibrary, RefusalsAreTerns) {
  const RecurrentLayout layout = RecurrentLayout::packed({2, 6, 3}, kCuda);
  int64_t width = 6;
  for (const auto what : {standin::CudnnRefuses::kRecurrentLayers, standin::CudnnRefuses::kRecurrentCalls}) {
    LayerTensors layer(RecurrentKind::kGru, false, 11, 3, float32, generator);
    ++width;  // a layer of which there is no plan
    layer.all[0] = normal({11, width}, float32);
    layer.all[1] = normal({18, width}, float32);
    set_cudnn_recurrent(false);
    const Tensors own = results_and_gradients(layer, layout, layer.all, false);
    set_cudnn_recurrent(true);
    standin::set_cudnn_refuses(what);
    expect_passes({0, 0, 0}, [&] {
      const Tensors found = results_and_gradients(layer, layout, layer.all, false);
      for (size_t i = 0; i < own.size(); ++i) test::expect_equal(found[i], own[i]);
    });
    standin::set_cudnn_refuses(standin::CudnnRefuses::kNothing);
  }
}

#endif

}  // namespace
}  // namespace tern
