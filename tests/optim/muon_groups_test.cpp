// Muon on a whole model: its groups, and AdamW's part of them.

#include "tern/tests/optim/optim_test.h"

namespace tern::test {
namespace {

/// A model's parameters by name, with other numbers in every run.
std::vector<NamedTensor> model_parameters(DType dtype) {
  std::vector<NamedTensor> parameters;
  const std::pair<const char*, Shape> shapes[] = {
      {"word", {9, 4}},   {"body.a", {5, 7}}, {"body.b", {5, 7}}, {"body.conv", {3, 2, 2}},
      {"body.bias", {7}}, {"head", {3, 1}},   {"scale", {}},      {"body.none", {0, 4}}};
  for (uint64_t i = 0; const auto& [name, shape] : shapes)
    parameters.push_back({name, leaf(fresh_normal(shape, ++i).to(dtype))});
  return parameters;
}

bool is_body(const NamedTensor& parameter) { return parameter.name.starts_with("body."); }
bool is_muons(const NamedTensor& parameter) { return is_body(parameter) && parameter.tensor.dim() >= 2; }

void set_gradients(const std::vector<NamedTensor>& parameters, uint64_t step) {
  for (uint64_t i = 0; const NamedTensor& p : parameters) {
    Tensor tensor = p.tensor;
    tensor.set_grad(fresh_normal(p.tensor.shape(), 100 * step + ++i).to(p.tensor.dtype()));
  }
}

std::vector<NamedTensor> chosen(const std::vector<NamedTensor>& all,
                                const std::function<bool(const NamedTensor&)>& is) {
  std::vector<NamedTensor> some;
  std::copy_if(all.begin(), all.end(), std::back_inserter(some), is);
  return some;
}

std::vector<double> values_of(const std::vector<NamedTensor>& parameters) {
  std::vector<double> all;
  for (const NamedTensor& p : parameters)
    for (const double value : p.tensor.to_vector<double>()) all.push_back(value);
  return all;
}

const optim::MuonOptions kOptions{.lr = 0.01, .weight_decay = 0.3, .momentum = 0.8, .beta1 = 0.7, .beta2 = 0.9};

/// Every parameter gets the bits that two optimizers, a Muon and an AdamW, give.
TEST(MuonGroups, AreMuonAndAdamW) {
  for (const DType dtype : {float32, bfloat16, float64}) {
    const std::vector<NamedTensor> together = model_parameters(dtype), apart = model_parameters(dtype);
    optim::Muon whole(optim::muon_groups(together, kOptions, is_body), kOptions);
    optim::Muon muon(chosen(apart, is_muons), kOptions);
    const auto others = chosen(apart, [](const NamedTensor& p) { return !is_muons(p); });
    optim::AdamW adamw(optim::no_decay_groups(others, 0.3), {.lr = 0.01, .beta1 = 0.7, .beta2 = 0.9});
    for (uint64_t step = 1; step < 6; ++step) {
      set_gradients(together, step);
      set_gradients(apart, step);
      whole.step();
      muon.step();
      adamw.step();
    }
    for (size_t i = 0; i < together.size(); ++i)
      EXPECT_EQ(together[i].tensor.to_vector<double>(), apart[i].tensor.to_vector<double>())
          << together[i].name << " " << dtype;
    EXPECT_EQ(whole.state_bytes(), muon.state_bytes() + adamw.state_bytes());
    int64_t bytes = 0;
    for (const NamedTensor& p : together) bytes += whole.state_bytes_of(p.tensor);
    EXPECT_EQ(bytes, whole.state_bytes());
  }
}

TEST(MuonGroups, SaveWhatEachKeepsAndSkipTogether) {
  const std::vector<NamedTensor> first = model_parameters(float32), second = model_parameters(float32);
  optim::Muon whole(optim::muon_groups(first, kOptions, is_body), kOptions);
  optim::Muon resumed(optim::muon_groups(second, kOptions, is_body), kOptions);
  set_gradients(first, 1);
  set_gradients(second, 1);
  whole.step({.max_norm = 0.5, .skip_non_finite = true});
  const StateView state = whole.state_dict();
  EXPECT_EQ(find(state, "momentum_buffer.body.a").shape(), Shape({5, 7}));
  EXPECT_EQ(find(state, "momentum_buffer.body.conv").shape(), Shape({3, 2, 2}));
  EXPECT_FALSE(std::any_of(state.begin(), state.end(), [](const NamedTensor& entry) {
    return entry.name == "exp_avg.body.a" || entry.name == "momentum_buffer.head";
  }));
  resumed.load_state_dict(state);
  {
    NoGrad off;
    for (size_t i = 0; i < first.size(); ++i) second[i].tensor.detach().copy_(first[i].tensor);
  }
  for (uint64_t step = 2; step < 5; ++step) {
    const std::vector<double> before = values_of(first);
    for (const auto& [optimizer, parameters] : {std::pair(&whole, &first), {&resumed, &second}}) {
      set_gradients(*parameters, step);
      if (step == 3) (*parameters)[5].tensor.grad().data<float>()[1] = NAN;
      EXPECT_EQ(optimizer->step({.max_norm = 0.5, .skip_non_finite = true}).skipped(), step == 3);
    }
    EXPECT_EQ(values_of(first) == before, step == 3);
    EXPECT_EQ(values_of(first), values_of(second)) << step;
  }
}

/// A schedule of momentum changes beta1 of AdamW's groups.
TEST(MuonGroups, AScheduleOfMomentumReachesBoth) {
  const std::vector<NamedTensor> first = model_parameters(float32), second = model_parameters(float32);
  optim::Muon scheduled(optim::muon_groups(first, kOptions, is_body), kOptions);
  scheduled.set_group_momentum({0.9, 0.6, 0.5});
  optim::MuonOptions options = kOptions;
  options.momentum = 0.9;
  options.beta1 = 0.6;
  auto groups = optim::muon_groups(second, options, is_body);
  options.adamw = true;
  options.beta1 = 0.5;
  groups[2].algorithm = algorithm_of(options);
  optim::Muon given(groups, kOptions);
  for (uint64_t step = 1; step < 4; ++step) {
    set_gradients(first, step);
    set_gradients(second, step);
    scheduled.step();
    given.step();
  }
  EXPECT_EQ(values_of(first), values_of(second));
}

TEST(MuonGroups, Errors) {
  const std::vector<NamedTensor> p = model_parameters(float32);
  expect_error([&] { optim::Muon(p, {.beta2 = 1}); }, {"adamw: beta2 must be in [0, 1), got 1"});
  expect_error([&] { optim::Muon(p, {.adamw_eps = -1}); }, {"adamw: eps", "-1"});
}

}  // namespace
}  // namespace tern::test
