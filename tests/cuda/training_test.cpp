// Training of DistilBERT on the device: the CPU's loss curve; captured, recomputed and repeated runs are bit-equal.

#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "tern/core/io/safetensors.h"
#include "tern/core/memory/allocator.h"
#include "tern/models/distilbert/distilbert.h"
#include "tern/models/text/text_task.h"
#include "tern/tests/cuda/device_test.h"

namespace tern::models {
namespace {

namespace fs = std::filesystem;

class Training : public DeviceTest {};

/// For tests whose outcome depends on the numbers: a loss that must fall, a loss scale that must fall but not too far,
/// losses of two devices, which AdamW drives apart where a gradient is only rounding error.
constexpr uint64_t kFixedSeed = 99;

struct RunOptions {
  Device device = kCuda;
  uint64_t seed = fresh_seed();
  DType dtype = float32;
  bool capture = true;
  int64_t recompute = 0;
  int64_t steps = 50;
  int64_t batch_size = 0;
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
  std::vector<double> losses, norms, scales;
  int skipped = 0;
};

struct Outcome {
  Curve curve;
  std::vector<double> weights;
};

/// Random sequences whose label is the parity of their first token.
std::shared_ptr<data::TokenSet> random_tokens(uint64_t seed, int64_t count, std::vector<int32_t>& labels) {
  std::mt19937_64 random(seed);
  auto tokens = std::make_shared<data::TokenSet>();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t length = 3 + static_cast<int64_t>(random() % 14);
    for (int64_t t = 0; t < length; ++t) tokens->ids.push_back(static_cast<int32_t>(random() % 97));
    labels.push_back(tokens->ids[tokens->ids.size() - static_cast<size_t>(length)] % 2);
    tokens->offsets.push_back(static_cast<int64_t>(tokens->ids.size()));
  }
  return tokens;
}

Outcome run(const RunOptions& o) {
  DistilBertConfig config;
  config.vocab_size = 97;
  config.width = 64;
  config.layers = 2;
  config.heads = 2;
  config.hidden = 128;
  config.max_positions = 20;
  config.initializer_range = o.initializer_range;
  DistilBert model(nn::Scope({.device = o.device, .generator = Generator(o.seed + 1)}), config);
  model.set_recompute(o.recompute);
  std::vector<int32_t> labels, rows;
  const auto tokens = random_tokens(o.seed, 60, labels);
  for (int32_t i = 0; i < 60; ++i) rows.push_back(i);
  TextTaskOptions task_options;
  task_options.epochs = 100;
  task_options.batch_tokens = o.batch_size > 0 ? 0 : 64;
  task_options.batch_size = o.batch_size;
  task_options.workers = 1;
  TextTask task(model, tokens, labels, rows, {}, 0, task_options);
  TrainOptions options;
  options.lr = 1e-3;
  options.dtype = o.dtype;
  options.device = o.device;
  options.capture = o.capture;
  options.max_steps = o.steps;
  options.ema = o.ema;
  options.checkpoints = o.checkpoints;
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
  for (const NamedTensor& p : model.parameters())
    for (const double w : p.tensor.to_vector<double>()) outcome.weights.push_back(w);
  return outcome;
}

double greatest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(a[i] - b[i]);
    if (!(difference <= worst)) worst = std::isfinite(difference) ? difference : INFINITY;
  }
  return worst;
}

TEST_F(Training, FollowsTheCpuForFiftySteps) {
  const Outcome reference = run({.device = cpu, .seed = kFixedSeed}), device = run({.seed = kFixedSeed});
  ASSERT_EQ(device.curve.losses.size(), 50u);
  EXPECT_LT(greatest_difference(reference.curve.losses, device.curve.losses), 1e-4);
  EXPECT_LT(device.curve.losses.back(), device.curve.losses.front());
  for (const DType dtype : {bfloat16, float16}) {
    const Outcome low_reference = run({.device = cpu, .seed = kFixedSeed, .dtype = dtype});
    const Outcome low = run({.seed = kFixedSeed, .dtype = dtype});
    // Each device rounds every activation, in another order. A ReLU whose input is near 0 then passes a gradient on one
    // of them only, which changes the gradient's norm by about 1 % and later losses by up to 0.005.
    const double rounding = greatest_difference(reference.curve.losses, low_reference.curve.losses);
    EXPECT_LT(greatest_difference(low_reference.curve.losses, low.curve.losses), 2 * rounding + 0.01) << name_of(dtype);
  }
}

