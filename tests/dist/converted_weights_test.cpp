// nn::Module::to(dtype) under optimizers and averages that have a state already.

#include "tern/nn/module.h"
#include "tern/tests/optim/optim_test.h"

namespace tern::test {
namespace {

/// A module of one weight, which Module::to converts.
class OneWeight final : public nn::Module {
 public:
  explicit OneWeight(const Tensor& values)
      : Module(nn::Scope({.dtype = values.dtype()})), weight_(this, "w", values.shape()) {
    weight_.copy_(values);
  }
  Tensor weight() const { return weight_.tensor(); }

 private:
  Parameter weight_;
};

/// The state for a weight of another type, as load_state_dict() takes it.
StateView state_for(const StateView& state, const Tensor& weight, bool has_master) {
  StateView result;
  for (const NamedTensor& entry : copy_of(state))
    if (!entry.name.starts_with("master.")) result.push_back(entry);
  const Tensor kept = find(state, "master.w");
  if (has_master) result.push_back({"master.w", kept.defined() ? kept.clone() : weight.detach().to(float32)});
  return result;
}

/// Steps with a gradient that depends on the number of the step alone.
void run(optim::Optimizer& optimizer, Tensor& weight, uint64_t from, uint64_t to) {
  for (uint64_t step = from; step < to; ++step) {
    weight.set_grad(fresh_normal(weight.shape(), 100 + step).to(weight.dtype()));
    EXPECT_FALSE(optimizer.step({.max_norm = 3, .skip_non_finite = true}).skipped());
  }
}

TEST(ConvertedWeights, StateFollows) {
  std::vector<Case> all = cases();
  all.push_back({"lamb", optim::algorithm_of(optim::LambOptions{.lr = 1e-2})});
  all.push_back({"adafactor", optim::algorithm_of(optim::AdafactorOptions{.lr = 1e-2})});
  all.push_back({"muon", optim::algorithm_of(optim::MuonOptions{.lr = 1e-2})});
  for (const Case& c : all)
    for (const auto& [from, to] : {std::pair(float32, float64),
                                   {float64, float32},
                                   {float64, bfloat16},
                                   {float32, float16},
                                   {bfloat16, float16},
                                   {bfloat16, float64}}) {
      SCOPED_TRACE(testing::Message() << c.name << " " << from << " to " << to);
      OneWeight net(fresh_normal({7, 5}, 1).to(from));
      Tensor one = net.weight();
      optim::Optimizer a = c.of({{"w", one}});
      run(a, one, 0, 3);
      const StateView before = copy_of(a.state_dict());
      net.to(to);
      Tensor two = leaf(one.detach());
      optim::Optimizer b = c.of({{"w", two}});
      b.load_state_dict(state_for(before, one, is_low_precision(to)));
      EXPECT_EQ(values_of(a.state_dict()), values_of(b.state_dict()));  // before the next step
      run(a, one, 3, 6);
      run(b, two, 3, 6);
      EXPECT_EQ(one.dtype(), to);
      EXPECT_EQ(one.to_vector<double>(), two.to_vector<double>());
      EXPECT_EQ(values_of(a.state_dict()), values_of(b.state_dict()));
      for (const NamedTensor& entry : a.state_dict())
        if (is_floating(entry.tensor.dtype())) {
          EXPECT_EQ(entry.tensor.dtype(), to == float64 ? float64 : float32) << entry.name;
        }
    }
}

TEST(ConvertedWeights, KahanIsForOneType) {
  OneWeight net(fresh_normal({7}, 1).to(bfloat16));
  Tensor weight = net.weight();
  optim::AdamW started({{"w", weight}}, {.master_weights = false, .kahan = true});
  optim::AdamW fresh({{"w", weight}}, {.master_weights = false, .kahan = true});
  run(started, weight, 0, 1);
  net.to(float32);
  weight.set_grad(ones({7}));
  const auto before = weight.to_vector<double>();
  for (optim::AdamW* optimizer : {&started, &fresh})
    expect_error([&] { optimizer->step(); }, {"adamw: kahan is for bfloat16", "'w'", "float32"});
  EXPECT_EQ(weight.to_vector<double>(), before);
}

TEST(ConvertedWeights, LookAheadFollows) {
  for (const auto& [from, to] : {std::pair(float32, float64), {float64, float32}, {float32, bfloat16}}) {
    SCOPED_TRACE(testing::Message() << from << " to " << to);
    OneWeight net(fresh_normal({9}, 1).to(from));
    Tensor weight = net.weight();
    optim::SGD inner({{"w", weight}}, {.lr = 0.1});
    optim::LookAhead optimizer(inner, {.steps = 2});
    std::vector<double> slow = weight.to_vector<double>(), fast = slow;
    for (uint64_t step = 0; step < 6; ++step) {
      if (step == 3) net.to(to);
      const Tensor gradient = fresh_normal({9}, 200 + step).to(weight.dtype());
      weight.set_grad(gradient);
      optimizer.step();
      const auto g = gradient.to_vector<double>();
      for (size_t i = 0; i < fast.size(); ++i) fast[i] -= 0.1 * g[i];
      if (step % 2 == 0) continue;
      for (size_t i = 0; i < fast.size(); ++i) fast[i] = slow[i] += 0.5 * (fast[i] - slow[i]);
    }
    EXPECT_LE(relative_error(weight.to_vector<double>(), fast), to == bfloat16 ? 2e-2 : 1e-6);
    const Tensor kept = find(optimizer.state_dict(), "slow.w");
    EXPECT_EQ(kept.dtype(), to == float64 ? float64 : float32);
    EXPECT_LE(relative_error(kept.to_vector<double>(), slow), to == bfloat16 ? 2e-2 : 1e-6);
    if (to == bfloat16) {  // the fp32 copy has followed the slow weights
      EXPECT_EQ(find(inner.state_dict(), "master.w").to_vector<double>(), kept.to_vector<double>());
    }
  }
}

TEST(ConvertedWeights, LbfgsFollows) {
  OneWeight net(fresh_normal({6}, 1));
  Tensor weight = net.weight();
  const Tensor scales = from_vector<double>({1, 2, 3, 4, 5, 6}, {6});
  optim::LBFGS optimizer(
      {{"w", weight}},
      {.max_iter = 3, .tolerance_grad = 0, .tolerance_change = 0, .line_search = optim::LineSearch::kStrongWolfe});
  const auto closure = [&] {
    optimizer.zero_grad();
    const Tensor loss = sum(square(weight.to(float64) - 1.0) * scales);
    loss.backward();
    return loss;
  };
  optimizer.step(closure);
  net.to(float64);
  for (int step = 0; step < 10; ++step) optimizer.step(closure);
  for (const double w : weight.to_vector<double>()) EXPECT_LE(std::abs(w - 1), 1e-9);  // beyond fp32
  EXPECT_EQ(find(optimizer.state_dict(), "direction.w").dtype(), float64);
  net.to(bfloat16);
  expect_error([&] { optimizer.step(closure); }, {"lbfgs", "'w'", "float32 or float64", "bfloat16"});
}

TEST(ConvertedWeights, AveragesFollow) {
  for (const bool equal : {false, true})
    for (const auto& [from, to] :
         {std::pair(float32, float64), {float64, float32}, {float64, bfloat16}, {bfloat16, float64}}) {
      SCOPED_TRACE(testing::Message() << from << " to " << to);
      OneWeight net(zeros({11, 3}, {.dtype = from}));
      Tensor weight = net.weight();
      optim::EMA ema({{"w", weight}}, {.decay = 0.7, .equal = equal});
      std::vector<double> average(33, 0);
      for (int step = 0; step < 6; ++step) {
        if (step == 3) {
          net.to(to);
          const auto converted = weight.to_vector<double>();
          {
            const optim::EMA::InPlace averaged = ema.in_place();
            EXPECT_LE(relative_error(weight.to_vector<double>(), average), to == bfloat16 ? 1e-2 : 1e-6);
          }
          EXPECT_EQ(weight.to_vector<double>(), converted);
        }
        NoGrad off;
        weight.copy_(fresh_normal({11, 3}, static_cast<uint64_t>(step)));
        ema.update();
        const auto now = weight.to_vector<double>();
        const double share = step == 0 ? 1 : equal ? 1.0 / (step + 1) : 0.3;
        for (size_t i = 0; i < 33; ++i) average[i] += share * (now[i] - average[i]);
      }
      const Tensor kept = find(ema.state_dict(), "average.w");
      EXPECT_EQ(kept.dtype(), to == float64 ? float64 : float32);
      EXPECT_LE(relative_error(kept.to_vector<double>(), average), 1e-5);
      ema.copy_to_parameters();
      EXPECT_LE(relative_error(weight.to_vector<double>(), average), to == bfloat16 ? 1e-2 : 1e-5);
    }
}

}  // namespace
}  // namespace tern::test
