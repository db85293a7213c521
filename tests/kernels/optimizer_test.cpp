// Optimizer updates against PyTorch's formulas in double.

#include "tern/tests/kernels/optimizer_reference.h"
#include "tern/tests/kernels/user_rule.h"

namespace tern::kernels {
namespace {

TEST(Optimizer, AdamFiftyStepsAgainstDouble) {
  for_each_level([] {
    std::mt19937_64 random = fresh_random();
    Model model(static_cast<int32_t>(kAdamGroups.size()), random, false);
    const std::vector<std::vector<double>> before = model.weights();
    int64_t count = 0;
    for (int step = 1; step <= 50; ++step) {
      model.draw_gradients(random);
      // Clipping by a factor of 0.25 on some steps, and a loss scale of 8 whose inverse is applied here.
      const GradientNorm norm{64.0 * 64.0 * 4.0, 0, -1};  // norm 128 as stored, 16 unscaled
      const float inverse = 0.125f;
      const bool clips = step % 3 == 0;
      const double factor = clips ? 0.125 * std::min(1.0, 4 / (16 + 1e-6)) : 1;
      for (size_t t = 0; t < model.tensors.size(); ++t)
        reference_adam(*model.parameters[t], kAdamGroups[model.tensors[t].group], step, factor);
      update_weights(Stream{}, make_rules(kAdamGroups.data()), model.tensors.data(),
                     static_cast<int64_t>(model.tensors.size()),
                     {.step = &count,
                      .norm = clips ? &norm : nullptr,
                      .max_norm = 4,
                      .inverse_scale = clips ? &inverse : nullptr});
      ASSERT_NO_FATAL_FAILURE(model.compare()) << "step " << step;
    }
    EXPECT_EQ(count, 50);
    expect_plain_weights_moved(model, before);
  });
}

TEST(Optimizer, SgdFiftyStepsAgainstDouble) {
  for_each_level([] {
    std::mt19937_64 random = fresh_random();
    Model model(static_cast<int32_t>(kSgdGroups.size()), random, false);
    const std::vector<std::vector<double>> before = model.weights();
    int64_t count = 0;
    for (int step = 1; step <= 50; ++step) {
      model.draw_gradients(random);
      for (size_t t = 0; t < model.tensors.size(); ++t)
        reference_sgd(*model.parameters[t], kSgdGroups[model.tensors[t].group], step, 1);
      update_weights(Stream{}, make_rules(kSgdGroups.data()), model.tensors.data(),
                     static_cast<int64_t>(model.tensors.size()), {.step = &count});
      ASSERT_NO_FATAL_FAILURE(model.compare()) << "step " << step;
    }
    EXPECT_EQ(count, 50);
    expect_plain_weights_moved(model, before);
  });
}

TEST(Optimizer, KahanHasTheBitsOfItsDefinition) {
  for_each_level([] {
    std::mt19937_64 random = fresh_random();
    for (const int64_t size : {1, 7, 257, 5003})
      check_kahan_bits(size, 60, Order::kMisaligned, random,
                       [](const OptimizerTensor& tensor, const SgdRule& group, int64_t& count) {
                         update_weights(Stream{}, make_rules(&group), &tensor, 1, {.step = &count});
                       });
  });
}

TEST(Optimizer, KahanFollowsFp32WherePlainBf16Stalls) {
  for_each_level([] {
    std::mt19937_64 random = fresh_random();
    check_tiny_updates(1000, random,
                       [](const std::vector<OptimizerTensor>& tensors, const AdamRule& group, int64_t& count) {
                         update_weights(Stream{}, make_rules(&group), tensors.data(), 3, {.step = &count});
                       });
  });
}

/// Learning rates from device memory are as good as the groups' own.
TEST(Optimizer, RatesFromDeviceMemory) {
  for_each_level([] {
    const auto run = [](bool from_memory) {
      std::mt19937_64 random = fresh_random();
      const auto groups = static_cast<int32_t>(kAdamGroups.size());
      Model model(groups, random, false);
      std::vector<AdamRule> adam_groups = kAdamGroups;
      std::vector<SgdRule> sgd_groups(adam_groups.size(), kSgdGroups[1]);
      std::vector<double> rates;
      for (int32_t g = 0; g < groups; ++g) {
        rates.push_back(adam_groups[g].lr = sgd_groups[g].lr = 1e-3 * (g + 1));
        if (from_memory) adam_groups[g].lr = sgd_groups[g].lr = 77;
      }
      int64_t count = 0;
      for (int step = 0; step < 3; ++step) {
        model.draw_gradients(random);
        const OptimizerStep call{.step = &count, .lr = from_memory ? rates.data() : nullptr};
        const auto size = static_cast<int64_t>(model.tensors.size());
        if (step < 2)
          update_weights(Stream{}, make_rules(adam_groups.data()), model.tensors.data(), size, call);
        else
          update_weights(Stream{}, make_rules(sgd_groups.data()), model.tensors.data(), size, call);
      }
      std::vector<std::vector<double>> weights;
      for (auto& p : model.parameters) weights.push_back(p->weight.values());
      return weights;
    };
    EXPECT_EQ(run(true), run(false));
  });
}

TEST(Optimizer, ThreadsAndBlocksDoNotChangeTheBits) {
  for_each_level([] {
    std::vector<std::vector<double>> results[2];
    for (const int threads : {1, 2}) {
      const int before = num_threads();
      set_num_threads(threads);
      std::mt19937_64 random = fresh_random();
      Model model(1, random, true);
      model.draw_gradients(random);
      int64_t count = 0;
      const AdamRule group;
      for (auto& p : model.parameters) reference_adam(*p, group, 1, 1);
      update_weights(Stream{}, make_rules(&group), model.tensors.data(), static_cast<int64_t>(model.tensors.size()),
                     {.step = &count});
      results[threads - 1] = model.weights();
      model.compare();
      set_num_threads(before);
    }
    EXPECT_EQ(results[0], results[1]);
  });
}

TEST(Optimizer, NonFiniteGradientsSkipTheStep) {
  std::mt19937_64 random = fresh_random();
  Model model(1, random, false);
  model.draw_gradients(random);
  std::vector<std::vector<char>> before;
  for (auto& p : model.parameters)
    for (Array* a : p->arrays()) before.push_back(a->bytes());
  const GradientNorm norm{INFINITY, 1, 3};
  const AdamRule adam_group{.weight_decay = 0.1};
  const SgdRule sgd_group{.momentum = 0.9};
  int64_t count = 6;
  const auto size = static_cast<int64_t>(model.tensors.size());
  update_weights(Stream{}, make_rules(&adam_group), model.tensors.data(), size,
                 {.step = &count, .norm = &norm, .max_norm = 1});
  update_weights(Stream{}, make_rules(&sgd_group), model.tensors.data(), size, {.step = &count, .norm = &norm});
  const GradientNorm sound{1, 0, -1};
  update_weights(Stream{}, make_rules(&sgd_group), model.tensors.data(), size,
                 {.step = &count, .norm = &sound, .earlier = &norm});
  EXPECT_EQ(count, 6);
  size_t index = 0;
  for (auto& p : model.parameters)
    for (Array* a : p->arrays()) EXPECT_TRUE(before[index++] == a->bytes());
  update_weights(Stream{}, make_rules(&sgd_group), model.tensors.data(), size,
                 {.step = &count, .norm = &norm, .skip_non_finite = false});
  EXPECT_EQ(count, 7);
}

TEST(Optimizer, ZeroGradientsGiveNoNan) {
  for_each_level([] {
    Array weight(float32, {40}), gradient(float32, {40}), m(float32, {40}), v(float32, {40});
    for (int64_t i = 0; i < 40; ++i) weight.set(i, 1), gradient.set(i, 0), m.set(i, 0), v.set(i, 0);
    OptimizerTensor tensor;
    tensor.weight = weight.view().data;
    tensor.gradient = gradient.view().data;
    tensor.states[0] = m.view().data;
    tensor.states[1] = v.view().data;
    tensor.size = 40;
    const AdamRule group;
    int64_t count = 0;
    update_weights(Stream{}, make_rules(&group), &tensor, 1, {.step = &count});
    for (int64_t i = 0; i < 40; ++i) EXPECT_EQ(weight.at(i), 1);
  });
}

TEST(Optimizer, ARuleFromOutside) {
  static_assert(index_in<RmspropRule>(BuiltinRules()) == -1);
  for_each_level([] {
    std::mt19937_64 random = fresh_random();
    check_user_rule(
        Order::kMisaligned, random,
        [](const std::vector<OptimizerTensor>& tensors, const std::vector<RmspropRule>& groups, int64_t& count) {
          update_weights(Stream{}, make_rules(groups.data()), tensors.data(), static_cast<int64_t>(tensors.size()),
                         {.step = &count});
        });
  });
}

TEST(Optimizer, ScaleByNorm) {
  std::mt19937_64 random = fresh_random();
  for_each_level([&] {
    for (const DType dtype : kFloatTypes) {
      Array a(dtype, {7}, Order::kMisaligned), empty(dtype, {0}), b(dtype, {3, 501});
      fill_with_random(a, random, -1, 1);
      fill_with_random(b, random, -1, 1);
      const std::vector<double> a_before = a.values(), b_before = b.values();
      const View views[] = {a.view(), empty.view(), b.view()};
      const GradientNorm small{0.25, 0, -1}, large{100, 0, -1};
      scale_by_norm(Stream{}, views, 3, &small, 1);
      EXPECT_EQ(a.values(), a_before);
      scale_by_norm(Stream{}, views, 3, &large, 1);
      const double factor = 1 / (10 + 1e-6);
      for (int64_t i = 0; i < 7; ++i)
        EXPECT_TRUE(near(a.at(i), a_before[i] * factor,
                         1.01 * epsilon_of(dtype) + 0x1p-23 * (dtype != float64) + 0x1p-52, 6e-8 * (dtype == float16)));
      for (int64_t i = 0; i < 1503; ++i)
        EXPECT_TRUE(near(b.at(i), b_before[i] * factor,
                         1.01 * epsilon_of(dtype) + 0x1p-23 * (dtype != float64) + 0x1p-52, 6e-8 * (dtype == float16)));
    }
  });
}

TEST(Optimizer, AveragesAgainstDouble) {
  for_each_level([] {
    std::mt19937_64 random = fresh_random();
    for (const bool warmup : {false, true})
      check_averages(70001, Order::kMisaligned, warmup, random,
                     [](const std::vector<AverageTensor>& tensors, const AverageStep& step) {
                       average_weights(Stream{}, tensors.data(), static_cast<int64_t>(tensors.size()), step);
                     });
  });
}

}  // namespace
}  // namespace tern::kernels
