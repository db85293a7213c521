// Training of DistilBERT on the device: the CPU's loss curve; captured, recomputed and repeated runs are bit-equal.

#include "tern/core/io/safetensors.h"
#include "tern/tests/cuda/small_text.h"
#include "tern/tests/support/temporary_folder.h"

namespace tern::models {
namespace {

using Training = DeviceTest;

/// For tests whose outcome depends on the numbers: a loss that must fall, a loss scale that must fall but not too far,
/// losses of two devices, which AdamW drives apart where a gradient is only rounding error.
constexpr uint64_t kFixedSeed = 99;

struct RunOptions {
  Device device = kCuda;
  uint64_t seed = fresh_seed();
  DType dtype = float32;
  bool capture = true;
  int64_t recompute = 0;
  int64_t steps = 20;
  int64_t batch_size = 0, batch_tokens = 64;
  double ema = 0, initializer_range = 0.02;
  int64_t stop = 0;                         // stop after this many steps, with a checkpoint
  CheckpointFolder* checkpoints = nullptr;  // where it is written, or where the run resumes
  bool resume = false;
};

class Curve final : public TrainObserver {
 public:
  void on_step(const StepMetrics& m) override {
    losses.push_back(m.loss);
    norms.push_back(m.grad_norm);
    scales.push_back(m.loss_scale);
    skipped += m.skipped;
  }
  void append(const Curve& rest) {
    losses.insert(losses.end(), rest.losses.begin(), rest.losses.end());
    scales.insert(scales.end(), rest.scales.begin(), rest.scales.end());
  }
  std::vector<double> losses, norms, scales;
  int skipped = 0;
};

struct Outcome {
  Curve curve;
  test::Values weights;
};

/// Random sequences whose label is the parity of their first token.
Texts random_texts(uint64_t seed, int64_t count) {
  std::mt19937_64 random(seed);
  Texts texts;
  for (int64_t i = 0; i < count; ++i) {
    std::vector<int32_t> ids(3 + random() % 14);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % 97);
    texts.add(ids, ids[0] % 2);
  }
  return texts;
}

Outcome run(const RunOptions& o) {
  DistilBert model(nn::Scope({.device = o.device, .generator = Generator(o.seed + 1)}),
                   {.vocab_size = 97,
                    .max_positions = 20,
                    .width = 64,
                    .layers = 2,
                    .heads = 2,
                    .hidden = 128,
                    .initializer_range = o.initializer_range});
  model.set_recompute(o.recompute);
  const Texts texts = random_texts(o.seed, 60);
  TextTask task(
      model, texts.tokens, texts.labels, texts.rows, {}, 0,
      {.epochs = 100, .batch_size = o.batch_size, .batch_tokens = o.batch_size > 0 ? 0 : o.batch_tokens, .workers = 1});
  TrainOptions options = {.lr = 1e-3,
                          .dtype = o.dtype,
                          .ema = o.ema,
                          .device = o.device,
                          .capture = o.capture,
                          .max_steps = o.steps,
                          .checkpoints = o.checkpoints};
  options.save_model = [&](const std::string& to) { save_safetensors(model.state_dict(), to + "/model"); };
  int64_t calls = 0;
  if (o.stop > 0) options.should_stop = [&] { return ++calls == o.stop; };
  std::optional<TrainCheckpoint> checkpoint;
  if (o.resume) {
    const std::string newest = newest_checkpoint(o.checkpoints->path(), {}).value();
    model.load_state_dict(load_safetensors(newest + "/model").tensors);
    options.resume = &checkpoint.emplace(load_checkpoint(newest));
  }
  Outcome outcome;
  train(task, options, outcome.curve);
  outcome.weights = values_of(model.parameters());
  return outcome;
}

double greatest_difference(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.curve.losses.size(), b.curve.losses.size());
  double worst = 0;
  for (size_t i = 0; i < a.curve.losses.size(); ++i) {
    const double difference = std::abs(a.curve.losses[i] - b.curve.losses[i]);
    if (!(difference <= worst)) worst = std::isfinite(difference) ? difference : INFINITY;
  }
  return worst;
}

TEST_F(Training, FollowsTheCpu) {
  const Outcome reference = run({.device = cpu, .seed = kFixedSeed}), device = run({.seed = kFixedSeed});
  ASSERT_EQ(device.curve.losses.size(), 20u);
  EXPECT_LT(greatest_difference(reference, device), 1e-4);
  EXPECT_LT(device.curve.losses.back(), device.curve.losses.front());
  for (const DType dtype : {bfloat16, float16}) {
    const Outcome low_reference = run({.device = cpu, .seed = kFixedSeed, .dtype = dtype});
    const Outcome low = run({.seed = kFixedSeed, .dtype = dtype});
    // Each device rounds every activation, in another order. A ReLU whose input is near 0 then passes a gradient on one
    // of them only, which changes the gradient's norm by about 1 % and later losses by up to 0.005.
    const double rounding = greatest_difference(reference, low_reference);
    EXPECT_LT(greatest_difference(low_reference, low), 2 * rounding + 0.01) << name_of(dtype);
  }
}

