// Device times of a training step: events around each op, or CUPTI's kernels on a real device with CUPTI.

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tern/core/autograd/captured_step.h"
#include "tern/core/profiler/device_profiler.h"
#include "tern/core/profiler/profiler.h"
#include "tern/models/distilbert/distilbert.h"
#include "tern/models/text/text_task.h"
#include "tern/tests/cuda/device_test.h"

namespace tern {
namespace {

class DeviceProfile : public DeviceTest {};

ProfilerOptions on_device() {
  ProfilerOptions options;
  options.device = kCuda;
  options.device_profiler = device_profiler(kCuda);
  return options;
}

nlohmann::json trace_of(const ProfileReport& report) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("tern-trace-" + std::to_string(getpid()) + ".json")).string();
  report.write_trace(path);
  std::ifstream file(path);
  const nlohmann::json trace = nlohmann::json::parse(file, nullptr, false);
  std::filesystem::remove(path);
  return trace;
}

models::DistilBert small_model() {
  models::DistilBertConfig config;
  config.vocab_size = 50;
  config.width = 64;
  config.layers = 1;
  config.heads = 2;
  config.hidden = 128;
  config.max_positions = 16;
  return models::DistilBert(nn::Scope({.device = kCuda, .generator = Generator(fresh_seed())}), config);
}

TEST_F(DeviceProfile, ATrainingStepHasDeviceTimes) {
  models::DistilBert model = small_model();
  std::vector<int32_t> labels, rows;
  auto tokens = std::make_shared<data::TokenSet>();
  for (int32_t i = 0; i < 16; ++i) {
    for (int32_t t = 0; t < 5 + i % 7; ++t) tokens->ids.push_back((i * 7 + t * 3) % 50);
    tokens->offsets.push_back(static_cast<int64_t>(tokens->ids.size()));
    labels.push_back(i % 2);
    rows.push_back(i);
  }
  models::TextTask task(model, tokens, labels, rows, {}, 0, {.epochs = 1, .batch_tokens = 32, .workers = 0});
  models::TrainObserver nobody;
  Profiler profiler(on_device());
  models::train(task, {.device = kCuda, .capture = false, .max_steps = 2}, nobody);
  const Tensor host = model.parameters()[0].tensor.to(cpu);
  const ProfileReport report = profiler.stop();
  for (const char* name : {"linear", "linear backward", "attention", "attention backward", "layer_norm"}) {
    SCOPED_TRACE(name);
    const ProfileRow row = report.row(name);
    ASSERT_GT(row.calls, 0);
    EXPECT_GT(row.device_seconds, 0);
    EXPECT_LT(row.device_seconds, report.seconds());
    EXPECT_GT(row.device_self_seconds, 0);
    EXPECT_LE(row.device_self_seconds, row.device_seconds * (1 + 1e-9));
  }
  const ProfileRow down = report.row("copy device to host");
  EXPECT_GE(down.calls, 1);
  EXPECT_GE(down.bytes, static_cast<double>(host.nbytes()));
  EXPECT_GT(report.row("optimizer").device_seconds, 0);

  const nlohmann::json trace = trace_of(report);
  ASSERT_TRUE(trace.is_object());
  int64_t complete = 0;
  for (const nlohmann::json& event : trace.at("traceEvents")) complete += event.at("ph") == "X";
  EXPECT_GT(complete, 50);
}

TEST_F(DeviceProfile, CopiesAreRanges) {
  const Tensor x = zeros({3, 5});
  Profiler profiler(on_device());
  const Tensor y = x.to(kCuda);
  y.to(cpu);
  const ProfileReport report = profiler.stop();
  for (const char* name : {"copy host to device", "copy device to host"}) {
    SCOPED_TRACE(name);
    EXPECT_EQ(report.row(name).calls, 1);
    EXPECT_EQ(report.row(name).bytes, 60);
    EXPECT_GT(report.row(name).device_seconds, 0);
  }
}

/// Marks are impossible while a step is recorded; ranges before and after it have times.
TEST_F(DeviceProfile, RecordedStepsAreLeftAlone) {
  const Tensor x = ones({64, 64}, {.device = kCuda});
  CapturedStep step([](const std::vector<Tensor>& in) { return std::vector<Tensor>{gelu(in[0])}; }, {.warmup = 1});
  Profiler profiler(on_device());
  for (int i = 0; i < 4; ++i) step({x});
  EXPECT_TRUE(step.captured());
  const ProfileReport report = profiler.stop();
  EXPECT_EQ(report.row("gelu").calls, 2);
  EXPECT_GT(report.row("gelu").device_seconds, 0);
}

TEST_F(DeviceProfile, TheCpuNeedsNone) { EXPECT_EQ(device_profiler(cpu), nullptr); }

}  // namespace
}  // namespace tern
