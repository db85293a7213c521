// CUDA optimizer updates in the emulator against PyTorch's formulas in double.

#include "tern/core/check.h"
#include "tern/kernels/cuda/optimizer_kernel.h"
#include "tern/tests/emulator/simt/schedules.h"
#include "tern/tests/kernels/optimizer_reference.h"
#include "tern/tests/kernels/user_rule.h"

namespace tern::kernels {
namespace {

int64_t size_of_list(const Model& model) { return static_cast<int64_t>(model.tensors.size()); }

/// Two steps, the second with clipping by a factor of 0.25 and a loss scale of 8 whose inverse is applied here.
/// Learning rates of the groups, or from device memory.
void check_adam(Order order, uint64_t salt, bool rates_from_memory) {
  std::vector<AdamRule> groups = kAdamGroups;
  std::vector<double> rates;
  for (AdamRule& group : groups) rates.push_back(rates_from_memory ? std::exchange(group.lr, 99) : group.lr);
  std::mt19937_64 random = fresh_random(salt);
  Model model(static_cast<int32_t>(kAdamGroups.size()), random, false, order);
  int64_t count = 0;
  for (int step = 1; step <= 2; ++step) {
    model.draw_gradients(random);
    const GradientNorm norm{64.0 * 64.0 * 4.0, 0, -1};  // norm 128 as it lies in memory, 16 unscaled
    const float inverse = 0.125f;
    const bool clips = step == 2;
    const double factor = clips ? 0.125 * std::min(1.0, 4 / (16 + 1e-6)) : 1;
    for (size_t t = 0; t < model.tensors.size(); ++t)
      reference_adam(*model.parameters[t], kAdamGroups[model.tensors[t].group], step, factor);
    cuda::update_weights(kCuda, make_rules(groups.data()), model.tensors.data(), size_of_list(model),
                         {.step = &count,
                          .norm = clips ? &norm : nullptr,
                          .max_norm = 4,
                          .inverse_scale = clips ? &inverse : nullptr,
                          .lr = rates_from_memory ? rates.data() : nullptr});
    ASSERT_NO_FATAL_FAILURE(model.compare()) << "step " << step;
  }
  EXPECT_EQ(count, 2);
}

TEST(SimtOptimizer, AdamAgainstDouble) {
  for_each_schedule([] {
    check_adam(Order::kMisaligned, 1, false);
    check_adam(Order::kContiguous, 2, true);
  });
}

TEST(SimtOptimizer, SgdAgainstDouble) {
  for_each_schedule([] {
    for (const Order order : {Order::kMisaligned, Order::kContiguous}) {
      std::mt19937_64 random = fresh_random();
      Model model(static_cast<int32_t>(kSgdGroups.size()), random, false, order);
      int64_t count = 0;
      for (int step = 1; step <= 3; ++step) {
        model.draw_gradients(random);
        for (size_t t = 0; t < model.tensors.size(); ++t)
          reference_sgd(*model.parameters[t], kSgdGroups[model.tensors[t].group], step, 1);
        cuda::update_weights(kCuda, make_rules(kSgdGroups.data()), model.tensors.data(), size_of_list(model),
                             {.step = &count});
        ASSERT_NO_FATAL_FAILURE(model.compare()) << "step " << step;
      }
      EXPECT_EQ(count, 3);
    }
  });
}

TEST(SimtOptimizer, KahanHasTheBitsOfItsDefinition) {
  for_each_schedule([] {
    std::mt19937_64 random = fresh_random();
    for (const Order order : {Order::kMisaligned, Order::kContiguous})
      for (const int64_t size : {1, 7, 257, 1003})
        check_kahan_bits(size, 12, order, random,
                         [](const OptimizerTensor& tensor, const SgdRule& group, int64_t& count) {
                           cuda::update_weights(kCuda, make_rules(&group), &tensor, 1, {.step = &count});
                         });
  });
}

TEST(SimtOptimizer, KahanFollowsFp32WherePlainBf16Stalls) {
  std::mt19937_64 random = fresh_random();
  check_tiny_updates(kFewCases ? 40 : 300, random,
                     [](const std::vector<OptimizerTensor>& tensors, const AdamRule& group, int64_t& count) {
                       cuda::update_weights(kCuda, make_rules(&group), tensors.data(), 3, {.step = &count});
                     });
}

/// One pointer alone that is not aligned to 16 bytes: the same bits, in narrow accesses.
TEST(SimtOptimizer, AnyPointerMayBeMisaligned) {
  const int64_t size = 521;
  const AdamRule group{.weight_decay = 0.1, .amsgrad = true};
  for (const Kind& kind : {Kind{bfloat16, bfloat16, true}, Kind{bfloat16, bfloat16, false, true}}) {
    std::vector<std::vector<double>> expected;
    for (int which = -1; which < 7; ++which) {
      SCOPED_TRACE(which);
      std::mt19937_64 random = fresh_random();
      Parameter p(kind, size, random, Order::kContiguous);
      fill_with_random(p.gradient, random, -1, 1);
      OptimizerTensor tensor = p.tensor(0);
      std::vector<Array*> arrays = p.arrays();
      arrays.push_back(&p.gradient);
      void** const pointers[] = {&tensor.weight,    &tensor.states[0], &tensor.states[1],
                                 &tensor.states[2], &tensor.master,    &tensor.compensation};
      std::vector<Array> moved;
      if (which >= 0 && (which == 6 || *pointers[which])) {
        moved.emplace_back(arrays[which]->dtype(), Shape{size}, Order::kMisaligned);
        for (int64_t i = 0; i < size; ++i) moved[0].set(i, arrays[which]->at(i));
        if (which == 6)
          tensor.gradient = moved[0].view().data;
        else
          *pointers[which] = moved[0].view().data;
        arrays[which] = &moved[0];
      }
      int64_t count = 0;
      cuda::update_weights(kCuda, make_rules(&group), &tensor, 1, {.step = &count});
      std::vector<std::vector<double>> got;
      for (const Array* array : arrays) got.push_back(array->values());
      if (which < 0) expected = got;
      EXPECT_EQ(got, expected);
    }
  }
}

/// Tensors of several blocks.
TEST(SimtOptimizer, LargeTensors) {
  std::mt19937_64 random = fresh_random();
  Model model(1, random, true, Order::kContiguous);
  model.draw_gradients(random);
  int64_t count = 0;
  const AdamRule group{.weight_decay = 0.01};
  for (auto& p : model.parameters) reference_adam(*p, group, 1, 1);
  cuda::update_weights(kCuda, make_rules(&group), model.tensors.data(), size_of_list(model), {.step = &count});
  model.compare();
}

/// More tensors and more groups than one launch takes; learning rates of the groups, or from device memory.
void check_many(bool rates_from_memory) {
  std::mt19937_64 random = fresh_random();
  std::vector<std::unique_ptr<Parameter>> parameters;
  std::vector<OptimizerTensor> tensors;
  std::vector<SgdRule> groups;
  std::vector<double> rates;
  for (int i = 0; i < 70; ++i) {
    rates.push_back(0.01 * (i + 1));
    groups.push_back({.lr = rates_from_memory ? 99 : rates.back()});
  }
  for (int i = 0; i < 420; ++i) {
    parameters.push_back(
        std::make_unique<Parameter>(Kind{float32, float32, false}, 1 + i % 3, random, Order::kContiguous));
    fill_with_random(parameters.back()->gradient, random, -1, 1);
    tensors.push_back(parameters.back()->tensor(i < 90 ? i % 70 : 0));
  }
  int64_t count = 0;
  for (size_t t = 0; t < tensors.size(); ++t)
    reference_sgd(*parameters[t], {.lr = rates[static_cast<size_t>(tensors[t].group)]}, 1, 1);
  cuda::update_weights(kCuda, make_rules(groups.data()), tensors.data(), static_cast<int64_t>(tensors.size()),
                       {.step = &count, .lr = rates_from_memory ? rates.data() : nullptr});
  EXPECT_EQ(count, 1);
  for (size_t t = 0; t < tensors.size(); ++t) ASSERT_NO_FATAL_FAILURE(parameters[t]->compare()) << "tensor " << t;
}

TEST(SimtOptimizer, ManyTensorsAndGroups) {
  check_many(false);
  if (!kFewCases) check_many(true);
}

/// The least possible: weight (or its copy, or also its compensation), gradient and two states read, all but the
/// gradient written; one launch beside the count.
TEST(SimtOptimizer, MovesNoMoreThanItMust) {
  std::mt19937_64 random = fresh_random();
  const int64_t size = 20000;
  struct Bytes {
    Kind kind;
    uint64_t read, written;  // an element
  };
  for (const auto& [kind, read, written] :
       {Bytes{{float32, float32, false}, 16, 12}, Bytes{{bfloat16, bfloat16, true}, 14, 14},
        Bytes{{bfloat16, bfloat16, false, true}, 14, 12}}) {
    Parameter p(kind, size, random, Order::kContiguous);
    fill_with_random(p.gradient, random, -1, 1);
    const AdamRule group;
    const OptimizerTensor tensor = p.tensor(0);
    int64_t count = 0;
    simt::reset_stats();
    cuda::update_weights(kCuda, make_rules(&group), &tensor, 1, {.step = &count});
    const simt::Stats stats = simt::stats();
    EXPECT_EQ(stats.launches, 2u);
    const auto elements = static_cast<uint64_t>(size);
    EXPECT_GE(stats.loaded_bytes, elements * read);
    EXPECT_LE(stats.loaded_bytes, elements * read * 21 / 20);
    EXPECT_GE(stats.stored_bytes, elements * written);
    EXPECT_LE(stats.stored_bytes, elements * written * 21 / 20);
  }
}

TEST(SimtOptimizer, NonFiniteGradientsSkipTheStep) {
  for_each_schedule([] {
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
    const int64_t size = size_of_list(model);
    cuda::update_weights(kCuda, make_rules(&adam_group), model.tensors.data(), size,
                         {.step = &count, .norm = &norm, .max_norm = 1});
    cuda::update_weights(kCuda, make_rules(&sgd_group), model.tensors.data(), size, {.step = &count, .norm = &norm});
    const GradientNorm sound{1, 0, -1};
    cuda::update_weights(kCuda, make_rules(&sgd_group), model.tensors.data(), size,
                         {.step = &count, .norm = &sound, .earlier = &norm});
    EXPECT_EQ(count, 6);
    size_t index = 0;
    for (auto& p : model.parameters)
      for (Array* a : p->arrays()) EXPECT_TRUE(before[index++] == a->bytes());
    cuda::update_weights(kCuda, make_rules(&sgd_group), model.tensors.data(), size,
                         {.step = &count, .norm = &norm, .skip_non_finite = false});
    EXPECT_EQ(count, 7);
  });
}

/// A kernel must not touch what lies beside a tensor.
TEST(SimtOptimizer, NeighboursStayUntouched) {
  for (const Order order : {Order::kMisaligned, Order::kContiguous}) {
    std::mt19937_64 random = fresh_random();
    Model model(1, random, false, order);
    model.draw_gradients(random);
    int64_t count = 0;
    const AdamRule group{.amsgrad = true};
    cuda::update_weights(kCuda, make_rules(&group), model.tensors.data(), size_of_list(model), {.step = &count});
    for (auto& p : model.parameters) {
      for (Array* a : p->arrays()) {
        const char* begin = static_cast<const char*>(a->view().data);
        const char* end = begin + a->numel() * size_of(a->dtype());
        for (const char& byte : a->bytes()) {
          if (&byte < begin || &byte >= end) {
            ASSERT_EQ(byte, 0x5a);
          }
        }
      }
    }
  }
}

TEST(SimtOptimizer, ARuleFromOutside) {
  const auto run = [](bool with_kernels) {
    return [=](const std::vector<OptimizerTensor>& tensors, const std::vector<RmspropRule>& groups, int64_t& count) {
      OptimizerRules rules = make_rules(groups.data());
      rules.on_cuda = with_kernels ? &cuda::update_by_rule<RmspropRule> : nullptr;
      cuda::update_weights(kCuda, rules, tensors.data(), static_cast<int64_t>(tensors.size()), {.step = &count});
    };
  };
  for_each_schedule([&] {
    std::mt19937_64 random = fresh_random();
    for (const Order order : {Order::kMisaligned, Order::kContiguous}) check_user_rule(order, random, run(true));
  });
  try {
    int64_t count = 0;
    run(false)({}, kUserGroups, count);
    FAIL() << "a rule without kernels ran";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("on_cuda"), std::string::npos) << error.what();
  }
}

TEST(SimtOptimizer, ScaleByNorm) {
  std::mt19937_64 random = fresh_random();
  for_each_schedule([&] {
    for (const DType dtype : kFloatTypes) {
      Array a(dtype, {7}, Order::kMisaligned), empty(dtype, {0}), b(dtype, {3, 501}), c(float32, {17001});
      for (Array* x : {&a, &b, &c}) fill_with_random(*x, random, -1, 1);
      const std::vector<double> before[] = {a.values(), b.values(), c.values()};
      const View views[] = {a.view(), empty.view(), b.view(), c.view()};
      const GradientNorm small{0.25, 0, -1}, large{100, 0, -1};
      cuda::scale_by_norm(kCuda, views, 4, &small, 1);
      EXPECT_EQ(a.values(), before[0]);
      cuda::scale_by_norm(kCuda, views, 4, &large, 1);
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

TEST(SimtOptimizer, AveragesAgainstDouble) {
  for_each_schedule([] {
    std::mt19937_64 random = fresh_random();
    for (const Order order : {Order::kMisaligned, Order::kContiguous})
      check_averages(kFewCases && order == Order::kMisaligned ? 1003 : 17000, order, order == Order::kContiguous,
                     random,  // more than one block
                     [](const std::vector<AverageTensor>& tensors, const AverageStep& step) {
                       cuda::average_weights(kCuda, tensors.data(), static_cast<int64_t>(tensors.size()), step);
                     });
  });
}

/// More tensors than one launch takes.
TEST(SimtOptimizer, AveragesOfManyTensors) {
  constexpr int64_t kCount = 901;
  std::vector<float> weights(kCount), averages(kCount, -1);
  std::vector<AverageTensor> tensors;
  for (int64_t i = 0; i < kCount; ++i) {
    weights[i] = static_cast<float>(i);
    tensors.push_back({&averages[i], &weights[i], 1, float32});
  }
  int64_t count = 1;
  cuda::average_weights(kCuda, tensors.data(), kCount, {.updates = &count, .decay = 0.5});
  EXPECT_EQ(count, 2);
  for (int64_t i = 0; i < kCount; ++i) EXPECT_EQ(averages[i], static_cast<float>(i - 1) / 2) << i;
}

}  // namespace
}  // namespace tern::kernels
