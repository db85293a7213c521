// Modules that call one function each, in training and in evaluation. The functions are tested in tests/core.

#include <deque>

#include "tern/core/ops/ops.h"
#include "tern/nn/layers/activation.h"
#include "tern/nn/layers/dropout.h"
#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

nn::Scope seeded_scope(uint64_t salt) {
  static std::deque<Generator> generators;
  return nn::Scope({.generator = generators.emplace_back(fresh_generator(salt))});
}

TEST(FurtherLayers, ActivationsCallTheirFunctions) {
  const Tensor x = fresh_normal({5, 7}, 1);
  expect_equal(nn::CELU(seeded_scope(0), 0.3).forward(x), celu(x, 0.3));
  expect_equal(nn::CELU(seeded_scope(0)).forward(x), celu(x, 1));
  expect_equal(nn::Threshold(seeded_scope(0), 0.2, -3).forward(x), threshold(x, 0.2, -3));
}

template <class Module, class Function>
void check_dropout(const char* name, const Function& function) {
  const Tensor x = fresh_normal({6, 8, 3}, 1);
  Module drop(seeded_scope(2), 0.4);
  Generator draws = fresh_generator(2);
  const Tensor got = drop.forward(x), next = drop.forward(x);
  expect_equal(got, function(x, DropoutOptions{.p = 0.4, .generator = &draws}));
  EXPECT_NE(got.to_vector<float>(), x.to_vector<float>());
  EXPECT_NE(got.to_vector<float>(), next.to_vector<float>());
  drop.eval();
  EXPECT_TRUE(same(drop.forward(x), x));
  expect_error([] { Module(seeded_scope(0), 1.5); }, {name, "[0, 1]", "1.5"});
  expect_error([] { Module(seeded_scope(0), NAN); }, {name, "[0, 1]"});
}

TEST(FurtherLayers, DropoutsFollowTheTrainingFlagAndTheGenerator) {
  check_dropout<nn::FeatureDropout>("nn::FeatureDropout", feature_dropout);
  check_dropout<nn::AlphaDropout>("nn::AlphaDropout", alpha_dropout);
  expect_error([] { nn::FeatureDropout(seeded_scope(0)).forward(ones({3})); }, {"feature_dropout: expected [batch"});
}

}  // namespace
}  // namespace tern::test
