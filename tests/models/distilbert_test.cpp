// DistilBERT compared with transformers (tests/golden): logits, hidden states, gradients, a training run.

#include "tern/models/distilbert/distilbert.h"

#include "tern/optim/optim.h"
#include "tern/tests/models/golden.h"
#include "tern/tests/models/golden_texts.h"

namespace tern::models {
namespace {

class Golden : public ::testing::TestWithParam<std::tuple<std::string, bool>> {};

TEST_P(Golden, LogitsAndGradients) {
  const auto& [name, pack] = GetParam();
  auto model = DistilBert::from_pretrained(kGolden + name);
  model->eval();
  const Tensor logits = model->forward(input_of(expected_of(name), pack));
  const size_t compared = expect_golden_pass(*model, distilbert_key_map(), logits, name, "k_lin.bias");
  EXPECT_EQ(compared, static_cast<size_t>(8 + model->config().layers * 15));
}

TEST_P(Golden, LastHiddenState) {
  const auto& [name, pack] = GetParam();
  const StateView expected = expected_of(name);
  auto model = DistilBert::from_pretrained(kGolden + name);
  model->eval();
  NoGrad off;
  const Tensor hidden = model->hidden_states(input_of(expected, pack));
  const std::vector<double> got = hidden.to_vector<double>();
  const std::vector<double> want = find(expected, "last_hidden_state").to_vector<double>();
  const std::vector<int64_t> keep = find(expected, "attention_mask").to_vector<int64_t>();
  const size_t width = static_cast<size_t>(hidden.size(1));
  size_t row = 0;
  for (size_t token = 0; token < keep.size(); ++token) {
    if (keep[token] == 0) {
      row += pack ? 0 : 1;
      continue;
    }
    for (size_t j = 0; j < width; ++j) EXPECT_NEAR(got[row * width + j], want[token * width + j], kClose);
    ++row;
  }
  EXPECT_EQ(row * width, got.size());
}

INSTANTIATE_TEST_SUITE_P(DistilBert, Golden,
                         ::testing::Combine(::testing::Values("distilbert_gelu", "distilbert_relu"),
                                            ::testing::Bool()));

TEST(DistilBert, HundredTrainingSteps) {
  const auto curve = nlohmann::json::parse(std::ifstream(kGolden + "loss_curve/loss_curve.json"));
  const StateView batches = load_safetensors(kGolden + "loss_curve/batches.safetensors").tensors;
  auto model = DistilBert::from_pretrained(kGolden + "distilbert_gelu");
  model->eval();  // no dropout
  optim::AdamW optimizer(optim::no_decay_groups(model->parameters(), 0.01), {.lr = 1e-3});
  const double of_loss = tolerance("loss_curve", "loss"), of_norm = tolerance("loss_curve", "norm");
  for (size_t step = 0; step < 100; ++step) {
    const std::string batch = "batch" + std::to_string(step % 5) + "/";
    const data::TokenInput input =
        data::padded_input(find(batches, batch + "input_ids"), find(batches, batch + "attention_mask"));
    const Tensor loss = cross_entropy(model->forward(input), find(batches, batch + "labels"));
    ASSERT_NEAR(loss.item<double>(), curve["losses"][step].get<double>(), of_loss) << "step " << step;
    loss.backward();
    optimizer.set_lr(curve["learning_rates"][step].get<double>());
    const auto result = optimizer.step({.max_norm = 1.0, .skip_non_finite = true});
    EXPECT_NEAR(result.grad_norm() / curve["grad_norms"][step].get<double>(), 1, of_norm) << "step " << step;
    optimizer.zero_grad();
  }
  for (const NamedTensor& entry : to_checkpoint_names(distilbert_key_map(), model->state_dict())) {
    if (entry.name.ends_with("k_lin.bias")) continue;
    EXPECT_NEAR(l2(entry.tensor.to_vector<double>()) / curve["final_norms"][entry.name].get<double>(), 1, of_norm)
        << entry.name;
  }
}

TEST(DistilBert, RecomputationGivesTheSameBits) {
  const StateView expected = expected_of("distilbert_gelu");
  const auto pass = [&](int64_t layers) {
    auto model = DistilBert::from_pretrained(kGolden + "distilbert_gelu",
                                             {.generator = test::fresh_generator(), .dropout = 0.2});
    model->set_recompute(layers);
    const data::TokenInput input = input_of(expected, false);
    return training_pass(
        *model, [&] { return model->forward(input); }, find(expected, "labels"));
  };
  const TrainingPass plain = pass(0);
  for (const int64_t layers : {1, 2, 9}) {
    const TrainingPass recomputed = pass(layers);
    EXPECT_EQ(recomputed.values, plain.values) << layers;
    EXPECT_LT(recomputed.kept_bytes, plain.kept_bytes / 2) << layers;
  }
}

TEST(DistilBert, DropoutIsTheSamePackedAndPadded) {
  const StateView expected = expected_of("distilbert_gelu");
  std::vector<std::vector<double>> logits;
  for (const bool pack : {false, true}) {
    auto model = DistilBert::from_pretrained(kGolden + "distilbert_gelu", {.generator = test::fresh_generator()});
    data::TokenInput input = input_of(expected, pack);
    std::vector<int64_t> keys, positions = input.positions.to_vector<int64_t>();
    const std::vector<int64_t> offsets = input.layout.offsets.to_vector<int64_t>();
    for (size_t s = 0; s + 1 < offsets.size(); ++s)
      for (int64_t row = offsets[s]; row < offsets[s + 1]; ++row)
        keys.push_back(static_cast<int64_t>(s) << 32 | positions[static_cast<size_t>(row)]);
    input.layout.row_keys = from_vector(keys, {static_cast<int64_t>(keys.size())});
    logits.push_back(model->forward(input).to_vector<double>());
  }
  EXPECT_LE(distance(logits[0], logits[1]), 20 * 0x1p-24 * l2(logits[0]));  // rounding in another order
  auto plain = DistilBert::from_pretrained(kGolden + "distilbert_gelu");
  plain->eval();
  EXPECT_GT(distance(logits[0], plain->forward(input_of(expected, false)).to_vector<double>()), 1e-2 * l2(logits[0]));
}

}  // namespace
}  // namespace tern::models