TEST_F(Training, CapturedRecomputedAndRepeatedRunsAreTheSameBits) {
  for (const DType dtype : {float32, bfloat16, float16}) {
    const Outcome captured = run({.dtype = dtype, .steps = 6});
    for (const RunOptions& other :
         {RunOptions{.dtype = dtype, .steps = 6}, RunOptions{.dtype = dtype, .capture = false, .steps = 6},
          RunOptions{.dtype = dtype, .recompute = 1, .steps = 6},
          RunOptions{.dtype = dtype, .capture = false, .recompute = 2, .steps = 6}}) {
      const Outcome again = run(other);
      EXPECT_EQ(captured.curve.losses, again.curve.losses) << name_of(dtype) << other.capture << other.recompute;
      EXPECT_EQ(captured.curve.norms, again.curve.norms) << name_of(dtype) << other.capture << other.recompute;
      EXPECT_EQ(captured.weights, again.weights) << name_of(dtype) << other.capture << other.recompute;
    }
  }
}

/// Stopped at the captured step or later, and resumed with loss scale and averages.
TEST_F(Training, ResumedRunsAreTheSameBits) {
  const fs::path dir = fs::temp_directory_path() / ("tern-device-" + std::to_string(getpid()));
  // Weights so large that the first loss scales are too large: steps before and after the stops are skipped.
  const RunOptions half{.seed = kFixedSeed, .dtype = float16, .steps = 11, .ema = 0.9, .initializer_range = 0.5};
  RunOptions eager = half;
  eager.capture = false;
  for (const auto& [options, stops] :
       {std::pair(half, std::vector<int64_t>{2, 8}), {eager, {5}}, {RunOptions{.steps = 11, .ema = 0.9}, {8}}}) {
    const Outcome whole = run(options);
    EXPECT_EQ(whole.curve.skipped > 0, options.dtype == float16);
    EXPECT_LT(whole.curve.skipped, 9);
    for (const int64_t stop : stops) {
      SCOPED_TRACE(std::string(name_of(options.dtype)) + " stopped after step " + std::to_string(stop));
      CheckpointFolder checkpoints((dir / "checkpoints").string(), 1);
      RunOptions cut = options;
      cut.checkpoints = &checkpoints;
      cut.stop = stop;
      Outcome joined = run(cut);
      EXPECT_EQ(joined.curve.losses.size(), static_cast<size_t>(stop));
      cut.stop = 0;
      cut.resume = true;
      const Outcome rest = run(cut);
      joined.curve.losses.insert(joined.curve.losses.end(), rest.curve.losses.begin(), rest.curve.losses.end());
      joined.curve.scales.insert(joined.curve.scales.end(), rest.curve.scales.begin(), rest.curve.scales.end());
      EXPECT_EQ(joined.curve.losses, whole.curve.losses);
      EXPECT_EQ(joined.curve.scales, whole.curve.scales);
      EXPECT_EQ(rest.weights, whole.weights);
      EXPECT_NE(joined.weights, whole.weights);
      fs::remove_all(dir);
    }
  }
}

TEST_F(Training, PaddedBatches) {
  const Outcome reference = run({.device = cpu, .seed = kFixedSeed, .steps = 10, .batch_size = 6}),
                device = run({.seed = kFixedSeed, .steps = 10, .batch_size = 6});
  EXPECT_LT(greatest_difference(reference.curve.losses, device.curve.losses), 1e-4);
}

TEST_F(Training, OutOfMemoryLeavesTheModelAsItWas) {
  run({.steps = 3});
  allocator(kCuda).empty_cache();
  // Limits from no memory to enough: every failure is clear, and training works afterwards.
  const int64_t base = allocator(kCuda).statistics().reserved_bytes;
  int failures = 0;
  for (int64_t extra = int64_t{2} << 20; extra <= int64_t{64} << 20; extra += int64_t{6} << 20) {
    allocator(kCuda).set_limit(base + extra);
    try {
      run({.steps = 3});
    } catch (const OutOfMemoryError& error) {
      ++failures;
      EXPECT_NE(std::strstr(error.what(), "out of memory on cuda:0"), nullptr) << error.what();
      EXPECT_NE(std::strstr(error.what(), "try"), nullptr) << error.what();
    }
    allocator(kCuda).set_limit(0);
    allocator(kCuda).empty_cache();
  }
  EXPECT_GT(failures, 0);
  EXPECT_EQ(run({.steps = 3}).curve.losses.size(), 3u);
}

}  // namespace
}  // namespace tern::models
