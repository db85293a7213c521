// LAMB and Adafactor over all parameters against their formulas in long double.

#include "tern/tests/kernels/contracts/layerwise_optimizer.h"

namespace tern::kernels {
namespace {

class LayerwiseOptimizer : public OnTarget {};
INSTANTIATE_TEST_SUITE_P(, LayerwiseOptimizer, testing::ValuesIn(all_targets()), name_of_target);

const std::vector<LambRule> kLambGroups = {
    {.lr = 0.02},
    {.lr = 0.02, .weight_decay = 0},
    {.lr = 0.02, .beta1 = 0.8, .weight_decay = 0, .always_adapt = true},
    {.lr = 0.02, .beta2 = 0.9, .eps = 1e-3, .weight_decay = 0.3, .maximize = true}};
const std::vector<AdafactorRule> kAdafactorGroups = {{},
                                                     {.lr = 0.3, .beta2_decay = -0.5, .d = 2, .weight_decay = 0.1},
                                                     {.lr = 0.05, .eps1 = 1e-3, .eps2 = 2, .maximize = true}};

/// Steps of every group. Some clip by a factor of 0.25 and have a loss scale of 8 whose inverse is applied here.
/// Learning rates of the groups, or from device memory.
template <class Rule>
void check_layers(const std::vector<Rule>& rules, Order order, bool rates_from_memory, std::mt19937_64& random) {
  std::vector<Rule> groups = rules;
  std::vector<double> rates;
  for (Rule& group : groups) rates.push_back(rates_from_memory ? std::exchange(group.lr, 99) : group.lr);
  Layers layers(static_cast<int32_t>(rules.size()), random, order);
  const int steps = target().is_cpu() ? 3 : 2;
  int64_t count = static_cast<int64_t>(random() % 3);
  for (int step = 1; step <= steps; ++step) {
    layers.draw_gradients(random);
    const GradientNorm norm{64.0 * 64.0 * 4.0, 0, -1};  // norm 128 as stored, 16 unscaled
    const float inverse = 0.125f;
    const bool clips = step % 2 == 0;
    const double factor = clips ? 0.125 * std::min(1.0, 4 / (16 + 1e-6)) : 1;
    for (Layer* p : layers.all()) reference_layer(*p, rules[static_cast<size_t>(p->group)], count + 1, factor);
    update_layers(groups, layers.all(),
                  {.step = &count,
                   .norm = clips ? &norm : nullptr,
                   .max_norm = 4,
                   .inverse_scale = clips ? &inverse : nullptr,
                   .lr = rates_from_memory ? rates.data() : nullptr});
    ASSERT_NO_FATAL_FAILURE(layers.compare()) << "step " << step;
  }
}

TEST_P(LayerwiseOptimizer, LambAgainstDouble) {
  for_each_run([&] {
    check_layers(kLambGroups, Order::kMisaligned, false, random);
    check_layers(kLambGroups, Order::kContiguous, true, random);
  });
}

TEST_P(LayerwiseOptimizer, AdafactorAgainstDouble) {
  for_each_run([&] {
    check_layers(kAdafactorGroups, Order::kMisaligned, true, random);
    check_layers(kAdafactorGroups, Order::kContiguous, false, random);
  });
}

/// The same bits in every run, and for each parameter alone.
template <class Rule>
void check_bits(const std::vector<Rule>& groups, std::mt19937_64& random) {
  const uint64_t seed = random();
  std::vector<std::vector<double>> first;
  const auto make = [&] {
    std::mt19937_64 same(seed);
    auto layers = std::make_unique<Layers>(static_cast<int32_t>(groups.size()), same, Order::kContiguous);
    layers->draw_gradients(same);
    return layers;
  };
  for_each_run([&] {
    const auto layers = make();
    int64_t count = 2;
    update_layers(groups, layers->all(), {.step = &count});
    if (first.empty()) first = layers->values();
    EXPECT_TRUE(layers->values() == first);
  });
  const auto alone = make();
  for (Layer* layer : alone->all()) {
    int64_t count = 2;
    update_layers(groups, {layer}, {.step = &count});
  }
  EXPECT_TRUE(alone->values() == first);
}

TEST_P(LayerwiseOptimizer, SameBitsInEveryRunAndAlone) {
  check_bits(kLambGroups, random);
  check_bits(kAdafactorGroups, random);
}

/// More tensors and more groups than one launch takes.
template <class Rule>
void check_many(const Rule& rule, std::mt19937_64& random) {
  std::vector<std::unique_ptr<Layer>> layers;
  std::vector<Layer*> all;
  std::vector<Rule> groups(70, rule);
  for (size_t g = 0; g < groups.size(); ++g) groups[g].lr = 0.001 * static_cast<double>(g + 1);
  for (int i = 0; i < 300; ++i) {
    const int64_t rows = i % 4, columns = 1 + i % 3;
    layers.push_back(std::make_unique<Layer>(Kind{float32, float32, false}, std::max<int64_t>(rows, 1) * columns, rows,
                                             rows > 0 ? columns : 0, random, Order::kContiguous));
    all.push_back(layers.back().get());
    fill_with_random(all.back()->gradient, random, -1, 1);
    all.back()->group = i < 90 ? i % 70 : 0;
    reference_layer(*all.back(), groups[static_cast<size_t>(all.back()->group)], 1, 1);
  }
  int64_t count = 0;
  update_layers(groups, all, {.step = &count});
  EXPECT_EQ(count, 1);
  for (size_t t = 0; t < all.size(); ++t) ASSERT_NO_FATAL_FAILURE(all[t]->compare()) << "tensor " << t;
}

TEST_P(LayerwiseOptimizer, ManyTensorsAndGroups) {
  check_many(LambRule(), random);
  check_many(AdafactorRule(), random);
}

TEST_P(LayerwiseOptimizer, NonFiniteGradientsSkipTheStep) {
  Layers layers(1, random, Order::kMisaligned);
  layers.draw_gradients(random);
  const auto before = layers.values();
  const GradientNorm norm{INFINITY, 1, 3}, sound{1, 0, -1};
  int64_t count = 6;
  const auto both = [&](const OptimizerStep& step) {
    update_layers(std::vector<LambRule>(1), layers.all(), step);
    update_layers(std::vector<AdafactorRule>(1), layers.all(), step);
  };
  both({.step = &count, .norm = &norm, .max_norm = 1});
  both({.step = &count, .norm = &sound, .earlier = &norm});
  EXPECT_EQ(count, 6);
  EXPECT_TRUE(layers.values() == before);
  both({.step = &count, .norm = &sound});
  EXPECT_EQ(count, 8);
  EXPECT_FALSE(layers.values() == before);
}

/// Weights and gradients of zeros have no ratio and no length.
TEST_P(LayerwiseOptimizer, ZerosStayFinite) {
  for (const int64_t rows : {0, 5}) {
    Layer lamb(Kind{float32, float32, false}, 40, rows, rows > 0 ? 8 : 0, random, Order::kContiguous),
        adafactor(Kind{float32, float32, false}, 40, rows, rows > 0 ? 8 : 0, random, Order::kContiguous);
    for (Layer* p : {&lamb, &adafactor}) {
      p->gradient.fill(0);
      p->weight.fill(0);
    }
    int64_t count = 0, other = 0;
    update_layers(std::vector<LambRule>(1), {&lamb}, {.step = &count});
    update_layers(std::vector<AdafactorRule>(1), {&adafactor}, {.step = &other});
    EXPECT_EQ(lamb.weight.values(), std::vector<double>(40, 0));
    EXPECT_EQ(adafactor.weight.values(), std::vector<double>(40, 0));
  }
}

class LayerwiseTraffic : public LayerwiseOptimizer {};
INSTANTIATE_TEST_SUITE_P(, LayerwiseTraffic, testing::ValuesIn(counting_targets()), name_of_target);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LayerwiseTraffic);

/// What optimizer/layerwise.h says.
TEST_P(LayerwiseTraffic, MovesWhatTheHeaderSays) {
  const auto bytes_of_element = [&](const auto& rule, int64_t rows, int64_t columns) {
    const int64_t size = std::max<int64_t>(rows, 1) * columns;
    Layer p(Kind{float32, float32, false}, size, rows, rows > 0 ? columns : 0, random, Order::kContiguous);
    fill_with_random(p.gradient, random, -1, 1);
    int64_t count = 0;
    const std::vector groups = {rule};
    return traffic_of([&](Call& on) { update_layers(on, groups, {&p}, {.step = &count}); }).bytes /
           static_cast<double>(size);
  };
  const auto expect = [](double got, double least) {
    EXPECT_GE(got, least);
    EXPECT_LE(got, least * 1.05);
  };
  expect(bytes_of_element(LambRule(), 0, 40000), 40);
  expect(bytes_of_element(LambRule{.weight_decay = 0}, 0, 40000), 28);
  expect(bytes_of_element(AdafactorRule(), 0, 40000), 32);
  expect(bytes_of_element(AdafactorRule(), 128, 1024), 24);
}

}  // namespace
}  // namespace tern::kernels
