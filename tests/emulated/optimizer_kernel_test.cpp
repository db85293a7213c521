// An optimizer that is not part of the library, on CUDA: its kernel, in the emulator.

#include "tern/kernels/cuda/optimizer/kernel.h"
#include "tern/tests/emulator/messages.h"
#include "tern/tests/emulator/simt/schedules.h"
#include "tern/tests/kernels/user_rule.h"

namespace tern::kernels {
namespace {

class UserRule : public OnTarget {};
INSTANTIATE_TEST_SUITE_P(, UserRule, testing::ValuesIn(counting_targets()), name_of_target);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(UserRule);

void run(bool with_kernels, const std::vector<Parameter*>& all, int64_t& count) {
  OptimizerRules rules = make_rules(kUserGroups.data());
  rules.on_cuda = with_kernels ? &cuda::update_by_rule<RmspropTfRule> : nullptr;
  update(rules, all, {.step = &count});
}

TEST_P(UserRule, HasTheBitsOfItsDefinition) {
  for_each_run([&] {
    for (const Order order : {Order::kMisaligned, Order::kContiguous})
      check_user_rule(order, random,
                      [](const std::vector<Parameter*>& all, const std::vector<RmspropTfRule>&, int64_t& count) {
                        run(true, all, count);
                      });
  });
}

TEST_P(UserRule, WithoutAKernelItIsAnError) {
  int64_t count = 0;
  expect_error([&] { run(false, {}, count); }, {"on_cuda"});
}

}  // namespace
}  // namespace tern::kernels
