// What PyTorch's numbers (functions_golden_test.cpp) do not show of the CTC and margin losses: the gradient by
// log-probabilities, impossible targets, degenerate sizes, types, and errors.

#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

Tensor ints(const std::vector<int64_t>& values) { return from_vector(values, {static_cast<int64_t>(values.size())}); }

class CtcLoss : public DerivativeTest {};

/// At each frame the classes share a probability of 1 among all alignments.
TEST_F(CtcLoss, TheGradientSumsToMinusOneAtEachFrame) {
  const Tensor x = log_softmax(normal({7, 2, 4})).detach().set_requires_grad(true);
  ctc_loss(x, ints({1, 3, 3, 2}), ints({7, 5}), ints({3, 1}), {.reduction = LossReduction::kSum}).backward();
  const std::vector<double> sums = sum(x.grad(), {2}).to_vector<double>();
  for (size_t i = 0; i < sums.size(); ++i) EXPECT_NEAR(sums[i], i % 2 == 1 && i / 2 >= 5 ? 0 : -1, 1e-13) << i;
}

TEST_F(CtcLoss, TargetsThatDoNotFit) {
  const auto run = [&](bool zero_infinity, bool second) {
    const Tensor x = log_softmax(normal({2, 2, 3})).detach().set_requires_grad(true);
    // Two equal labels need a blank between them.
    const Tensor loss = ctc_loss(x, ints({1, 1, 2}), ints({2, 2}), ints({2, 1}),
                                 {.reduction = LossReduction::kNone, .zero_infinity = zero_infinity});
    EXPECT_EQ(loss[0].item<double>(), zero_infinity ? 0 : INFINITY);
    EXPECT_TRUE(std::isfinite(loss[1].item<double>()));
    const Tensor gradient = grad({sum(loss)}, {x}, {.create_graph = second})[0].detach();
    for (const double v : gradient.select(1, 0).to_vector<double>())
      EXPECT_TRUE(zero_infinity ? v == 0 : std::isnan(v) || v == 0) << v;
    EXPECT_EQ(isnan(gradient).to_vector<bool>()[1], !zero_infinity);
    EXPECT_NEAR(sum(gradient.select(1, 1)).item<double>(), -2, 1e-12);
  };
  for (const bool zero_infinity : {false, true})
    for (const bool second : {false, true}) run(zero_infinity, second);
}

/// A class of probability 0 is no NaN while another alignment remains.
TEST_F(CtcLoss, ProbabilitiesOfZero) {
  const Tensor x = log(tensor({0, 1, 0.5, 0.5, 0, 1}, {.dtype = float64})).reshape({3, 1, 2}).set_requires_grad(true);
  const Tensor loss = ctc_loss(x, ints({1}), ints({3}), ints({1}));
  EXPECT_NEAR(loss.item<double>(), std::log(2.0), 1e-15);
  for (const bool second : {false, true}) {
    const Tensor gradient = grad({loss}, {x}, {.retain_graph = true, .create_graph = second})[0].detach();
    EXPECT_EQ(gradient.to_vector<double>(), (std::vector<double>{0, -1, 0, -1, 0, -1}));
  }
  const Tensor bad = full({2, 1, 3}, NAN).set_requires_grad(true), nan = ctc_loss(bad, ints({1}), ints({2}), ints({1}));
  EXPECT_TRUE(std::isnan(nan.item<double>()));
}

TEST_F(CtcLoss, DegenerateSizesAndTypes) {
  const Tensor none = from_vector<int64_t>({}, {0});
  EXPECT_EQ(ctc_loss(zeros({4, 0, 3}), none, none, none, {.reduction = LossReduction::kSum}).item<double>(), 0);
  EXPECT_TRUE(std::isnan(ctc_loss(zeros({4, 0, 3}), none, none, none).item<double>()));
  EXPECT_EQ(ctc_loss(zeros({0, 1, 3}), none, ints({0}), ints({0})).item<double>(), 0);
  EXPECT_EQ(ctc_loss(zeros({0, 1, 3}), ints({1}), ints({0}), ints({1})).item<double>(), INFINITY);
  EXPECT_EQ(ctc_loss(zeros({1, 1}), none, ints({1}), ints({0})).item<double>(), 0);
  const Tensor x = log_softmax(normal({6, 2, 4})), lengths = ints({6, 5}), counts = ints({2, 1});
  const Tensor padded = from_vector<int64_t>({1, 3, 2, 7}, {2, 2});
  const double want = ctc_loss(x, ints({1, 3, 2}), lengths, counts).item<double>();
  EXPECT_EQ(ctc_loss(x, padded, lengths, counts).item<double>(), want);
  EXPECT_EQ(ctc_loss(x, padded.to(int32), lengths.to(int32), counts.to(int32)).item<double>(), want);
  EXPECT_EQ(ctc_loss(x.transpose(0, 1).contiguous().transpose(0, 1), padded.t().contiguous().t(), lengths, counts)
                .item<double>(),
            want);
  for (const DType dtype : {bfloat16, float16}) {
    const Tensor low = x.detach().to(dtype).set_requires_grad(true), loss = ctc_loss(low, padded, lengths, counts);
    EXPECT_EQ(loss.dtype(), float32);
    EXPECT_NEAR(loss.item<double>(), want, 0.05);
    loss.backward();
    EXPECT_EQ(low.grad().dtype(), dtype);
  }
}

