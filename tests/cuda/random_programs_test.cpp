// Random programs of ops, trained for four steps. Recomputed parts (also nested) and capture give the same bits as the
// plain run; the two devices agree.

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/captured_step.h"
#include "tern/core/autograd/checkpoint.h"
#include "tern/optim/optim.h"
#include "tern/tests/cuda/device_test.h"

namespace tern {
namespace {

using RandomPrograms = DeviceTest;

constexpr int64_t kRows = 11, kWidth = 24;

/// One stage: maps [rows, width] to the same shape.
struct Stage {
  int op = 0;
  Tensor weight, bias, gamma, rows;
  SequenceLayout layout;

  Tensor forward(const Tensor& x, const Tensor& first, Generator& draws) const {
    switch (op) {
      case 0:
        return linear(x, weight.slice(0, 0, kWidth), bias, Activation::kGelu);
      case 1:
        return dropout_residual_layer_norm(x, first.to(x.dtype()), gamma, bias, 1e-5, {.p = 0.2, .generator = &draws});
      case 2:
        return dropout(x, {.p = 0.3, .generator = &draws});
      case 3:
        return softmax(x, -1) * x + x;
      case 4: {
        const Tensor qkv = linear(x, weight).reshape({kRows, 3, 2, kWidth / 2});
        const AttentionOptions options{.causal = true, .dropout = 0.2, .generator = &draws};
        return self_attention(qkv, layout, options);
      }
      case 5:
        return cat({tanh(x.slice(1, kWidth / 2)), x.slice(1, 0, kWidth / 2)}, 1);
      case 6:
        return x + matmul(softmax(matmul(x, x.t()) * 0.1, 1), x);
      case 7:
        return x - mean(x, {0}, true);
      case 8:
        return index_select(x, 0, rows) * gamma;
      case 9:
        return exp(clamp(x, -2, 1)) * 0.3 + abs(x);
      default:
        return layer_norm(sort(x, 1).values + relu(x), gamma, bias);
    }
  }
};
constexpr int kOps = 11;

/// A tree of stages: the leaves run in order, and a node may be recomputed.
struct Part {
  bool recomputed = false;
  int stage = -1;
  std::vector<Part> parts;
};

Part random_part(std::mt19937_64& random, int first, int count) {
  Part part;
  part.recomputed = random() % 2 == 0;
  if (count == 1) {
    part.stage = first;
    return part;
  }
  const int cut = 1 + static_cast<int>(random() % static_cast<uint64_t>(count - 1));
  part.parts.push_back(random_part(random, first, cut));
  part.parts.push_back(random_part(random, first + cut, count - cut));
  return part;
}

struct Program {
  std::vector<Stage> stages;
  Part root;

  /// The variables that a recomputed part captures by reference live until backward.
  Tensor forward(const Part& part, const Tensor& x, const Tensor& first, Generator& draws, bool recompute) const {
    const auto body = [this, &part, &draws, recompute](const Tensor& y, const Tensor& start) {
      if (part.stage >= 0) return stages[static_cast<size_t>(part.stage)].forward(y, start, draws);
      Tensor z = y;
      for (const Part& inner : part.parts) z = forward(inner, z, start, draws, recompute);
      return z;
    };
    return recompute && part.recomputed ? checkpoint(body, x, first) : body(x, first);
  }
};

Program make_program(uint64_t seed, Device device) {
  std::mt19937_64 random(seed);
  Generator generator(seed);
  Program program;
  const int count = 2 + static_cast<int>(random() % 6);
  for (int i = 0; i < count; ++i) {
    Stage s;
    s.op = i == 0 ? 0 : static_cast<int>(random() % kOps);  // the first has parameters
    const auto leaf = [&](const Shape& shape, double scale, double offset) {
      return (randn(shape, generator) * scale + offset).to(device).set_requires_grad(true);
    };
    s.weight = leaf({3 * kWidth, kWidth}, 0.2, 0);
    s.bias = leaf({kWidth}, 0.1, 0);
    s.gamma = leaf({kWidth}, 0.1, 1);
    s.rows = floor(rand({kRows}, generator) * static_cast<double>(kRows)).to(int64).to(device);
    s.layout = packed_layout({4, kRows - 4}, device);
    program.stages.push_back(s);
  }
  program.root = random_part(random, 0, count);
  return program;
}

struct Mode {
  bool recompute = false, capture = false;
};

/// Losses and weights of four steps.
test::Values train(uint64_t seed, Device device, DType dtype, const Mode& mode = {}) {
  const Program program = make_program(seed, device);
  Generator draws(seed + 1), data(seed + 2);
  std::vector<NamedTensor> parameters;
  for (size_t i = 0; i < program.stages.size(); ++i) {
    const Stage& s = program.stages[i];
    const std::string name = std::to_string(i);
    parameters.insert(parameters.end(),
                      {{"weight" + name, s.weight}, {"bias" + name, s.bias}, {"gamma" + name, s.gamma}});
  }
  optim::AdamW optimizer(parameters, {.lr = 1e-3, .capturable = true});
  CapturedStep step(
      [&](const Tensors& batch) {
        const Tensor loss = autocast(device, dtype, [&] {
          const Tensor y = program.forward(program.root, batch[0], batch[0], draws, mode.recompute);
          return mean(square(y.to(float32) - batch[1]));
        });
        loss.backward();
        optimizer.step({.max_norm = 1});
        optimizer.zero_grad();
        return Tensors{loss};
      },
      {.warmup = 1, .enabled = mode.capture});
  std::vector<double> losses;
  for (int i = 0; i < 4; ++i) {
    const Tensor x = randn({kRows, kWidth}, data).to(device), target = randn({kRows, kWidth}, data).to(device);
    losses.push_back(step({x, target})[0].item<double>());
  }
  EXPECT_EQ(step.captured(), mode.capture);
  test::Values result = values_of(parameters);
  result.push_back(losses);
  return result;
}

TEST_F(RandomPrograms, AreTheSameForEveryWayOfRunning) {
  std::mt19937_64 random(fresh_seed());
  for (int round = 0; round < 20; ++round) {
    const uint64_t seed = random();
    constexpr DType kDTypes[] = {float32, bfloat16, float16};
    const DType dtype = kDTypes[random() % 3];
    SCOPED_TRACE(testing::Message() << "round " << round << ", " << dtype);
    const test::Values on_cpu = train(seed, cpu, dtype), on_cuda = train(seed, kCuda, dtype);
    ASSERT_EQ(train(seed, cpu, dtype, {.recompute = true}), on_cpu);
    for (const Mode& mode : {Mode{true, false}, {false, true}, {true, true}})
      ASSERT_EQ(train(seed, kCuda, dtype, mode), on_cuda) << mode.recompute << mode.capture;
    const std::vector<double>&want = on_cpu.back(), &got = on_cuda.back();
    for (size_t i = 0; i < 4; ++i)
      ASSERT_NEAR(got[i], want[i], (dtype == float32 ? 1e-3 : 0.1) * (1 + want[i])) << "loss " << i;
  }
}

}  // namespace
}  // namespace tern
