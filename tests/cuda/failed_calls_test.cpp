// Failures of every function of CUDA and its libraries that a training calls: one call, the first, the last or one in
// between, or all calls. The training ends with an error, or its results equal those without failures. The next
// training is not affected.

#ifdef TERN_STANDIN

#include <set>

#include "tern/core/memory/allocator.h"
#include "tern/models/distilbert/distilbert.h"
#include "tern/models/text/text_task.h"
#include "tern/tests/cuda/device_test.h"
#include "tern/tests/emulator/runtime/standin.h"

namespace tern::models {
namespace {

struct Outcome {
  std::vector<double> losses, weights;
  bool operator==(const Outcome&) const = default;
};

class Losses final : public TrainObserver {
 public:
  explicit Losses(std::vector<double>& to) : to_(to) {}
  void on_step(const StepMetrics& m) override { to_.push_back(m.loss); }

 private:
  std::vector<double>& to_;
};

/// Four steps of a tiny DistilBERT; the last two are replays.
Outcome train_once() {
  DistilBertConfig config;
  config.vocab_size = 50;
  config.width = 16;
  config.layers = 1;
  config.heads = 1;
  config.hidden = 24;
  config.max_positions = 16;
  const DistilBert made(nn::Scope({.generator = Generator(fresh_seed())}), config);
  DistilBert model(nn::Scope({.device = kCuda, .generator = Generator(fresh_seed())}), config);
  model.load_state_dict(made.state_dict());
  std::vector<int32_t> labels, rows;
  auto tokens = std::make_shared<data::TokenSet>();
  for (int32_t i = 0; i < 40; ++i) {
    for (int32_t t = 0; t < 5 + i % 7; ++t) tokens->ids.push_back((i * 7 + t * 3) % 50);
    tokens->offsets.push_back(static_cast<int64_t>(tokens->ids.size()));
    labels.push_back(i % 2);
    rows.push_back(i);
  }
  TextTask task(model, tokens, labels, rows, {}, 0, {.epochs = 1, .batch_tokens = 16, .workers = 1});
  Outcome outcome;
  Losses losses(outcome.losses);
  train(task, {.lr = 1e-2, .dtype = float16, .device = kCuda, .max_steps = 4}, losses);
  for (const NamedTensor& p : model.parameters())
    for (const double w : p.tensor.to_vector<double>()) outcome.weights.push_back(w);
  return outcome;
}

TEST(FailedCalls, EndTheTrainingOrChangeNothing) {
  train_once();  // creates the state that a process creates once
  standin::reset_counters();
  const Outcome expected = train_once();
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

#endif
