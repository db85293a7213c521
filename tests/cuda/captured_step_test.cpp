// Captured steps: bit-equal to steps without capture, new masks at every replay, and clear errors for operations that
// cannot be captured.

#include "tern/core/autograd/captured_step.h"
#include "tern/core/autograd/autocast.h"
#include "tern/core/memory/allocator.h"
#include "tern/core/ops/recurrent/recurrent.h"
#include "tern/core/ops/tensor/transfer.h"
#include "tern/kernels/cuda/cudnn/recurrent.h"
#include "tern/models/vit/vit.h"
#include "tern/nn/layers/recurrent.h"
#include "tern/tests/cuda/device_test.h"
#include "tern/tests/cuda/small_net.h"

namespace tern {
namespace {

using Captured = DeviceTest;

struct Outcome {
  std::vector<double> losses, norms, scales;
  test::Values weights;
  bool captured = false;
  int64_t nodes = 0;
};

/// Twelve steps with a changing learning rate; `dtype` is the dtype of autocast.
Outcome train(bool capture, DType dtype, bool use_adam, double overflow_at = -1) {
  SmallNet net(nn::Scope({.device = kCuda, .generator = Generator(fresh_seed())}), 24, 48);
  optim::Optimizer optimizer(
      {{net.parameters()}},
      use_adam ? optim::algorithm_of(optim::AdamWOptions{.lr = 1e-2, .capturable = true})
               : optim::algorithm_of(optim::SGDOptions{.lr = 1e-2, .momentum = 0.9, .capturable = true}));
  optim::GradScaler scaler({.enabled = dtype == float16, .init_scale = 1024, .growth_interval = 3});
  optim::StepResult result;
  CapturedStep step(
      [&](const Tensors& batch) {
        const Tensor loss =
            autocast(kCuda, dtype, [&] { return mul(cross_entropy(net.forward(batch[0]), batch[1]), batch[2]); });
        scaler.scale(sum(loss)).backward();
        result = update(optimizer, scaler);
        return Tensors{loss};
      },
      {.warmup = 2, .enabled = capture});
  Outcome run;
  Generator data(fresh_seed() + 1);
  std::vector<HostCopy> losses;
  std::vector<optim::StepResult> results;
  for (int i = 0; i < 12; ++i) {
    optimizer.set_lr_factor(1.0 / (1 + i));
    const Tensor x = randn({13, 24}, data), targets = floor(mul(rand({13}, data), 5.0)).to(int64);
    const Tensor factor = full({1}, i == overflow_at ? INFINITY : 1);
    const Tensor loss = step({x.to(kCuda), targets.to(kCuda), factor.to(kCuda)})[0];
    losses.emplace_back(loss);
    results.push_back(result.fetch());
  }
  for (const HostCopy& loss : losses) run.losses.push_back(loss.values()[0]);
  for (const optim::StepResult& r : results) {
    run.norms.push_back(r.grad_norm());
    run.scales.push_back(r.loss_scale());
  }
  run.weights = values_of(net.parameters());
  run.captured = step.captured();
  run.nodes = step.nodes();
  return run;
}

TEST_F(Captured, EqualsUncapturedBitForBit) {
  for (const DType dtype : {float32, bfloat16, float16})
    for (const bool adam : {true, false}) {
      SCOPED_TRACE(dtype);
      const Outcome plain = train(false, dtype, adam), captured = train(true, dtype, adam);
      EXPECT_FALSE(plain.captured);
      EXPECT_TRUE(captured.captured);
      EXPECT_GT(captured.nodes, 10);
      EXPECT_EQ(plain.losses, captured.losses);
      EXPECT_EQ(plain.norms, captured.norms);
      EXPECT_EQ(plain.scales, captured.scales);
      EXPECT_EQ(plain.weights, captured.weights);
    }
}

TEST_F(Captured, AnOverflowIsSkippedOnTheDevice) {
  const Outcome plain = train(false, float16, true, 7), captured = train(true, float16, true, 7);
  EXPECT_EQ(plain.scales, captured.scales);
  EXPECT_LT(captured.scales[8], captured.scales[7]);
  EXPECT_EQ(plain.weights, captured.weights);
  for (const std::vector<double>& weights : captured.weights)
    for (const double w : weights) ASSERT_TRUE(std::isfinite(w));
}

TEST_F(Captured, TwoReplaysDrawDifferentMasks) {
  CapturedStep step([&](const Tensors& in) { return Tensors{dropout(in[0], {.p = 0.5, .generator = &generator})}; },
                    {.warmup = 1});
  const Tensor x = full({4000}, 1, {.device = kCuda});
  Tensors masks;
  for (int i = 0; i < 5; ++i) masks.push_back(step({x})[0].to(cpu));
  EXPECT_TRUE(step.captured());
  EXPECT_EQ(generator.offset(), 5u);
  Generator again(fresh_seed());
  for (int i = 0; i < 5; ++i) {
    const Tensor expected = dropout(full({4000}, 1), {.p = 0.5, .generator = &again});
    EXPECT_EQ(masks[static_cast<size_t>(i)].to_vector<double>(), expected.to_vector<double>()) << i;
  }
}

TEST_F(Captured, InputsMayComeFromTheHost) {
  CapturedStep step([](const Tensors& in) { return Tensors{add(in[0], in[1])}; }, {.warmup = 1});
  const Tensor y = full({3}, 1, {.device = kCuda});
  step({full({3}, 5).to(kCuda), y});
  for (const double value : {6.0, 7.0, 8.0})
    EXPECT_EQ(step({full({3}, value), y})[0].to_vector<double>(), std::vector<double>(3, value + 1));
}

/// Its layout of sequences is made within the step.
TEST_F(Captured, AVisionTransformer) {
  models::ViTConfig config = models::ViTConfig::preset("tiny");
  config.width = 24, config.hidden = 40, config.layers = 2, config.image_size = 12;
  config.dropout = config.attention_dropout = 0;
  config.labels = {"a", "b", "c"};
  const models::ViT model(nn::Scope({.device = kCuda, .generator = Generator(fresh_seed())}), config);
  CapturedStep step(
      [&](const Tensors& in) {
        NoGrad off;
        return Tensors{model.forward(in[0])};
      },
      {.warmup = 1});
  Generator data(fresh_seed() + 1);
  for (int i = 0; i < 3; ++i) {
    const Tensor x = randn({2, 3, 12, 12}, data).to(kCuda);
    const std::vector<double> expected = model.forward(x).to_vector<double>();
    EXPECT_EQ(step({x})[0].to_vector<double>(), expected) << i;
  }
  EXPECT_TRUE(step.captured());
}

TEST_F(Captured, SortsAndScansAreReplayed) {
  const auto results = [](const Tensors& in) {
    Tensor x = in[0].detach().clone().set_requires_grad(true);
    const SortResult sorted = sort(x, 0, true), top = topk(x, 7);
    const Tensor sums = cumsum(x, 1), counts = cumsum(gt(x, mul(x, 2.0)), 0);
    add(sum(mul(sorted.values, sums)), sum(square(top.values))).backward();
    return Tensors{sorted.values, sorted.indices, top.values, top.indices, sums, counts, x.grad()};
  };
  CapturedStep step(results, {.warmup = 1});
  for (int i = 0; i < 4; ++i) {
    const Tensor x = floor(mul(normal({40, 70}, float32), 3.0));
    const Tensors captured = step({x.to(kCuda)}), expected = results({x});
    EXPECT_EQ(step.captured(), i > 0);
    for (size_t k = 0; k < expected.size(); ++k)
      EXPECT_EQ(captured[k].to_vector<double>(), expected[k].to_vector<double>()) << "step " << i << ", result " << k;
  }
}

/// By cuDNN, all but the cell, and by Tern's kernels.
TEST_F(Captured, RecurrentLayersOfEqualLengths) {
  const bool before = kernels::cuda::cudnn_recurrent();
  for (const auto& [library, batch_first] :
       {std::pair(true, true), std::pair(true, false), std::pair(false, true), std::pair(false, false)}) {
    kernels::cuda::set_cudnn_recurrent(library);
    nn::LSTMOptions options;
    options.layers = 2;
    options.batch_first = batch_first;
    options.bidirectional = true;
    nn::LSTM lstm(nn::Scope({.device = kCuda, .generator = Generator(fresh_seed())}), 5, 6, options);
    nn::GRUCell cell(nn::Scope({.device = kCuda, .generator = Generator(fresh_seed())}), 12, 4);
    const auto results = [&, batch_first = batch_first](const Tensors& in) {
      const Tensor x = in[0].detach().clone().set_requires_grad(true);
      const Tensor y = lstm.forward(x).output, last = cell.forward(y.select(batch_first ? 1 : 0, -1));
      sum(square(last)).backward();
      return Tensors{y, last, x.grad()};
    };
    CapturedStep step(results, {.warmup = 1});
    for (int i = 0; i < 3; ++i) {
      const Tensor x = normal({3, 4, 5}, float32).to(kCuda);
      const Tensors captured = step({x}), expected = results({x});
      EXPECT_EQ(step.captured(), i > 0);
      for (size_t k = 0; k < expected.size(); ++k)
        EXPECT_EQ(captured[k].to_vector<double>(), expected[k].to_vector<double>()) << "step " << i << ", result " << k;
    }
  }
  kernels::cuda::set_cudnn_recurrent(before);
}

TEST_F(Captured, MemoryStaysTheSame) {
  CapturedStep step([](const Tensors& in) { return Tensors{sum(exp(mul(in[0], 2.0)))}; }, {.warmup = 1});
  const Tensor x = full({100000}, 1, {.device = kCuda});
  for (int i = 0; i < 3; ++i) step({x});
  const int64_t before = allocator(kCuda).statistics().system_allocations;
  std::vector<Tensor> others;
  for (int i = 0; i < 20; ++i) {
    others.push_back(full({100000}, -1, {.device = kCuda}));              // must not get the graph's memory
    EXPECT_NEAR(step({x})[0].item<double>(), 100000 * std::exp(2.0), 4);  // tolerance below one element, 7.4
  }
  for (const Tensor& other : others) EXPECT_EQ(sum(other).item<double>(), -100000);
  EXPECT_LE(allocator(kCuda).statistics().system_allocations, before + 20);
}

TEST_F(Captured, WhatCannotBeCapturedIsNamed) {
  const Tensor x = full({3}, 1, {.device = kCuda});
  const auto expect_refused = [&](const std::string& part, const std::function<Tensor(const Tensor&)>& op) {
    CapturedStep step([&](const Tensors& in) { return Tensors{op(in[0])}; }, {.warmup = 1});
    step({x});
    expect_error([&] { step({x}); }, {part});
  };
  expect_refused("item", [](const Tensor& a) { return mul(a, sum(a).item<double>()); });
  expect_refused("copy between host and device", [](const Tensor& a) { return a.to(cpu); });
  expect_refused("copy between host and device", [](const Tensor& a) { return add(a, full({3}, 2).to(kCuda)); });
  expect_refused("synchronize", [](const Tensor& a) {
    synchronize(kCuda);
    return add(a, a);
  });
  expect_refused("reading values", [](const Tensor& a) { return all_finite(a) ? a : neg(a); });
  expect_refused("a recurrent layer of packed sequences is not possible", [](const Tensor& a) {
    return RecurrentLayout::packed({1, 2}, a.device()).order();
  });
  expect_refused("a recurrent layer of packed sequences is not possible", [](const Tensor& a) {
    return RecurrentLayout::packed(SequenceLayout{sub(cumsum(a, 0), 1.0).to(int32), 1, {}, {}}).order();
  });
  expect_refused("nonzero is not possible", [](const Tensor& a) { return nonzero(a); });
  expect_refused("masked_select is not possible", [](const Tensor& a) { return masked_select(a, gt(a, a)); });
  // The device still works after each of these.
  EXPECT_EQ(sum(add(x, 1)).item<double>(), 6);
}

TEST_F(Captured, AGeneratorThatDidNotDrawBeforeIsRefused) {
  int calls = 0;
  CapturedStep step(
      [&](const Tensors& in) {
        return Tensors{calls++ == 0 ? add(in[0], 1) : dropout(in[0], {.p = 0.5, .generator = &generator})};
      },
      {.warmup = 1});
  const Tensor x = full({3}, 1, {.device = kCuda});
  step({x});
  expect_error([&] { step({x}); }, {"a generator draws numbers that drew none in the earlier calls"});
  EXPECT_FALSE(step.captured());
}

TEST_F(Captured, OtherShapesAreRefusedAndAResetRecordsAgain) {
  CapturedStep step([](const Tensors& in) { return Tensors{mul(in[0], 3.0)}; }, {.warmup = 1});
  for (int i = 0; i < 2; ++i) step({full({4}, 1, {.device = kCuda})});
  expect_error([&] { step({full({5}, 1, {.device = kCuda})}); }, {"[4]", "[5]"});
  EXPECT_THROW(step({full({4}, 1, {.dtype = float64, .device = kCuda})}), Error);
  EXPECT_THROW(step({}), Error);
  EXPECT_EQ(step({full({4}, 2, {.device = kCuda})})[0].to_vector<double>(), std::vector<double>(4, 6));
  step.reset();
  EXPECT_FALSE(step.captured());
  EXPECT_EQ(step({full({5}, 2, {.device = kCuda})})[0].to_vector<double>(), std::vector<double>(5, 6));
}

TEST_F(Captured, WeightsThatHaveMovedAreNoticed) {
  SmallNet net(nn::Scope({.device = kCuda}), 24, 48);
  CapturedStep step([&](const Tensors& batch) { return Tensors{net.forward(batch[0])}; }, {.warmup = 1});
  const Tensor x = ones({3, 24}, {.device = kCuda});
  for (int i = 0; i < 3; ++i) step({x});
  ASSERT_TRUE(step.captured());
  net.to(float64);
  net.to(float32);
  expect_error([&] { step({x}); }, {"Module::to", "reset()"});
  step.reset();
  EXPECT_NO_THROW(step({x}));
}

TEST_F(Captured, OnTheCpuTheFunctionRuns) {
  int runs = 0;
  CapturedStep step([&](const Tensors& in) { return ++runs, Tensors{add(in[0], 1)}; });
  for (int i = 0; i < 4; ++i) EXPECT_EQ(step({full({2}, i, {.device = cpu})})[0].device(), cpu);
  EXPECT_EQ(runs, 4);
  EXPECT_FALSE(step.captured());
}

}  // namespace
}  // namespace tern
