// Every op with whatever tensors: each call gives a result or an Error, and what it gave can be differentiated. What a
// kernel reads or writes beyond its tensors shows under AddressSanitizer.

#include "tern/tests/core/op_inputs.h"

#include <map>

#include "tern/tests/core/core_test.h"

namespace tern {
namespace {

TEST(OpInputs, GiveAResultOrAnError) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  test::Inputs in(seed, {.hostile = true});
  std::map<std::string, int> results;
  for (int round = 0; round < 400; ++round) {
    for (const auto& [name, call] : test::calls()) {
      in.begin();
      const Autocast region(cpu, in.one_in(4) ? (in.one_in(2) ? bfloat16 : float16) : float32);
      try {
        const Tensor y = call(in);
        ASSERT_TRUE(y.defined()) << name;
        y.to_vector<double>();
        ++results[name];
        if (in.one_in(2)) in.keep(y);
        if (y.requires_grad() && in.one_in(2)) sum(y.to(float32)).backward();
      } catch (const Error& error) {
        ASSERT_GT(std::string(error.what()).size(), 10u) << name << ": " << error.what();
      }
    }
  }
  for (const auto& [name, call] : test::calls()) EXPECT_GT(results[name], 0) << name << " never got what it takes";
}

/// An input that is changed in place between forward and backward: an error, or the gradients without the change.
TEST(OpInputs, ChangedInPlaceAreNoticed) {
  std::mt19937_64 random(std::random_device{}());
  int noticed = 0, harmless = 0;
  for (int round = 0; round < 400; ++round) {
    for (const auto& [name, call] : test::calls()) {
      const uint64_t seed = random();
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", " << name);
      test::Inputs left_alone(seed), changed(seed);
      const test::Outcome expected = test::run(call, left_alone, float32, true);
      if (expected.gradients.empty()) continue;
      changed.begin();
      try {
        const Tensor y = call(changed);
        const std::vector<Tensor>& used = changed.used();
        Tensor input = used[random() % used.size()].detach();
        input.copy_(add(input.to(float32), 1.0).to(input.dtype()));
        sum(y.to(float64)).backward();
        ++harmless;
      } catch (const Error& error) {
        noticed += std::string(error.what()).find("modified in place") != std::string::npos;
        continue;
      }
      for (size_t i = 0; i < expected.gradients.size(); ++i)
        test::expect_alike(expected.gradients[i], changed.leaves()[i].grad(), 0, "gradient " + std::to_string(i));
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(noticed, 100);
  EXPECT_GT(harmless, 100);
}

TEST(OpInputs, OfAnyStridesGiveWhatCopiesGive) {
  test::expect_same_outcomes(std::random_device()(), {.contiguous = true, .in_place = false}, {.in_place = false}, 200,
                             false);
}

}  // namespace
}  // namespace tern