/// Before rounding of one step can change the next: loss and norm of the gradients, for weights and texts of new seeds.
/// In 16 bits one of a few seeds has a ReLU that only one device passes (above), so that the median is bounded.
TEST_F(Training, FirstStepAgreesWithTheCpu) {
  std::mt19937_64 random = fresh_random();
  for (const auto& [dtype, unit] : {std::pair(float32, 0x1p-18), {bfloat16, 0x1p-8}, {float16, 0x1p-11}}) {
    SCOPED_TRACE(dtype);
    std::vector<double> norms;
    for (int i = 0; i < 5; ++i) {
      const uint64_t seed = random();
      const Curve reference = run({.device = cpu, .seed = seed, .dtype = dtype, .steps = 1}).curve,
                  device = run({.seed = seed, .dtype = dtype, .steps = 1}).curve;
      EXPECT_NEAR(device.losses.at(0), reference.losses.at(0), unit / 8) << "seed " << seed;
      norms.push_back(std::abs(device.norms.at(0) / reference.norms.at(0) - 1));
    }
    std::nth_element(norms.begin(), norms.begin() + 2, norms.end());
    EXPECT_LT(norms[2], unit);
  }
}

TEST_F(Training, CapturedRecomputedAndRepeatedRunsAreTheSameBits) {
  for (const DType dtype : {float32, bfloat16, float16}) {
    const Outcome captured = run({.dtype = dtype, .steps = 4, .batch_tokens = 32});
    for (const auto& [capture, recompute] : {std::pair(true, 0), {false, 0}, {true, 1}, {false, 2}}) {
      SCOPED_TRACE(testing::Message() << dtype << (capture ? ", captured, " : ", ") << recompute);
      const Outcome again =
          run({.dtype = dtype, .capture = capture, .recompute = recompute, .steps = 4, .batch_tokens = 32});
      EXPECT_EQ(captured.curve.losses, again.curve.losses);
      EXPECT_EQ(captured.curve.norms, again.curve.norms);
      EXPECT_EQ(captured.weights, again.weights);
    }
  }
}

/// Stopped at the captured step or later, and resumed with loss scale and averages.
TEST_F(Training, ResumedRunsAreTheSameBits) {
  // Weights so large that the first loss scales are too large: steps before and after the stops are skipped.
  const RunOptions half{
      .seed = kFixedSeed, .dtype = float16, .steps = 11, .batch_tokens = 32, .ema = 0.9, .initializer_range = 0.5};
  RunOptions eager = half;
  eager.capture = false;
  for (const auto& [options, stops] : {std::pair(half, std::vector<int64_t>{2, 8}),
                                       {eager, {5}},
                                       {RunOptions{.steps = 11, .batch_tokens = 32, .ema = 0.9}, {8}}}) {
    const Outcome whole = run(options);
    EXPECT_EQ(whole.curve.skipped > 0, options.dtype == float16);
    EXPECT_LT(whole.curve.skipped, 9);
    for (const int64_t stop : stops) {
      SCOPED_TRACE(std::string(name_of(options.dtype)) + " stopped after step " + std::to_string(stop));
      const test::TemporaryFolder folder;
      CheckpointFolder checkpoints(folder / "checkpoints", 1);
      RunOptions cut = options;
      cut.checkpoints = &checkpoints;
      cut.stop = stop;
      Outcome joined = run(cut);
      EXPECT_EQ(joined.curve.losses.size(), static_cast<size_t>(stop));
      cut.stop = 0;
      cut.resume = true;
      const Outcome rest = run(cut);
      joined.curve.append(rest.curve);
      EXPECT_EQ(joined.curve.losses, whole.curve.losses);
      EXPECT_EQ(joined.curve.scales, whole.curve.scales);
      EXPECT_EQ(rest.weights, whole.weights);
      EXPECT_NE(joined.weights, whole.weights);
    }
  }
}

TEST_F(Training, PaddedBatches) {
  const Outcome reference = run({.device = cpu, .seed = kFixedSeed, .steps = 5, .batch_size = 6}),
                device = run({.seed = kFixedSeed, .steps = 5, .batch_size = 6});
  EXPECT_LT(greatest_difference(reference, device), 1e-4);
}

}  // namespace
}  // namespace tern::models
