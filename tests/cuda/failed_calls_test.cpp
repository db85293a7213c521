// Failures of every function of CUDA and its libraries that a training calls: one call, the first, the last or one in
// between, or all calls. The training ends with an error, or its results equal those without failures. The next
// training is not affected.

#include <set>

#include "tern/core/memory/allocator.h"
#include "tern/tests/cuda/small_text.h"
#include "tern/tests/emulator/runtime/standin.h"

namespace tern::models {
namespace {

class Losses final : public TrainObserver {
 public:
  void on_step(const StepMetrics& m) override { losses.push_back(m.loss); }
  std::vector<double> losses;
};

/// Losses and weights of four steps of a tiny DistilBERT; the last two are replays.
test::Values train_once() {
  const DistilBertConfig config = {
      .vocab_size = kVocabSize, .max_positions = 16, .width = 16, .layers = 1, .heads = 1, .hidden = 24};
  const DistilBert made(fresh_scope(cpu), config);
  DistilBert model(fresh_scope(kCuda), config);
  model.load_state_dict(made.state_dict());
  const Texts texts = fixed_texts(40);
  TextTask task(model, texts.tokens, texts.labels, texts.rows, {}, 0, {.epochs = 1, .batch_tokens = 16, .workers = 1});
  Losses observer;
  train(task, {.lr = 1e-2, .dtype = float16, .device = kCuda, .max_steps = 4}, observer);
  test::Values outcome = values_of(model.parameters());
  outcome.push_back(observer.losses);
  return outcome;
}

TEST(FailedCalls, EndTheTrainingOrChangeNothing) {
  train_once();  // creates the state that a process creates once
  standin::reset_counters();
  const test::Values expected = train_once();
  const auto calls = standin::counters().calls;
  const int64_t live = allocator(kCuda).statistics().live_bytes;
  ASSERT_GT(calls.size(), 15u);
  std::mt19937_64 random(fresh_seed());
  std::set<std::string> ended;
  const auto fail = [&](const std::string& function, const std::set<uint64_t>& turns) {
    SCOPED_TRACE(testing::Message() << function << ", calls " << *turns.begin() << " to " << *turns.rbegin());
    for (const uint64_t n : turns)
      standin::fail_call(function, static_cast<int>(n), 1);  // an invalid value; for a library: not initialised
    std::string message;
    try {
      ASSERT_TRUE(train_once() == expected) << "no error, and other numbers";
    } catch (const Error& error) {
      message = error.what();
      ended.insert(function);
    }
    standin::clear_faults();
    ASSERT_EQ(standin::device_error(), "");
    if (message.empty()) return;
    ASSERT_TRUE(train_once() == expected) << "other numbers after " << message;
    ASSERT_EQ(allocator(kCuda).statistics().live_bytes, live) << "after " << message;
  };
  for (const auto& [function, count] : calls) {
    if (function.find("Synchronize") != std::string::npos) continue;  // fails only with the device
    for (const uint64_t n : std::set<uint64_t>{1, 1 + random() % count, count}) fail(function, {n});
    if (!ended.contains(function)) {  // if one failed call has no effect, fail all calls
      std::set<uint64_t> each;
      for (uint64_t n = 1; n <= 4 * count; ++n) each.insert(n);
      fail(function, each);
    }
    if (HasFatalFailure()) return;
  }
  EXPECT_GE(ended.size(), 10u) << testing::PrintToString(ended);
}

}  // namespace
}  // namespace tern::models
