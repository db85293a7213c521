// Device times of a training step: events around each op, or CUPTI's kernels on a real device with CUPTI.

#include <fstream>
#include <nlohmann/json.hpp>

#include "tern/core/autograd/captured_step.h"
#include "tern/core/profiler/device_profiler.h"
#include "tern/core/profiler/profiler.h"
#include "tern/tests/cuda/small_text.h"
#include "tern/tests/support/temporary_folder.h"

namespace tern {
namespace {

using DeviceProfile = DeviceTest;

ProfilerOptions on_device() { return {.device = kCuda, .device_profiler = device_profiler(kCuda)}; }

nlohmann::json trace_of(const ProfileReport& report) {
  const test::TemporaryFolder folder;
  report.write_trace(folder / "trace.json");
  std::ifstream file(folder / "trace.json");
  return nlohmann::json::parse(file, nullptr, false);
}

TEST_F(DeviceProfile, ATrainingStepHasDeviceTimes) {
  using models::kVocabSize;
  models::DistilBert model(
      models::fresh_scope(kCuda),
      {.vocab_size = kVocabSize, .max_positions = 16, .width = 64, .layers = 1, .heads = 2, .hidden = 128});
  const models::Texts texts = models::fixed_texts(16);
  models::TextTask task(model, texts.tokens, texts.labels, texts.rows, {}, 0,
                        {.epochs = 1, .batch_tokens = 32, .workers = 0});
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
