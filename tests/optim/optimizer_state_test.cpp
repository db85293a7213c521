// What optimizers keep: names, copies and compensations of 16-bit weights, and runs that continue from a state.

#include <algorithm>

#include "tern/tests/optim/optim_test.h"

namespace tern::test {
namespace {

/// Steps with a weight's gradient that depends on the number of the step alone.
void run(optim::Optimizer& optimizer, Tensor& weight, uint64_t from, uint64_t to) {
  for (uint64_t step = from; step < to; ++step) {
    weight.set_grad(fresh_normal(weight.shape(), 100 + step).to(weight.dtype()));
    EXPECT_FALSE(optimizer.step({.max_norm = 3, .skip_non_finite = true}).skipped());
  }
}

TEST(OptimizerState, StateRoundTripContinuesBitForBit) {
  for (const Case& c : cases())
    for (const DType dtype : {float32, bfloat16}) {
      SCOPED_TRACE(testing::Message() << c.name << " " << dtype);
      Tensor one = leaf(fresh_normal({41}, 1).to(dtype));
      optim::Optimizer a = c.of({{"layer.weight", one}});
      run(a, one, 0, 5);
      Tensor two = leaf(one.detach());
      optim::Optimizer b = c.of({{"layer.weight", two}});
      b.load_state_dict(copy_of(a.state_dict()));
      run(a, one, 5, 10);
      run(b, two, 5, 10);
      EXPECT_EQ(one.to_vector<float>(), two.to_vector<float>());
      EXPECT_EQ(names_of(a.state_dict()), names_of(b.state_dict()));
      EXPECT_EQ(values_of(a.state_dict()), values_of(b.state_dict()));
    }
}

TEST(OptimizerState, EachParameterKeepsItsCount) {
  const std::vector<NamedTensor> first = {{"often", leaf(ones({2}))}, {"once", leaf(ones({3}))}};
  optim::AdamW a(first, {});
  for (int step = 0; step < 3; ++step) {
    for (const NamedTensor& parameter : first)
      Tensor(parameter.tensor)
          .set_grad(step == 0 || parameter.name == "often" ? ones(parameter.tensor.shape()) : Tensor());
    a.step();
  }
  optim::AdamW b({{"often", leaf(ones({2}))}, {"once", leaf(ones({3}))}}, {});
  b.load_state_dict(copy_of(a.state_dict()));
  EXPECT_EQ(find(b.state_dict(), "step.often").item<int64_t>(), 3);
  EXPECT_EQ(find(b.state_dict(), "step.once").item<int64_t>(), 1);
}

/// The round trip with compensation, which is part of the state; a resumed run without it would differ.
TEST(OptimizerState, KahanResumesBitForBit) {
  Tensor one = leaf(fresh_normal({1037}, 1).to(bfloat16));
  const optim::AdamWOptions options{.lr = 1e-3, .master_weights = false, .kahan = true};
  optim::AdamW a({{"w", one}}, options);
  run(a, one, 0, 5);
  const StateView state = copy_of(a.state_dict());
  EXPECT_EQ(find(state, "compensation.w").dtype(), bfloat16);
  EXPECT_FALSE(find(state, "master.w").defined());
  const auto rest = find(state, "compensation.w").to_vector<double>();
  EXPECT_GT(std::count_if(rest.begin(), rest.end(), [](double v) { return v != 0; }), 900);
  Tensor two = leaf(one.detach()), without = leaf(one.detach());
  optim::AdamW b({{"w", two}}, options), c({{"w", without}}, options);
  b.load_state_dict(state);
  find(state, "compensation.w").fill_(0);
  c.load_state_dict(state);
  run(a, one, 5, 12);
  run(b, two, 5, 12);
  run(c, without, 5, 12);
  EXPECT_EQ(one.to_vector<float>(), two.to_vector<float>());
  EXPECT_EQ(values_of(a.state_dict()), values_of(b.state_dict()));
  EXPECT_NE(one.to_vector<float>(), without.to_vector<float>());
}

TEST(OptimizerState, KahanIsForBf16WithoutCopies) {
  Tensor w = leaf(ones({3}).to(bfloat16));
  expect_error([&] { optim::AdamW({{"w", w}}, {.kahan = true}); }, {"adamw", "master_weights = false"});
  for (const DType dtype : {float32, float16}) {
    const StateView both = {{"w", w}, {"head", leaf(ones({3}).to(dtype))}};
    expect_error([&] { optim::SGD(both, {.master_weights = false, .kahan = true}); },
                 {"sgd", "bfloat16", "'head'", name_of(dtype)});
  }
  // A skipped step leaves the compensation unchanged too.
  optim::Adam optimizer({{"w", w}}, {.master_weights = false, .kahan = true});
  w.set_grad(full({3}, 0.37).to(bfloat16));
  optimizer.step();
  const Values before = values_of(optimizer.state_dict());
  w.set_grad(full({3}, NAN).to(bfloat16));
  EXPECT_TRUE(optimizer.step({.skip_non_finite = true}).skipped());
  EXPECT_EQ(values_of(optimizer.state_dict()), before);
}

TEST(OptimizerState, StateNamesDoNotDependOnTime) {
  Tensor a = leaf(ones({2})), b = leaf(ones({3}).to(bfloat16));
  optim::AdamW optimizer({{"a", a}, {"b", b}}, {.amsgrad = true});
  const std::vector<std::string> expected = {"step.a",           "exp_avg.a",        "exp_avg_sq.a",
                                             "max_exp_avg_sq.a", "step.b",           "exp_avg.b",
                                             "exp_avg_sq.b",     "max_exp_avg_sq.b", "master.b"};
  EXPECT_EQ(names_of(optimizer.state_dict()), expected);
  a.set_grad(ones({2}));
  optimizer.step();
  EXPECT_EQ(names_of(optimizer.state_dict()), expected);
  EXPECT_EQ(find(optimizer.state_dict(), "exp_avg.b").dtype(), float32);
  EXPECT_EQ(find(optimizer.state_dict(), "step.a").dtype(), int64);
  const optim::SGD plain({{"a", a}}), momentum({{"a", a}}, {.momentum = 0.9});
  EXPECT_EQ(plain.state_dict().size(), 1u);
  EXPECT_EQ(momentum.state_dict()[1].name, "momentum_buffer.a");
  RmspropTf other({{"b", b}}, {.momentum = 0.9});  // not centered: the first and the third state
  run(other, b, 0, 1);
  EXPECT_EQ(names_of(other.state_dict()),
            (std::vector<std::string>{"step.b", "square_avg.b", "momentum_buffer.b", "master.b"}));
  EXPECT_EQ(other.state_bytes(), 3 * 3 * 4);
  EXPECT_EQ(other.state_bytes_of(b), 3 * 3 * 4);
}

TEST(OptimizerState, LoadListsEveryProblemAndWritesNothing) {
  Tensor a = leaf(ones({2})), b = leaf(ones({3}));
  optim::AdamW optimizer({{"a", a}, {"b", b}});
  a.set_grad(ones({2}));
  optimizer.step();
  StateView state;
  for (const NamedTensor& entry : optimizer.state_dict()) {
    if (entry.name == "exp_avg.a" || entry.name == "step.b") continue;
    state.push_back({entry.name, entry.name == "exp_avg_sq.b" ? ones({4}) : full(entry.tensor.shape(), 5)});
  }
  state.push_back({"exp_avg.c", ones({1})});
  const Values before = values_of(optimizer.state_dict());
  expect_error([&] { optimizer.load_state_dict(state); }, {"exp_avg.a", "step.b", "exp_avg_sq.b", "exp_avg.c"});
  EXPECT_EQ(values_of(optimizer.state_dict()), before);

  StateView negative = optimizer.state_dict();
  negative[0].tensor = full({1}, -1, {.dtype = int64});
  expect_error([&] { optimizer.load_state_dict(negative); }, {"step.a", "-1"});
}

TEST(OptimizerState, MasterWeightsKeepSmallUpdates) {
  for (const DType dtype : {bfloat16, float16}) {
    Tensor with = leaf(ones({5}).to(dtype)), without = leaf(ones({5}).to(dtype));
    optim::SGD a({{"w", with}}, {.lr = 1e-5}), b({{"w", without}}, {.lr = 1e-5, .master_weights = false});
    for (int step = 0; step < 1000; ++step) {
      with.set_grad(ones({5}).to(dtype));
      without.set_grad(ones({5}).to(dtype));
      a.step();
      b.step();
    }
    EXPECT_EQ(without.to_vector<double>()[4], 1);  // each update is less than half a step of the format
    EXPECT_FALSE(find(b.state_dict(), "master.w").defined());
    const Tensor master = find(a.state_dict(), "master.w");
    EXPECT_NEAR(master.to_vector<double>()[4], 0.99, 1000 * 0x1p-25);  // each sum is rounded to fp32, below 1
    EXPECT_EQ(with.to_vector<double>(), master.to(dtype).to_vector<double>());
  }
}

}  // namespace
}  // namespace tern::test
