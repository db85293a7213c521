// Optimizers against PyTorch's results and against loops: golden runs, groups, late parameters, skips. One of them is
// not the library's.

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tern/core/io/safetensors.h"
#include "tern/tests/optim/optim_test.h"
#include "tern/tests/places.h"

namespace tern::test {
namespace {

TEST(Optimizer, FiftyStepsAsPyTorch) {
  const StateView golden = load_safetensors(source_dir() + "/tests/golden/optimizer.safetensors").tensors;
  const Tensor gradients = find(golden, "gradients");
  const nlohmann::json index = nlohmann::json::parse(std::ifstream(source_dir() + "/tests/golden/index.json"));
  std::map<std::string, double> own_error;  // of PyTorch's float32
  for (const auto& c : index.at("optimizers").at("cases")) own_error[c.at("name")] = c.at("float32_error");
  ASSERT_EQ(own_error.size(), golden_cases().size());
  for (const Case& c : golden_cases())
    for (const DType dtype : {float64, float32}) {
      Tensor weight = leaf(find(golden, "weight").to(dtype));
      optim::Optimizer optimizer = c.of({{"w", weight}});
      int compared = 0;
      for (int step = 1; step <= 50; ++step) {
        weight.set_grad(gradients[step - 1].to(dtype));
        optimizer.step();
        const Tensor expected = find(golden, c.name + "/step" + std::to_string(step));
        if (!expected.defined()) continue;
        ++compared;
        // Fifty steps of ten roundings in fp64; in fp32 four times PyTorch's rounding error.
        const double bound = dtype == float64 ? 500 * 0x1p-53 : 4 * own_error.at(c.name);
        EXPECT_LE(relative_error(weight.to_vector<double>(), expected.to_vector<double>()), bound)
            << c.name << " " << dtype << " step " << step;
      }
      EXPECT_EQ(compared, 4);
    }
}

// With a fast decay of momentum the first factors alone differ from beta1.
TEST(Optimizer, NAdamsProductOfSharesAtAnyDecay) {
  for (const double decay : {0.0, 0.004, 1.0, 30.0, 120.0, 1e4}) {
    const kernels::NAdamRule rule{.momentum_decay = decay};
    double product = 1;
    for (int64_t i = 1; i <= 300; ++i) {
      product *= rule.beta1 * (1 - 0.5 * std::pow(0.96, static_cast<double>(i) * decay));
      EXPECT_NEAR(rule.mu_product(i), product, 1e-12 * product + 0x1p-60) << decay << ", update " << i;
    }
  }
}

TEST(Optimizer, BadHyperParametersThrow) {
  const std::vector<NamedTensor> p = {{"w", leaf(ones({2}))}};
  const double nan = NAN, inf = INFINITY;
  expect_error([&] { optim::AdamW(p, {.lr = -1}); }, {"adamw", "lr", "-1"});
  expect_error([&] { optim::Adam(p, {.lr = nan}); }, {"adam", "lr", "nan"});
  expect_error([&] { optim::AdamW(p, {.beta1 = 1}); }, {"beta1", "[0, 1)"});
  expect_error([&] { optim::SGD(p, {.nesterov = true}); }, {"nesterov", "momentum"});
  expect_error([&] { RmspropTf(p, {.alpha = 1}); }, {"rmsprop_tf: alpha must be in [0, 1), got 1"});
  expect_error([&] { RmspropTf(p, {.lr = -1}); }, {"rmsprop_tf: lr must be"});
  expect_error([&] { optim::NAdam(p, {.momentum_decay = -1}); }, {"nadam: momentum_decay must be", "-1"});
  expect_error([&] { optim::RAdam(p, {.beta2 = 1}); }, {"radam: beta2 must be in [0, 1), got 1"});
  expect_error([&] { optim::RMSprop(p, {.alpha = 1.5}); }, {"rmsprop: alpha must be in [0, 1], got 1.5"});
  expect_error([&] { optim::RMSprop(p, {.momentum = nan}); }, {"rmsprop: momentum must be"});
  expect_error([&] { optim::Adagrad(p, {.lr_decay = nan}); }, {"adagrad: lr_decay must be"});
  expect_error([&] { optim::Adagrad(p, {.initial_accumulator_value = inf}); }, {"initial_accumulator_value"});
  expect_error([&] { optim::Adadelta(p, {.rho = nan}); }, {"adadelta: rho must be in [0, 1], got nan"});
  expect_error([&] { optim::Lion(p, {.beta1 = -0.1}); }, {"lion: beta1 must be in [0, 1)"});
  EXPECT_THROW(optim::AdamW(p, {.lr = inf}), Error);
  EXPECT_THROW(optim::AdamW(p, {.beta2 = -0.1}), Error);
  EXPECT_THROW(optim::AdamW(p, {.beta2 = nan}), Error);
  EXPECT_THROW(optim::AdamW(p, {.eps = -1e-8}), Error);
  EXPECT_THROW(optim::AdamW(p, {.weight_decay = -0.1}), Error);
  EXPECT_THROW(optim::SGD(p, {.momentum = -1}), Error);
  EXPECT_THROW(optim::SGD(p, {.dampening = nan}), Error);
  EXPECT_THROW(optim::SGD(p, {.momentum = 0.9, .dampening = 0.1, .nesterov = true}), Error);
  EXPECT_NO_THROW(optim::SGD(p, {.lr = 0, .momentum = 0.9, .nesterov = true}));
  optim::AdamW fine(p);
  EXPECT_THROW(fine.set_lr(-1), Error);
  EXPECT_THROW(fine.set_lr_factor(nan), Error);
  EXPECT_THROW(fine.step({.max_norm = -1}), Error);
  EXPECT_THROW(fine.step({.max_norm = nan}), Error);
}

TEST(Optimizer, BadParametersThrow) {
  using Groups = std::vector<optim::ParameterGroup>;
  const Tensor w = leaf(ones({2, 3}));
  const std::vector<NamedTensor> one_name = {{"a", w}, {"a", leaf(ones({1}))}};
  const Groups one_tensor = {{.parameters = {{"a", w}}}, {.parameters = {{"c", w}}, .lr = 1.0}};
  expect_error([&] { optim::AdamW(std::vector<NamedTensor>{}); }, {"no parameters"});
  expect_error([&] { optim::AdamW({{"a", w}, {"b", w}}); }, {"'b'", "twice"});
  expect_error([&] { optim::AdamW{one_name}; },
               {"'a'", "twice", "two different parameters", "several models", "join_parameters"});
  expect_error([&] { optim::EMA{one_name}; }, {"'a'", "twice", "several models"});
  expect_error([&] { optim::SGD{one_tensor}; }, {"'c'", "twice"});
  expect_error([&] { optim::AdamW({{"u", Tensor()}}); }, {"'u'", "undefined"});
  expect_error([&] { optim::AdamW({{"i", ones({1}, {.dtype = int64})}}); }, {"'i'", "int64"});
  expect_error([&] { optim::AdamW({{"n", w * 2.0}}); }, {"'n'", "leaf"});
  expect_error([&] { optim::AdamW({{"t", ones({2, 3}).t()}}); }, {"'t'", "contiguous"});
  EXPECT_THROW(optim::AdamW(Groups{{.parameters = {{"a", w}}, .lr = -1.0}}), Error);
  const auto names = names_of(optim::join_parameters({{"one", one_name}, {"two", {{"a", w}}}}));
  EXPECT_EQ(names, (std::vector<std::string>{"one.a", "one.a", "two.a"}));
  const auto with = [&](const optim::Algorithm& algorithm) {
    optim::AdamW(Groups{{.parameters = {{"a", w}}, .algorithm = algorithm}});
  };
  expect_error([&] { with(optim::algorithm_of(optim::AdamOptions{})); }, {"adamw", "same kind", "adam"});
  expect_error([&] { with(optim::algorithm_of(optim::SGDOptions{})); }, {"adamw", "same kind", "sgd"});
  expect_error([&] { with(optim::algorithm_of(optim::AdamWOptions{.capturable = true})); }, {"capturable", "false"});
}

/// A parameter's steps with a group's own hyper-parameters, there from the start or added later, are those of an
/// optimizer for it alone: the same bits, the same state.
TEST(Optimizer, AGroupMayHaveItsOwnAlgorithm) {
  const auto find_case = [](const std::string& name) {
    for (const Case& c : cases())
      if (c.name == name) return c;
    throw std::out_of_range(name);
  };
  for (const auto& [first, second] : {std::pair("adamw", "adamw_amsgrad_maximize"),
                                      {"sgd", "sgd_nesterov"},
                                      {"sgd_momentum", "sgd"},
                                      {"rmsprop", "rmsprop_all"},
                                      {"adagrad", "adagrad_all"},
                                      {"rmsprop_tf_centered", "rmsprop_tf_momentum"}})
    for (const bool later : {false, true}) {
      SCOPED_TRACE(testing::Message() << first << " " << second << " " << later);
      const Case one = find_case(first), two = find_case(second);
      const Tensor starts[] = {fresh_normal({19}, 1), fresh_normal({4, 5}, 2)};
      Tensor together[] = {leaf(starts[0]), leaf(starts[1])}, alone[] = {leaf(starts[0]), leaf(starts[1])};
      std::vector<optim::ParameterGroup> groups = {{.parameters = {{"a", together[0]}}}};
      const optim::ParameterGroup other = {.parameters = {{"b", together[1]}}, .algorithm = two.algorithm};
      if (!later) groups.push_back(other);
      optim::Optimizer both(groups, one.algorithm), a = one.of({{"a", alone[0]}}), b = two.of({{"b", alone[1]}});
      for (uint64_t step = 0; step < 5; ++step) {
        for (size_t p = 0; p < 2; ++p)
          for (Tensor* weight : {&together[p], &alone[p]}) weight->set_grad(fresh_normal(starts[p].shape(), 9 + step));
        if (later && step == 2) both.add_param_group(other);
        both.step();
        a.step();
        if (!later || step >= 2) b.step();
      }
      for (size_t p = 0; p < 2; ++p) EXPECT_EQ(together[p].to_vector<float>(), alone[p].to_vector<float>()) << p;
      StateView expected = a.state_dict();
      for (const NamedTensor& entry : b.state_dict()) expected.push_back(entry);
      EXPECT_EQ(names_of(both.state_dict()), names_of(expected));
      EXPECT_EQ(values_of(both.state_dict()), values_of(expected));
      EXPECT_EQ(both.state_bytes(), a.state_bytes() + b.state_bytes());
    }
}

TEST(Optimizer, GroupsThatCannotBeAddedChangeNothing) {
  Tensor a = leaf(ones({2})), b = leaf(ones({3}));
  optim::SGD optimizer({{"a", a}}, {.lr = 1});
  expect_error([&] { optimizer.add_param_group({.parameters = {{"b", b}, {"c", a}}}); }, {"sgd", "'c'", "twice"});
  expect_error([&] { optimizer.add_param_group({.parameters = {{"a", b}}}); }, {"name 'a'", "twice"});
  expect_error([&] { optimizer.add_param_group({.parameters = {{"b", b}}, .lr = -1.0}); }, {"lr"});
  EXPECT_EQ(optimizer.param_groups().size(), 1u);
  EXPECT_EQ(optimizer.state_dict().size(), 1u);
  optim::SGD captured({{"a", a}}, {.lr = 1, .capturable = true});
  captured.add_param_group({.parameters = {{"b", b}}, .lr = 0.5});
  for (Tensor* t : {&a, &b}) t->set_grad(ones(t->shape()));
  captured.step();
  EXPECT_EQ(a.to_vector<float>()[1], 0);
  EXPECT_EQ(b.to_vector<float>()[2], 0.5);  // the new group's rate is on the device too
  expect_error([&] { captured.add_param_group({.parameters = {{"c", leaf(ones({1}))}}}); }, {"capturable", "first"});
}

TEST(Optimizer, RatesAndMomentumOfEachGroup) {
  Tensor a = leaf(zeros({1})), b = leaf(zeros({1}));
  const std::vector<optim::ParameterGroup> groups = {{.parameters = {{"a", a}}}, {.parameters = {{"b", b}}, .lr = 4.0}};
  optim::SGD optimizer(groups, {.lr = 1, .momentum = 0.5});
  const auto step = [&] {
    for (Tensor* t : {&a, &b}) t->set_grad(ones({1}));
    optimizer.step();
  };
  step();  // -1, -4
  optimizer.set_group_lr({2, 8});
  optimizer.set_group_momentum({0.75, 0.25});
  step();  // - 2 * (0.75 + 1), - 8 * (0.25 + 1)
  EXPECT_EQ(a.item<double>(), -4.5);
  EXPECT_EQ(b.item<double>(), -14);
  EXPECT_EQ(optimizer.param_groups()[1].base_lr, 4);
  EXPECT_EQ(optimizer.param_groups()[1].momentum, 0.25);
  expect_error([&] { optimizer.set_group_lr({1}); }, {"2 groups", "got 1"});
  expect_error([&] { optimizer.set_group_lr({1, NAN}); }, {"lr", "nan"});
  expect_error([&] { optimizer.set_group_momentum({0.5, 1}); }, {"(0, 1)", "got 1"});
  expect_error([&] { optimizer.set_group_momentum({0.5}); }, {"2 groups"});
  const StateView one = {{"a", a}};
  expect_error([&] { optim::SGD(one).set_group_momentum({0.5}); }, {"sgd", "no state", "cycle_momentum = false"});
  expect_error([&] { optim::Adagrad(one).set_group_momentum({0.5}); },
               {"adagrad has neither", "cycle_momentum = false"});
  expect_error([&] { optim::Adam(one, {.capturable = true}).set_group_momentum({0.5}); }, {"captured"});
  EXPECT_EQ(*optim::NAdam(one).param_groups()[0].momentum, 0.9);
}

TEST(Optimizer, GroupsHaveDifferentRates) {
  Tensor a = leaf(ones({3})), b = leaf(ones({3})), c = leaf(ones({3}));
  optim::SGD optimizer({{.parameters = {{"a", a}}},
                        {.parameters = {{"b", b}}, .lr = 0.5},
                        {.parameters = {{"c", c}}, .weight_decay = 1.0}},
                       {.lr = 0.25});
  for (Tensor* t : {&a, &b, &c}) t->set_grad(ones({3}));
  optimizer.set_lr_factor(0.5);
  optimizer.step();
  EXPECT_EQ(a.to_vector<double>()[0], 0.875);
  EXPECT_EQ(b.to_vector<double>()[0], 0.75);
  EXPECT_EQ(c.to_vector<double>()[0], 0.75);  // 1 - 0.125 * (1 + 1 * 1)
  EXPECT_EQ(optimizer.param_groups()[1].base_lr, 0.5);
  EXPECT_EQ(optimizer.param_groups()[1].lr, 0.25);
  EXPECT_EQ(optimizer.lr(), 0.125);
  optimizer.set_lr(2);
  optimizer.set_lr_factor(0.25);
  EXPECT_EQ(optimizer.param_groups()[1].lr, 0.5);
}

TEST(Optimizer, NoDecayGroupsSplitOffVectors) {
  StateView parameters;
  for (const auto& [name, shape] :
       {std::pair("weight", Shape{2, 2}), {"bias", Shape{2}}, {"norm", Shape{2}}, {"conv", Shape{1, 1, 2, 2}}}) {
    parameters.push_back({name, leaf(ones(shape))});
    parameters.back().tensor.set_grad(zeros(shape));
  }
  const auto groups = optim::no_decay_groups(parameters, 0.1);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(names_of(groups[0].parameters), (std::vector<std::string>{"weight", "conv"}));
  EXPECT_EQ(names_of(groups[1].parameters), (std::vector<std::string>{"bias", "norm"}));
  EXPECT_EQ(groups[0].weight_decay, 0.1);
  EXPECT_EQ(groups[1].weight_decay, 0.0);
  optim::AdamW optimizer(groups, {.lr = 0.5});
  optimizer.step();
  EXPECT_FLOAT_EQ(parameters[0].tensor.to_vector<float>()[0], 0.95f);
  EXPECT_EQ(parameters[1].tensor.to_vector<float>()[0], 1);
}

/// Adam for one element, in double: the expected result of each parameter, independent of the others.
struct ScalarAdam {
  double w, m = 0, v = 0;
  int t = 0;
  void step(double g, double lr) {
    ++t;
    m = 0.9 * m + 0.1 * g;
    v = 0.999 * v + 0.001 * g * g;
    w -= lr * (m / (1 - std::pow(0.9, t))) / (std::sqrt(v / (1 - std::pow(0.999, t))) + 1e-8);
  }
};

TEST(Optimizer, EachParameterCountsItsUpdates) {
  // Four parameters with gradients at different steps: always, late, with gaps, never.
  const auto has_gradient = [](size_t p, int step) {
    return p == 0 || (p == 1 && step >= 3) || (p == 2 && step % 3 != 1);
  };
  std::vector<NamedTensor> parameters;
  std::vector<ScalarAdam> expected;
  for (size_t p = 0; p < 4; ++p) {
    expected.push_back({1.0 + static_cast<double>(p)});
    parameters.push_back({"p" + std::to_string(p), leaf(full({1}, expected[p].w, {.dtype = float64}))});
  }
  optim::Adam optimizer(parameters, {.lr = 0.1});
  for (int step = 0; step < 12; ++step) {
    for (size_t p = 0; p < 4; ++p) {
      const double g = std::sin(1.0 + step * 1.7 + static_cast<double>(p));
      parameters[p].tensor.set_grad(has_gradient(p, step) ? full({1}, g, {.dtype = float64}) : Tensor());
      if (has_gradient(p, step)) expected[p].step(g, 0.1);
    }
    optimizer.step();
    for (size_t p = 0; p < 4; ++p)
      EXPECT_NEAR(parameters[p].tensor.item<double>(), expected[p].w, 1e-12) << "p" << p << " step " << step;
    if (step == 6) optimizer.load_state_dict(copy_of(optimizer.state_dict()));  // the counts too
  }
  const StateView state = optimizer.state_dict();
  for (size_t p = 0; p < 4; ++p)
    EXPECT_EQ(find(state, "step.p" + std::to_string(p)).item<int64_t>(), expected[p].t) << p;
}

TEST(Optimizer, OneThatIsNotTheLibrarysStepsAsItsFormula) {
  for (const bool centered : {false, true})
    for (const double momentum : {0.0, 0.7}) {
      SCOPED_TRACE(testing::Message() << centered << " " << momentum);
      // With this eps a step is a smooth function of the gradient.
      const RmspropTfOptions options{
          .eps = 0.1, .weight_decay = 0.02, .momentum = momentum, .centered = centered, .maximize = centered};
      const double alpha = options.alpha, decays[] = {0.3, options.weight_decay}, rates[] = {options.lr, 0.2};
      const Tensor starts[] = {fresh_normal({37}, 0, float64), fresh_normal({3, 5}, 1, float64)};
      Tensor weights[] = {leaf(starts[0]), leaf(starts[1])}, expected[] = {starts[0], starts[1]};
      Tensor square[] = {zeros_like(starts[0]) + 1, zeros_like(starts[1]) + 1},
             average[] = {zeros_like(starts[0]), zeros_like(starts[1])}, buffer[] = {average[0], average[1]};
      RmspropTf optimizer({{.parameters = {{"a", weights[0]}}, .weight_decay = decays[0]},
                           {.parameters = {{"b", weights[1]}}, .lr = rates[1]}},
                          options);
      for (uint64_t step = 0; step < 10; ++step) {
        const double factor = 1 / (1.0 + static_cast<double>(step));
        optimizer.set_lr_factor(factor);
        for (size_t p = 0; p < 2; ++p) {
          const Tensor gradient = fresh_normal(starts[p].shape(), 10 + 2 * step + p, float64);
          weights[p].set_grad(gradient);
          const Tensor g = (centered ? -gradient : gradient) + expected[p] * decays[p];
          square[p] = square[p] * alpha + g * g * (1 - alpha);
          average[p] = average[p] * alpha + g * (1 - alpha);
          const Tensor spread = centered ? square[p] - average[p] * average[p] : square[p];
          buffer[p] = buffer[p] * momentum + g / sqrt(spread + options.eps) * (rates[p] * factor);
          expected[p] = expected[p] - buffer[p];
        }
        optimizer.step();
      }
      for (size_t p = 0; p < 2; ++p) {
        const auto got = weights[p].to_vector<double>(), want = expected[p].to_vector<double>();
        // Ten steps of some ten roundings, each of which 1 / eps makes ten times as large.
        for (size_t i = 0; i < got.size(); ++i)
          EXPECT_NEAR(got[i], want[i], 1000 * 0x1p-53 * (1 + std::fabs(got[i]))) << p << " " << i;
      }
    }
}

TEST(Optimizer, MomentumOfALateStarterBeginsWithItsGradient) {
  Tensor a = leaf(zeros({1})), b = leaf(zeros({1}));
  optim::SGD optimizer({{"a", a}, {"b", b}}, {.lr = 1, .momentum = 0.5, .dampening = 0.5});
  a.set_grad(ones({1}));
  optimizer.step();
  b.set_grad(ones({1}));
  optimizer.step();
  EXPECT_EQ(a.item<double>(), -2);  // buffers 1, then 0.5 * 1 + 0.5 * 1
  EXPECT_EQ(b.item<double>(), -1);
}

TEST(Optimizer, ParametersWithoutGradientStayAsTheyAre) {
  Tensor w = leaf(ones({3}));
  optim::AdamW optimizer({{"w", w}}, {.weight_decay = 0.5});
  w.set_grad(ones({3}));
  optimizer.zero_grad();
  EXPECT_FALSE(w.grad().defined());
  EXPECT_EQ(optimizer.step({.max_norm = 1}).grad_norm(), 0);
  EXPECT_EQ(w.to_vector<float>(), (std::vector<float>{1, 1, 1}));
  EXPECT_EQ(find(optimizer.state_dict(), "step.w").item<int64_t>(), 0);
}

TEST(Optimizer, EmptyAndStridedTensorsAreFine) {
  Tensor none = leaf(zeros({0, 3})), w = leaf(ones({2, 3}));
  optim::SGD optimizer({{"none", none}, {"w", w}}, {.lr = 1});
  none.set_grad(zeros({0, 3}));
  w.set_grad(from_vector<float>({1, 2, 3, 4, 5, 6}, {3, 2}).t());
  EXPECT_NEAR(optimizer.step({.max_norm = INFINITY}).grad_norm(), std::sqrt(91.0), 1e-14);
  EXPECT_EQ(w.to_vector<float>(), (std::vector<float>{0, -2, -4, -1, -3, -5}));
}

TEST(Optimizer, StepChangesAreSeenByAutograd) {
  Tensor w = leaf(ones({3}));
  optim::SGD optimizer({{"w", w}}, {.lr = 1});
  const Tensor loss = sum(w * w);
  loss.backward({}, true);
  optimizer.step();
  EXPECT_THROW(loss.backward(), Error);  // w was changed in place
  EXPECT_EQ(w.to_vector<float>(), (std::vector<float>{-1, -1, -1}));
}

TEST(Optimizer, ClippingInTheStepIsClippingBeforeIt) {
  for (const double max_norm : {0.5, 1e3})
    for (const Case& c : cases()) {
      SCOPED_TRACE(c.name);
      std::vector<NamedTensor> inside, before;
      for (uint64_t i = 0; i < 3; ++i) {
        const Tensor start = fresh_normal({static_cast<int64_t>(5 + 7 * i)}, i, float64);
        inside.push_back({std::to_string(i), leaf(start)});
        before.push_back({std::to_string(i), leaf(start)});
      }
      optim::Optimizer a = c.of(inside), b = c.of(before);
      for (uint64_t step = 0; step < 3; ++step) {
        for (size_t i = 0; i < 3; ++i) {
          const Tensor gradient = fresh_normal(inside[i].tensor.shape(), 10 + 3 * step + i, float64);
          inside[i].tensor.set_grad(gradient);
          before[i].tensor.set_grad(gradient.clone());
        }
        const optim::StepResult result = a.step({.max_norm = max_norm, .skip_non_finite = true});
        const double norm = optim::clip_grad_norm(before, max_norm);
        b.step();
        EXPECT_NEAR(result.grad_norm(), norm, 40 * 0x1p-53 * norm);  // sum of 36 numbers, in fp64
        EXPECT_FALSE(result.skipped());
        EXPECT_EQ(result.first_non_finite(), "");
        // The different rounding of the factor changes an update, at most 0.3 for a weight of 1, by about 2^-49.
        const Values got = values_of(inside), want = values_of(before);
        for (size_t i = 0; i < 3; ++i) EXPECT_LE(relative_error(got[i], want[i]), 1e-14);
      }
    }
}

TEST(Optimizer, NonFiniteGradientsSkipTheWholeUpdate) {
  for (const double bad : {double{NAN}, double{INFINITY}, -double{INFINITY}})
    for (const Case& c : cases())
      for (const auto& [dtype, first] :
           {std::pair(float32, true), {float32, false}, {bfloat16, true}, {bfloat16, false}}) {
        SCOPED_TRACE(testing::Message() << c.name << " " << dtype << " " << bad << (first ? " in the first step" : ""));
        Tensor a = leaf(fresh_normal({33}, 1).to(dtype)), b = leaf(fresh_normal({50}, 2).to(dtype));
        const StateView weights = {{"first", a}, {"second", b}};
        optim::Optimizer optimizer = c.of(weights);
        a.set_grad(fresh_normal({33}, 3).to(dtype));
        b.set_grad(fresh_normal({50}, 4).to(dtype));
        if (!first) optimizer.step({.skip_non_finite = true});
        const Values before = values_of(weights), state = values_of(optimizer.state_dict());

        Tensor gradient = fresh_normal({50}, 5);
        gradient.data<float>()[49] = static_cast<float>(bad);
        b.set_grad(gradient.to(dtype));
        const optim::StepResult result = optimizer.step({.max_norm = 1, .skip_non_finite = true});
        EXPECT_TRUE(result.skipped());
        EXPECT_EQ(result.first_non_finite(), "second");
        EXPECT_FALSE(std::isfinite(result.grad_norm()));
        EXPECT_EQ(values_of(weights), before);
        EXPECT_EQ(values_of(optimizer.state_dict()), state);

        b.set_grad(fresh_normal({50}, 6).to(dtype));
        EXPECT_FALSE(optimizer.step({.skip_non_finite = true}).skipped());
        EXPECT_NE(b.to_vector<double>(), before[1]);
      }
}

TEST(Optimizer, NonFiniteGradientsAreAppliedUnlessTheStepIsToSkip) {
  for (const Case& c : cases()) {
    Tensor a = leaf(fresh_normal({33}, 1));
    optim::Optimizer optimizer = c.of({{"a", a}});
    Tensor gradient = fresh_normal({33}, 3);
    gradient.data<float>()[7] = NAN;
    a.set_grad(gradient);
    EXPECT_FALSE(optimizer.step({.max_norm = 1}).skipped());
    // The sign of NaN is 0: Lion has it in its average alone.
    const Tensor changed = std::string(c.name) == "lion" ? find(optimizer.state_dict(), "exp_avg.a") : a;
    EXPECT_TRUE(std::isnan(changed.to_vector<double>()[7])) << c.name;
  }
}

TEST(Optimizer, ASkippedFirstStepCountsNothing) {
  Tensor w = leaf(full({1}, 2, {.dtype = float64}));
  optim::Adam optimizer({{"w", w}}, {.lr = 0.1});
  w.set_grad(full({1}, NAN, {.dtype = float64}));
  EXPECT_TRUE(optimizer.step({.skip_non_finite = true}).skipped());
  w.set_grad(full({1}, 0.7, {.dtype = float64}));
  optimizer.step();
  ScalarAdam expected{2};
  expected.step(0.7, 0.1);
  EXPECT_NEAR(w.item<double>(), expected.w, 1e-14);
}

TEST(Optimizer, ResultsNotRequestedAreErrors) {
  Tensor w = leaf(ones({3}));
  w.set_grad(full({3}, NAN));
  optim::SGD optimizer({{"w", w}});
  const optim::StepResult plain = optimizer.step();
  EXPECT_FALSE(plain.skipped());
  expect_error([&] { plain.grad_norm(); }, {"max_norm", "skip_non_finite"});
  EXPECT_THROW(plain.first_non_finite(), Error);
  EXPECT_EQ(optimizer.step({.max_norm = 1}).first_non_finite(), "w");
}

/// Rates in device memory follow every change of the rate; the results are bit-equal.
TEST(Optimizer, CapturableIsTheSame) {
  const auto run = [](bool capturable) {
    Tensor a = leaf(fresh_normal({41}, 1)), b = leaf(fresh_normal({7}, 2));
    const std::vector<optim::ParameterGroup> groups = {{{{"a", a}}, {}, {}}, {{{"b", b}}, 0.5, {}}};
    optim::AdamW adam(groups, {.lr = 0.01, .capturable = capturable});
    optim::SGD sgd(groups, {.lr = 0.01, .momentum = 0.9, .capturable = capturable});
    Values weights;
    for (uint64_t step = 0; step < 6; ++step) {
      a.set_grad(fresh_normal({41}, 10 + step));
      b.set_grad(fresh_normal({7}, 20 + step));
      for (optim::Optimizer* optimizer : std::initializer_list<optim::Optimizer*>{&adam, &sgd}) {
        if (step == 4) optimizer->set_lr(0.3);
        optimizer->set_lr_factor(1.0 / static_cast<double>(step + 1));
        optimizer->step();
      }
      weights.push_back(a.to_vector<double>());
      weights.push_back(b.to_vector<double>());
    }
    return weights;
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(Optimizer, GradientsMayHaveAnotherType) {
  Tensor w = leaf(fresh_normal({37}, 1));
  const auto start = w.to_vector<double>();
  optim::SGD optimizer({{"w", w}}, {.lr = 0.5});
  const Tensor gradient = fresh_normal({37}, 2).to(bfloat16);
  w.set_grad(gradient);
  optimizer.step();
  const auto g = gradient.to_vector<double>(), end = w.to_vector<double>();
  // The product is exact; the difference is rounded once.
  for (size_t i = 0; i < g.size(); ++i)
    EXPECT_EQ(end[i], static_cast<double>(static_cast<float>(start[i] - 0.5 * g[i]))) << i;
}

}  // namespace
}  // namespace tern::test
