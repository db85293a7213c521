// Every op with random tensors: each call gives a result or an Error, and results can be differentiated.
// AddressSanitizer detects accesses outside the tensors.

#include "tern/tests/core/op_inputs.h"

#include <algorithm>
#include <map>

#include "tern/tests/core/core_test.h"
#include "tern/tests/support/sanitizer.h"

namespace tern::test {
namespace {

/// check(call, seed, name) for every op with a new seed each, `rounds` times, until a failure.
template <class Check>
void for_every_call(int rounds, const Check& check) {
  std::mt19937_64 random = fresh_random();
  for (int round = 0; round < trials(rounds); ++round)
    for (const auto& [name, call] : calls()) {
      const uint64_t seed = random();
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", " << name);
      check(call, seed, std::string(name));
      if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(OpInputs, GiveAResultOrAnError) {
  const uint64_t seed = fresh_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Inputs in(seed, {.hostile = true});
  std::map<std::string, int> results;
  for (int round = 0; round < 400; ++round)
    for (const auto& [name, call] : calls()) {
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
  for (const auto& [name, call] : calls()) EXPECT_GT(results[name], 0) << name << " never got what it takes";
}

/// When an input is changed in place between forward and backward: an error, or the gradients without the change.
TEST(OpInputs, ChangedInPlaceAreNoticed) {
  std::mt19937_64 random = fresh_random(1);
  int noticed = 0, harmless = 0;
  for_every_call(400, [&](const Call& call, uint64_t seed, const std::string&) {
    Inputs left_alone(seed), changed(seed);
    const Outcome expected = run(call, left_alone, float32, true);
    if (expected.gradients.empty()) return;
    changed.begin();
    try {
      const Tensor y = call(changed);
      const Tensors& used = changed.used();
      Tensor input = used[random() % used.size()].detach();
      input.copy_(add(input.to(float32), 1.0).to(input.dtype()));
      sum(y.to(float64)).backward();
      ++harmless;
    } catch (const Error& error) {
      noticed += std::string(error.what()).find("modified in place") != std::string::npos;
      return;
    }
    for (size_t i = 0; i < expected.gradients.size(); ++i)
      expect_alike(expected.gradients[i], changed.leaves()[i].grad(), 0, "gradient " + std::to_string(i));
  });
  EXPECT_GT(noticed, 100);
  EXPECT_GT(harmless, 100);
}

/// A second backward through a retained graph adds the same bits: the first did not change the saved tensors.
TEST(OpInputs, GiveTheSameGradientsAgain) {
  for_every_call(100, [](const Call& call, uint64_t seed, const std::string&) {
    Inputs once(seed), twice(seed);
    const Outcome expected = run(call, once, float32, true);
    if (expected.gradients.empty()) return;
    twice.begin();
    // y is used twice, so that its gradients are added.
    const Tensor y = call(twice), loss = sum(y.to(float64)) + sum(y.to(float64) * 3.0);
    loss.backward({}, true);
    // A factor of four is exact, except that fp16 numbers may become subnormal.
    const Tensors& used = twice.used();
    const bool has_fp16 = std::any_of(used.begin(), used.end(), [](const Tensor& t) { return t.dtype() == float16; });
    const double rounding = has_fp16 ? 16 * device_tolerance(float16) : 0;
    Tensors first;
    for (const Tensor& leaf : twice.leaves()) {
      first.push_back(leaf.grad().defined() ? leaf.grad().clone() : Tensor());
      Tensor(leaf).set_grad({});
    }
    loss.backward();
    for (size_t i = 0; i < first.size(); ++i) {
      const std::string name = "gradient " + std::to_string(i);
      expect_alike(first[i], twice.leaves()[i].grad(), 0, name);
      if (first[i].defined() && is_floating(y.dtype()))
        expect_alike(first[i], expected.gradients[i] * 4.0, rounding, "four times " + name);
    }
  });
}

/// Gradients of the sum against finite differences, in fp64.
TEST(OpInputs, HaveTheGradientsOfTheirDifferences) {
  constexpr double kMove = 1e-6;
  int compared = 0;
  for_every_call(100, [&](const Call& call, uint64_t seed, const std::string& name) {
    const auto loss_of = [&](size_t leaf, double move) {
      Inputs in(seed, {.moved_leaf = static_cast<int>(leaf), .move = move});
      in.begin();
      return sum(call(in).to(float64)).item<double>();
    };
    Inputs in(seed);
    const Outcome outcome = run(call, in, float32, true);
    if (outcome.gradients.empty() || outcome.y.dtype() != float64) return;
    if (name == "embedding") return;  // the padding row's gradient is 0 by definition
    // The last of the numbers that go to one place stays, and all have its gradient, as in PyTorch.
    if (name == "max_unpool2d") return;
    for (size_t i = 0; i < outcome.gradients.size(); ++i) {
      if (!in.can_move(i) || !outcome.gradients[i].defined()) continue;
      const double along = sum(outcome.gradients[i] * Inputs::direction_like(in.leaves()[i])).item<double>();
      const auto difference_of = [&](double move) { return (loss_of(i, move) - loss_of(i, -move)) / (2 * move); };
      const double ahead = loss_of(i, kMove);
      double difference = difference_of(kMove);
      if (!std::isfinite(along) || !std::isfinite(difference)) continue;
      const double bound = 1e-6 * (1 + std::abs(ahead) + std::abs(along));
      // Where the function bends strongly (the logarithm of a number near 0): shorter moves, and Richardson's
      // extrapolation of two.
      for (double move = kMove; std::abs(along - difference) > bound && move > 1e-8; move /= 4)
        difference = (4 * difference_of(move / 2) - difference_of(move)) / 3;
      ASSERT_NEAR(along, difference, bound) << "leaf " << i;
      ++compared;
    }
  });
  EXPECT_GT(compared, 100);
}

/// At most about twenty terms are added in another order, and a 16-bit result may round to a neighbour.
TEST(OpInputs, OfAnyStridesGiveWhatCopiesGive) {
  expect_same_outcomes(fresh_seed(), {.contiguous = true, .in_place = false}, {.in_place = false}, 200, false, 1);
}

}  // namespace
}  // namespace tern::test
