// Costs of a training step on the host: launches, waits and memory calls, counted by the stand-in runtime.

#ifdef TERN_STANDIN

#include "tern/models/distilbert/distilbert.h"
#include "tern/models/text/text_task.h"
#include "tern/tests/cuda/device_test.h"
#include "tern/tests/emulator/runtime/standin.h"

namespace tern::models {
namespace {

/// Counts the calls from the queueing of one step to the next.
class StepCounts final : public TrainObserver {
 public:
  void on_step_begin(int64_t step) override {
    if (step > 1) counts.push_back(standin::counters());
    standin::reset_counters();
  }
  std::vector<standin::Counters> counts;
};

/// DistilBERT-base's layers at a small width, which does not change the counts.
std::vector<standin::Counters> count_steps(bool capture, DType dtype) {
  DistilBertConfig config;
  config.vocab_size = 50;
  config.width = 64;
  config.heads = 2;
  config.hidden = 128;
  config.max_positions = 16;
  DistilBert model(nn::Scope({.device = kCuda, .generator = Generator(fresh_seed())}), config);
  std::vector<int32_t> labels, rows;
  auto tokens = std::make_shared<data::TokenSet>();
  for (int32_t i = 0; i < 64; ++i) {
    for (int32_t t = 0; t < 5 + i % 7; ++t) tokens->ids.push_back((i * 7 + t * 3) % 50);
    tokens->offsets.push_back(static_cast<int64_t>(tokens->ids.size()));
    labels.push_back(i % 2);
    rows.push_back(i);
  }
  TextTask task(model, tokens, labels, rows, {}, 0, {.epochs = 1, .batch_tokens = 32, .workers = 0});
  StepCounts observer;
  train(task, {.dtype = dtype, .device = kCuda, .capture = capture, .max_steps = 10}, observer);
  return observer.counts;
}

void expect_quiet(const standin::Counters& c, size_t step) {
  EXPECT_EQ(c.host_synchronizations, 0u) << "step " << step;
  if (step >= 2) {  // step 0 is the first
    EXPECT_EQ(c.memory_calls, 0u) << "step " << step;
  }
}

TEST(Counts, StepsAreNotWaitedForAndTakeNoMemory) {
  for (const DType dtype : {float32, bfloat16, float16}) {
    const auto plain = count_steps(false, dtype), captured = count_steps(true, dtype);
    ASSERT_EQ(plain.size(), 9u);
    for (size_t i = 0; i < plain.size(); ++i) {
      SCOPED_TRACE(name_of(dtype));
      expect_quiet(plain[i], i);
      // The first step also creates the optimizer's state.
      if (i > 0) {
        EXPECT_LE(plain[i].kernel_launches, 200u);
      }
    }
    printf("%s: %llu launches a step, captured %llu and a graph\n", name_of(dtype),
           static_cast<unsigned long long>(plain[8].kernel_launches),
           static_cast<unsigned long long>(captured[8].kernel_launches));
    for (const auto& [name, count] : plain[8].kernels_by_name)
      printf("  %s %llu\n", name.c_str(), static_cast<unsigned long long>(count));
    for (size_t i = 4; i < captured.size(); ++i) {
      SCOPED_TRACE(name_of(dtype));
      expect_quiet(captured[i], i);
      EXPECT_EQ(captured[i].graph_launches, 1u);
      EXPECT_LE(captured[i].kernel_launches, 7u);  // one copy for each input
    }
  }
}

}  // namespace
}  // namespace tern::models

#endif