TEST_F(CtcLoss, DerivativesOfMarginLossesAndCtc) {
  const Tensor targets = from_vector<int64_t>({1, 0, 3}, {3}), weight = tensor({1, 2, 0.5, 0.3});
  const Tensor labels = from_vector<int64_t>({3, 1, -1, 0, 2, 2, 0, -1, -1, 1, 2, 3}, {3, 4});
  for (const LossReduction reduction : {LossReduction::kMean, LossReduction::kNone}) {
    for (const int p : {1, 2})
      expect_derivatives(
          [&](const Tensors& in) {
            return multi_margin_loss(in[0], targets, {.p = p, .weight = weight, .reduction = reduction});
          },
          distinct_leaves({{3, 4}}, generator_));
    expect_derivatives([&](const Tensors& in) { return multilabel_margin_loss(in[0], labels, reduction); },
                       distinct_leaves({{3, 4}}, generator_));
    expect_derivatives(
        [&](const Tensors& in) { return multilabel_soft_margin_loss(in[0], in[1], {.reduction = reduction}); },
        {normal({3, 4}), normal({3, 4})});
    for (const bool zero_infinity : {false, true}) {
      const Tensor frames = from_vector<int64_t>({5, zero_infinity ? 1 : 4, 5, 0}, {4});
      const Tensor counts = from_vector<int64_t>({2, 2, 0, 0}, {4}), words = from_vector<int64_t>({2, 2, 1, 3}, {4});
      expect_derivatives(
          [&](const Tensors& in) {
            return ctc_loss(in[0].transpose(0, 1), words, frames, counts,
                            {.reduction = reduction, .zero_infinity = zero_infinity});
          },
          {normal({4, 5, 4})});
    }
  }
}

TEST_F(CtcLoss, Errors) {
  const Tensor x = zeros({4, 2, 3}), lengths = ints({4, 3}), counts = ints({1, 1}), targets = ints({1, 2});
  const auto fails = [&](const std::string& part, const auto& call) {
    try {
      call();
      ADD_FAILURE() << "no error: " << part;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  fails("log_probabilities must be", [&] { ctc_loss(x[0][0], targets, lengths, counts); });
  fails("log_probabilities must be", [&] { ctc_loss(x.to(int64), targets, lengths, counts); });
  fails("input_lengths[0] is 5", [&] { ctc_loss(x, targets, ints({5, 3}), counts); });
  fails("target_lengths[1] is -1", [&] { ctc_loss(x, targets, lengths, ints({1, -1})); });
  fails("input_lengths must be", [&] { ctc_loss(x, targets, ints({4}), counts); });
  fails("target_lengths must be", [&] { ctc_loss(x, targets, lengths, counts.to(float32)); });
  fails("target_lengths must be", [&] { ctc_loss(x, targets, lengths, {}); });
  fails("targets must be", [&] { ctc_loss(x, {}, lengths, counts); });
  fails("targets are [3]", [&] { ctc_loss(x, ints({1, 2, 1}), lengths, counts); });
  fails("expected [2, 1 or more]", [&] { ctc_loss(x, zeros({2, 0}, {.dtype = int64}), lengths, counts); });
  fails("label 0 of sequence 1 is 3", [&] { ctc_loss(x, ints({1, 3}), lengths, counts); });
  fails("other than the blank 2", [&] { ctc_loss(x, targets, lengths, counts, {.blank = 2}); });
  fails("the blank must be", [&] { ctc_loss(x, targets, lengths, counts, {.blank = 3}); });
  fails("index 3 at position 1", [&] { multi_margin_loss(zeros({2, 3}), ints({1, 3})); });
  fails("p must be 1 or 2", [&] { multi_margin_loss(zeros({2, 3}), ints({1, 2}), {.p = 3}); });
  fails("targets must be int64 [2]", [&] { multi_margin_loss(zeros({2, 3}), ints({1})); });
  fails("index 3 at position", [&] { multilabel_margin_loss(zeros({3}), ints({1, 3, -1})); });
}

}  // namespace
}  // namespace tern::test
