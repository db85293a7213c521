// Optimizer updates against PyTorch's formulas in long double.

#include "tern/tests/kernels/contracts/optimizer_formulas.h"
#include "tern/tests/kernels/user_rule.h"

namespace tern::kernels {
namespace {

class Optimizer : public OnTarget {};
INSTANTIATE_TEST_SUITE_P(, Optimizer, testing::ValuesIn(all_targets()), name_of_target);

/// Steps of every group. Some clip by a factor of 0.25 and have a loss scale of 8 whose inverse is applied here.
/// Learning rates of the groups, or from device memory.
template <class Rule>
void check_rule(const std::vector<Rule>& rules, void (*reference)(Parameter&, const Rule&, int64_t, double),
                Order order, bool rates_from_memory, std::mt19937_64& random, int cpu_steps = 50, int64_t done = 0) {
  std::vector<Rule> groups = rules;
  std::vector<double> rates;
  for (Rule& group : groups) rates.push_back(rates_from_memory ? std::exchange(group.lr, 99) : group.lr);
  Model model(static_cast<int32_t>(rules.size()), random, false, order);
  const std::vector<std::vector<double>> before = model.weights();
  const int steps = target().is_cpu() ? cpu_steps : 3, clipped = target().is_cpu() ? 3 : 2;
  int64_t count = done;
  for (int step = 1; step <= steps; ++step) {
    model.draw_gradients(random);
    const GradientNorm norm{64.0 * 64.0 * 4.0, 0, -1};  // norm 128 as stored, 16 unscaled
    const float inverse = 0.125f;
    const bool clips = step % clipped == 0;
    const double factor = clips ? 0.125 * std::min(1.0, 4 / (16 + 1e-6)) : 1;
    for (Parameter* p : model.all()) reference(*p, rules[p->group], done + step, factor);
    update(make_rules(groups.data()), model.all(),
           {.step = &count,
            .norm = clips ? &norm : nullptr,
            .max_norm = 4,
            .inverse_scale = clips ? &inverse : nullptr,
            .lr = rates_from_memory ? rates.data() : nullptr});
    ASSERT_NO_FATAL_FAILURE(model.compare()) << "step " << step;
  }
  EXPECT_EQ(count, done + steps);
  if (steps == 50) expect_plain_weights_moved(model, before);
}

TEST_P(Optimizer, AdamAgainstDouble) {
  for_each_run([&] {
    check_rule(kAdamGroups, reference_adam, Order::kMisaligned, false, random);
    check_rule(kAdamGroups, reference_adam, Order::kContiguous, true, random);
  });
}

TEST_P(Optimizer, SgdAgainstDouble) {
  for_each_run([&] {
    check_rule(kSgdGroups, reference_sgd, Order::kMisaligned, true, random);
    check_rule(kSgdGroups, reference_sgd, Order::kContiguous, false, random);
  });
}

/// RAdam has a denominator from the sixth update on.
TEST_P(Optimizer, OthersAgainstTheirFormulas) {
  for_each_run([&] {
    bool from_memory = random() % 2 == 0;
    const auto check = [&]<class Rule>(const std::vector<Rule>& groups) {
      check_rule(groups, reference_of<Rule>, random() % 2 ? Order::kMisaligned : Order::kContiguous, from_memory,
                 random, 5, static_cast<int64_t>(random() % 8));
      from_memory = !from_memory;
    };
    check(kNAdamGroups);
    check(kRAdamGroups);
    check(kRMSpropGroups);
    check(kAdagradGroups);
    check(kAdadeltaGroups);
    check(kLionGroups);
  });
}

TEST_P(Optimizer, KahanHasTheBitsOfItsDefinition) {
  for_each_run([&] {
    for (const Order order : {Order::kMisaligned, Order::kContiguous})
      for (const int64_t size : {1, 7, 257, 1003, 5003})
        if (takes_case(size, random)) check_kahan_bits(size, target().is_cpu() ? 60 : 12, order, random);
  });
}

TEST_P(Optimizer, KahanFollowsFp32WherePlainBf16Stalls) {
  check_tiny_updates(target().is_cpu() ? 1000 : target().one_in() > 1 ? 40 : 300, random);
}

/// Learning rates from device memory are as good as the groups' own, for either rule.
TEST_P(Optimizer, RatesFromDeviceMemory) {
  const uint64_t seed = random();
  const auto run = [&](bool from_memory) {
    std::mt19937_64 same(seed);
    const auto groups = static_cast<int32_t>(kAdamGroups.size());
    Model model(groups, same, false);
    std::vector<AdamRule> adam_groups = kAdamGroups;
    std::vector<SgdRule> sgd_groups(adam_groups.size(), kSgdGroups[1]);
    std::vector<double> rates;
    for (int32_t g = 0; g < groups; ++g) {
      rates.push_back(adam_groups[g].lr = sgd_groups[g].lr = 1e-3 * (g + 1));
      if (from_memory) adam_groups[g].lr = sgd_groups[g].lr = 77;
    }
    int64_t count = 0;
    for (int step = 0; step < 3; ++step) {
      model.draw_gradients(same);
      const OptimizerStep call{.step = &count, .lr = from_memory ? rates.data() : nullptr};
      update(step < 2 ? make_rules(adam_groups.data()) : make_rules(sgd_groups.data()), model.all(), call);
    }
    return model.weights();
  };
  EXPECT_EQ(run(true), run(false));
}

/// Tensors of several blocks: the same bits in every run.
TEST_P(Optimizer, LargeTensors) {
  const uint64_t seed = random();
  const AdamRule group{.weight_decay = 0.01};
  std::vector<std::vector<double>> first;
  for_each_run([&] {
    std::mt19937_64 same(seed);
    Model model(1, same, true, Order::kContiguous);
    model.draw_gradients(same);
    int64_t count = 0;
    for (auto& p : model.parameters) reference_adam(*p, group, 1, 1);
    update(make_rules(&group), model.all(), {.step = &count});
    model.compare();
    if (first.empty()) first = model.weights();
    EXPECT_EQ(model.weights(), first);
  });
}

/// One pointer alone that is not aligned to 16 bytes: the same bits, in narrow accesses.
TEST_P(Optimizer, AnyPointerMayBeMisaligned) {
  const int64_t size = 521;
  const uint64_t seed = random();
  const AdamRule group{.weight_decay = 0.1, .amsgrad = true};
  for (const Kind& kind : {Kind{bfloat16, bfloat16, true}, Kind{bfloat16, bfloat16, false, true}}) {
    std::vector<std::vector<double>> expected;
    for (int which = -1; which < 7; ++which) {
      SCOPED_TRACE(which);
      std::mt19937_64 same(seed);
      Parameter p(kind, size, same, Order::kContiguous);
      fill_with_random(p.gradient, same, -1, 1);
      std::vector<Array*> arrays = p.arrays();
      arrays.push_back(&p.gradient);
      std::vector<Array> moved;
      if (which >= 0) {
        moved.emplace_back(arrays[which]->dtype(), Shape{size}, Order::kMisaligned).set(arrays[which]->values());
      }
      int64_t count = 0;
      run_kernel([&](Call& on) {
        OptimizerTensor tensor = p.tensor(on);
        void** const pointers[] = {&tensor.weight,    &tensor.states[0], &tensor.states[1],
                                   &tensor.states[2], &tensor.master,    &tensor.compensation};
        if (which == 6)
          tensor.gradient = on(moved[0]).data;
        else if (which >= 0 && *pointers[which])
          *pointers[which] = on(moved[0]).data;
        update_weights(on.stream(), make_rules(&group), &tensor, 1, step_on(on, {.step = &count}, 1));
      });
      const bool replaced = which >= 0 && (which != 4 || kind.master) && (which != 5 || kind.kahan);
      if (replaced) arrays[which] = &moved[0];
      std::vector<std::vector<double>> got;
      for (const Array* array : arrays) got.push_back(array->values());
      if (which < 0) expected = got;
      EXPECT_EQ(got, expected);
    }
  }
}

/// More tensors and more groups than one launch takes; learning rates of the groups, or from device memory.
TEST_P(Optimizer, ManyTensorsAndGroups) {
  for (const bool rates_from_memory : {false, true}) {
    std::vector<std::unique_ptr<Parameter>> parameters;
    std::vector<Parameter*> all;
    std::vector<SgdRule> groups;
    std::vector<double> rates;
    for (int i = 0; i < 70; ++i) {
      rates.push_back(0.01 * (i + 1));
      groups.push_back({.lr = rates_from_memory ? 99 : rates.back()});
    }
    for (int i = 0; i < 420; ++i) {
      all.push_back(parameters
                        .emplace_back(std::make_unique<Parameter>(Kind{float32, float32, false}, 1 + i % 3, random,
                                                                  Order::kContiguous))
                        .get());
      fill_with_random(all.back()->gradient, random, -1, 1);
      all.back()->group = i < 90 ? i % 70 : 0;
      reference_sgd(*all.back(), {.lr = rates[static_cast<size_t>(all.back()->group)]}, 1, 1);
    }
    int64_t count = 0;
    update(make_rules(groups.data()), all, {.step = &count, .lr = rates_from_memory ? rates.data() : nullptr});
    EXPECT_EQ(count, 1);
    for (size_t t = 0; t < all.size(); ++t) ASSERT_NO_FATAL_FAILURE(all[t]->compare()) << "tensor " << t;
  }
}

TEST_P(Optimizer, NonFiniteGradientsSkipTheStep) {
  for_each_run([&] {
    Model model(1, random, false);
    model.draw_gradients(random);
    std::vector<std::vector<char>> before;
    for (auto& p : model.parameters)
      for (Array* a : p->arrays()) before.push_back(a->bytes());
    const GradientNorm norm{INFINITY, 1, 3}, sound{1, 0, -1};
    const AdamRule adam_group{.weight_decay = 0.1};
    const SgdRule sgd_group{.momentum = 0.9};
    int64_t count = 6;
    update(make_rules(&adam_group), model.all(), {.step = &count, .norm = &norm, .max_norm = 1});
    update(make_rules(&sgd_group), model.all(), {.step = &count, .norm = &norm});
    update(make_rules(&sgd_group), model.all(), {.step = &count, .norm = &sound, .earlier = &norm});
    EXPECT_EQ(count, 6);
    size_t index = 0;
    for (auto& p : model.parameters)
      for (Array* a : p->arrays()) EXPECT_TRUE(before[index++] == a->bytes());
    update(make_rules(&sgd_group), model.all(), {.step = &count, .norm = &norm, .skip_non_finite = false});
    EXPECT_EQ(count, 7);
  });
}

TEST_P(Optimizer, ZeroGradientsGiveNoNan) {
  Parameter p(Kind{float32, float32, false}, 40, random);
  p.weight.fill(1);
  p.gradient.fill(0);
  const AdamRule group;
  int64_t count = 0;
  update(make_rules(&group), {&p}, {.step = &count});
  EXPECT_EQ(p.weight.values(), std::vector<double>(40, 1));
}

TEST_P(Optimizer, ScaleByNorm) {
  for_each_run([&] {
    for (const DType dtype : kFloatTypes) {
      Array a(dtype, {7}, Order::kMisaligned), empty(dtype, {0}), b(dtype, {3, 501}), c(float32, {17001});
      for (Array* x : {&a, &b, &c}) fill_with_random(*x, random, -1, 1);
      const std::vector<double> before[] = {a.values(), b.values(), c.values()};
      const auto scale = [&](const GradientNorm& norm) {
        run_kernel([&](Call& on) {
          const View views[] = {on(a), on(empty), on(b), on(c)};
          scale_by_norm(on.stream(), views, 4, on.memory(&norm), 1);
        });
      };
      scale({0.25, 0, -1});
      EXPECT_EQ(a.values(), before[0]);
      scale({100, 0, -1});
      const double factor = 1 / (10 + 1e-6);
      int which = 0;
      for (Array* x : {&a, &b, &c}) {
        const double unit = 1.01 * epsilon_of(x->dtype()) + 0x1p-23 * (x->dtype() != float64) + 0x1p-52;
        for (int64_t i = 0; i < x->numel(); ++i)
          ASSERT_TRUE(near(x->at(i), before[which][i] * factor, unit, 6e-8 * (x->dtype() == float16)));
        ++which;
      }
    }
  });
}

TEST_P(Optimizer, AveragesAgainstDouble) {
  for_each_run([&] {
    for (const Order order : {Order::kMisaligned, Order::kContiguous})
      for (const AverageStep& kind :
           {AverageStep{.decay = 0.75}, {.decay = 0.75, .warmup_gamma = 2, .warmup_power = 0.7}, {.equal = true}})
        if (takes_case(0, random) && (!target().is_cpu() || random() % 4 == 0))  // more than one block
          check_averages(target().is_cpu() ? 70001 : kFewCases ? 1003 : 17000, order, kind, random);
  });
}

/// More tensors than one launch takes.
TEST_P(Optimizer, AveragesOfManyTensors) {
  constexpr int64_t kCount = 901;
  std::vector<float> weights(kCount), averages(kCount, -1);
  for (int64_t i = 0; i < kCount; ++i) weights[i] = static_cast<float>(i);
  int64_t count = 1;
  run_kernel([&](Call& on) {
    std::vector<AverageTensor> tensors;
    float* const average = on.memory(averages.data(), kCount);
    const float* const weight = on.memory(weights.data(), kCount);
    for (int64_t i = 0; i < kCount; ++i) tensors.push_back({average + i, weight + i, 1, float32});
    average_weights(on.stream(), tensors.data(), kCount, {.updates = on.memory(&count), .decay = 0.5});
  });
  EXPECT_EQ(count, 2);
  for (int64_t i = 0; i < kCount; ++i) EXPECT_EQ(averages[i], static_cast<float>(i - 1) / 2) << i;
}

class OptimizerOnCpu : public Optimizer {};
INSTANTIATE_TEST_SUITE_P(, OptimizerOnCpu, testing::ValuesIn(cpu_targets()), name_of_target);

/// On CUDA it needs a kernel: tests/emulated/optimizer_kernel_test.cpp.
TEST_P(OptimizerOnCpu, ARuleFromOutside) {
  static_assert(index_in<RmspropTfRule>(BuiltinRules()) == -1);
  check_user_rule(Order::kMisaligned, random,
                  [](const std::vector<Parameter*>& all, const std::vector<RmspropTfRule>& groups, int64_t& count) {
                    update(make_rules(groups.data()), all, {.step = &count});
                  });
}

class OptimizerTraffic : public Optimizer {};
INSTANTIATE_TEST_SUITE_P(, OptimizerTraffic, testing::ValuesIn(counting_targets()), name_of_target);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OptimizerTraffic);

/// The least possible: weight (or its copy, or also its compensation), gradient and two states read, all but the
/// gradient written; one launch besides the count.
TEST_P(OptimizerTraffic, MovesNoMoreThanItMust) {
  const int64_t size = 20000;
  for (const auto& [kind, bytes] : {std::pair{Kind{float32, float32, false}, 16 + 12},
                                    {Kind{bfloat16, bfloat16, true}, 14 + 14},
                                    {Kind{bfloat16, bfloat16, false, true}, 14 + 12}}) {
    Parameter p(kind, size, random, Order::kContiguous);
    fill_with_random(p.gradient, random, -1, 1);
    const AdamRule group;
    int64_t count = 0;
    const Traffic traffic = traffic_of([&](Call& on) { update(on, make_rules(&group), {&p}, {.step = &count}); });
    EXPECT_EQ(traffic.launches, 2u);
    EXPECT_GE(traffic.bytes, static_cast<double>(size) * bytes);
    EXPECT_LE(traffic.bytes, static_cast<double>(size) * bytes * 21 / 20);
  }
}

}  // namespace
}  // namespace tern::kernels
