// Costs of a training step on the host: launches, waits and memory calls, counted by the stand-in runtime.

#include "tern/tests/cuda/small_text.h"
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
  DistilBert model(fresh_scope(kCuda),
                   {.vocab_size = kVocabSize, .max_positions = 16, .width = 32, .heads = 2, .hidden = 64});
  const Texts texts = fixed_texts(64);
  TextTask task(model, texts.tokens, texts.labels, texts.rows, {}, 0, {.epochs = 1, .batch_tokens = 16, .workers = 0});
  StepCounts observer;
  train(task, {.dtype = dtype, .device = kCuda, .capture = capture, .max_steps = 8}, observer);
  return observer.counts;
}

void expect_quiet(const standin::Counters& c, size_t step) {
  EXPECT_EQ(c.host_synchronizations, 0u) << "step " << step;
  EXPECT_TRUE(step < 2 || c.memory_calls == 0) << "step " << step << ": " << c.memory_calls;  // step 0 is the first
}

TEST(Counts, StepsAreNotWaitedForAndTakeNoMemory) {
  for (const DType dtype : {float32, bfloat16, float16}) {
    const auto plain = count_steps(false, dtype), captured = count_steps(true, dtype);
    SCOPED_TRACE(dtype);
    ASSERT_EQ(plain.size(), 7u);
    for (size_t i = 0; i < plain.size(); ++i) {
      expect_quiet(plain[i], i);
      EXPECT_TRUE(i == 0 || plain[i].kernel_launches <= 200) << i;  // the first step also creates the optimizer's state
    }
    printf("%s: %llu launches a step, captured %llu and a graph\n", name_of(dtype),
           static_cast<unsigned long long>(plain.back().kernel_launches),
           static_cast<unsigned long long>(captured.back().kernel_launches));
    for (const auto& [name, count] : plain.back().kernels_by_name)
      printf("  %s %llu\n", name.c_str(), static_cast<unsigned long long>(count));
    for (size_t i = 4; i < captured.size(); ++i) {
      expect_quiet(captured[i], i);
      EXPECT_EQ(captured[i].graph_launches, 1u);
      EXPECT_LE(captured[i].kernel_launches, 7u);  // one copy for each input
    }
  }
}

/// The sums in two stages, the channels' numbers and the pass over the images, in each direction. Forward adds to the
/// count of batches (two launches), and backward copies the gradient that the caller gives.
TEST(Counts, LaunchesOfABatchNorm) {
  nn::BatchNorm2d norm(fresh_scope(kCuda), 24);
  Generator generator(7);  // the numbers do not matter
  const Tensor x = randn({6, 24, 7, 5}, generator).to(kCuda).channels_last();
  const Tensor dy = randn(x.shape(), generator).to(kCuda).channels_last();
  for (const DType dtype : {float32, bfloat16}) {
    Tensor leaf = x.to(dtype).detach().set_requires_grad(true);
    const Tensor gradient = dy.to(dtype);
    norm.zero_grad();
    standin::reset_counters();
    const Tensor y = norm.forward(leaf, ImageActivation::kRelu);
    EXPECT_LE(standin::counters().kernel_launches, 6u) << name_of(dtype);
    standin::reset_counters();
    y.backward(gradient);
    EXPECT_LE(standin::counters().kernel_launches, 5u) << name_of(dtype);
  }
}

}  // namespace
}  // namespace tern::models
