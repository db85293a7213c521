// Several labels, and numbers: transformers' problem types, their losses, metrics, predictions and training.

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <ranges>

#include "tern/core/io/json.h"
#include "tern/core/ops/ops.h"
#include "tern/models/distilbert/distilbert.h"
#include "tern/models/hf_config.h"
#include "tern/models/text/text_pipeline.h"
#include "tern/models/text/text_task.h"
#include "tern/tests/core/fresh.h"
#include "tern/tests/errors.h"
#include "tern/tests/places.h"
#include "tern/tests/support/temporary_folder.h"

namespace tern::models {
namespace {

using data::LabelKind;
using test::error_of;
using test::has;
using Json = nlohmann::json;
namespace fs = std::filesystem;

const std::string kGolden = test::source_dir() + "/tests/golden/";

/// train_curve's folder with other fields of its configuration.
std::string folder_with(const test::TemporaryFolder& temporary, const Json& fields) {
  const fs::path to = temporary.path() / "model";
  fs::remove_all(to);
  fs::copy(kGolden + "train_curve", to, fs::copy_options::recursive);
  Json config = read_json_object((to / "config.json").string());
  config.update(fields);
  std::ofstream(to / "config.json") << config.dump();
  return to.string();
}

template <class T>
Tensor matrix_of(const Json& rows) {
  std::vector<T> values;
  for (const Json& row : rows)
    for (const Json& value : row) values.push_back(value.get<T>());
  return from_vector(values, {static_cast<int64_t>(rows.size()), static_cast<int64_t>(rows[0].size())});
}

void expect_near(const Tensor& found, const Json& wanted, double tolerance) {
  const std::vector<double> values = found.to_vector<double>(),
                            expected = matrix_of<double>(wanted).to_vector<double>();
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], tolerance) << i;
}

TEST(LabelKinds, LossesAndGradientsAreTransformers) {
  const test::TemporaryFolder temporary;
  const Json golden = read_json_object(kGolden + "problem_types.json");
  for (const auto& [type, kind, loss_of] :
       {std::tuple("multi_label_classification", LabelKind::kSeveral, &several_labels_loss),
        std::tuple("regression", LabelKind::kNumber, &numbers_loss)}) {
    SCOPED_TRACE(type);
    const auto model = DistilBert::from_pretrained(folder_with(temporary, {{"problem_type", type}}));
    EXPECT_EQ(model->label_kind(), kind);
    model->eval();
    const Json& wanted = golden[type];
    const Tensor logits =
        model->forward(data::padded_input(matrix_of<int64_t>(golden["ids"]), matrix_of<int64_t>(golden["mask"])));
    expect_near(logits, wanted["logits"], 1e-5);
    const Tensor targets = matrix_of<float>(wanted["targets"]), loss = loss_of(logits, targets);
    EXPECT_NEAR(loss.item<double>(), wanted["loss"].get<double>(), 1e-5);
    loss.backward();
    expect_near(find(model->parameters(), "classifier.weight").grad(), wanted["d_weight"], 1e-5);

    const Score score = (kind == LabelKind::kSeveral ? score_several_labels : score_numbers)(logits.detach(), targets);
    EXPECT_NEAR(score.loss / static_cast<double>(score.examples), wanted["loss"].get<double>(), 1e-5);
    const std::string saved = (temporary.path() / "saved").string();
    model->save_pretrained(saved);
    EXPECT_EQ(read_json_object(saved + "/config.json")["problem_type"], type);
    EXPECT_EQ(DistilBert::from_pretrained(saved)->label_kind(), kind);
  }
}

/// Rows of NaN change neither loss nor gradients.
TEST(LabelKinds, RowsThatFillABatchAreNoExamples) {
  for (const auto& [loss_of, score_of] :
       {std::pair(&several_labels_loss, &score_several_labels), std::pair(&numbers_loss, &score_numbers)})
    for (const int64_t columns : {1, 3}) {
      const Tensor outputs = test::fresh_normal({5, columns}, 1);
      Tensor targets = (test::fresh_normal({5, columns}, 2) > 0.0).to(float32);
      const auto run = [&](const Tensor& x, const Tensor& t) {
        const Tensor leaf = x.clone().set_requires_grad(true);
        const Tensor loss = loss_of(leaf, t);
        loss.backward();
        return std::pair(loss.item<double>(), leaf.grad());
      };
      const auto [loss, gradient] = run(outputs.slice(0, 0, 3), targets.slice(0, 0, 3));
      targets.slice(0, 3, 5).fill_(NAN);
      const auto [filled_loss, filled_gradient] = run(outputs, targets);
      EXPECT_NEAR(filled_loss, loss, 1e-6);
      for (int64_t i = 0; i < 3 * columns; ++i)
        EXPECT_NEAR(filled_gradient.to_vector<double>()[static_cast<size_t>(i)],
                    gradient.to_vector<double>()[static_cast<size_t>(i)], 1e-7);
      for (size_t i = static_cast<size_t>(3 * columns); i < filled_gradient.to_vector<double>().size(); ++i)
        EXPECT_EQ(filled_gradient.to_vector<double>()[i], 0);
      EXPECT_EQ(score_of(outputs, targets).examples, 3);
      targets.fill_(NAN);
      EXPECT_EQ(run(outputs, targets).first, 0);
    }
  EXPECT_TRUE(has(error_of([] { several_labels_loss(zeros({2, 3}), zeros({2, 1})); }), "float32 of this shape"));
  EXPECT_TRUE(has(error_of([] { numbers_loss(zeros({2, 1}), zeros({2}, {.dtype = int64})); }), "outputs are [2, 1]"));
}

Evaluation result_of(const Score& score) {
  Tally tally;
  tally.add(score);
  return tally.result();
}

/// Outputs without a prediction are counted, and are no right answers: not the first label's.
TEST(LabelKinds, OutputsThatAreNoNumbers) {
  const float nan = NAN, inf = INFINITY;
  const Tensor logits = from_vector<float>(
      {nan, 0, 0, /**/ 0, nan, 0, /**/ inf, 0, 0, /**/ -inf, 1, 0, /**/ -inf, -inf, -inf, /**/ 2, 1, 0}, {6, 3});
  const Score one = score_labels(logits, from_vector<int64_t>({0, 0, 0, 1, 0, 0}, {6}));
  EXPECT_EQ(one.not_finite, 4);  // a label of probability 0 is a prediction
  EXPECT_EQ(one.metric, 2);
  EXPECT_EQ(one.examples, 6);
  EXPECT_FALSE(result_of(one).is_finite());
  for (const auto& score_of : {&score_several_labels, &score_numbers}) {
    const Score score = score_of(logits, zeros({6, 3}));
    EXPECT_EQ(score.not_finite, 5);
    EXPECT_FALSE(result_of(score).is_finite());
    EXPECT_TRUE(result_of(score_of(logits.slice(0, 5, 6), zeros({1, 3}))).is_finite());
  }
  EXPECT_TRUE(result_of({}).is_finite());  // no rows are no reason to fail
  Evaluation inexact{.loss = INFINITY, .examples = 1};
  EXPECT_FALSE(inexact.is_finite());
}

/// scikit-learn's definitions, in loops.
/// Counted in another way: for each class, over the examples.
TEST(LabelKinds, ReportOfSingleLabels) {
  std::mt19937_64 random = fresh_random(7);
  for (const int64_t labels : {1, 2, 5, 40}) {
    SCOPED_TRACE(labels);
    Outcomes o{.columns = 1};
    for (int i = 0; i < 60; ++i) {
      o.outputs.push_back(static_cast<float>(random() % static_cast<uint64_t>(labels)));
      o.targets.push_back(
          static_cast<float>(random() % 2 == 0 ? o.outputs.back() : static_cast<float>(random() % ((labels + 1) / 2))));
    }
    const SingleLabelReport report = single_label_report(o, labels);
    ASSERT_EQ(report.labels.size(), static_cast<size_t>(labels));
    double f1 = 0, defined = 0;
    for (int64_t c = 0; c < labels; ++c) {
      double right = 0, predicted = 0, rows = 0;
      std::vector<int64_t> row(static_cast<size_t>(labels));
      for (size_t i = 0; i < o.outputs.size(); ++i) {
        const auto label = static_cast<float>(c);
        right += o.outputs[i] == label && o.targets[i] == label;
        predicted += o.outputs[i] == label;
        rows += o.targets[i] == label;
        if (o.targets[i] == label) ++row[static_cast<size_t>(o.outputs[i])];
      }
      const auto& of = report.labels[static_cast<size_t>(c)];
      const auto same = [](double got, double part, double whole) {
        return whole == 0 ? std::isnan(got) : std::fabs(got - part / whole) < 1e-15;
      };
      EXPECT_TRUE(same(of.precision(NAN), right, predicted)) << c;
      EXPECT_TRUE(same(of.recall(NAN), right, rows)) << c;
      EXPECT_TRUE(same(of.f1(NAN), 2 * right, predicted + rows)) << c;
      EXPECT_EQ(static_cast<double>(of.targets), rows);
      const auto begin = report.confusion.begin() + c * labels;
      EXPECT_EQ(std::vector<int64_t>(begin, begin + labels), row);
      if (predicted + rows > 0) f1 += of.f1(), ++defined;
    }
    EXPECT_NEAR(report.f1_macro, f1 / defined, 1e-12);
  }
  EXPECT_TRUE(std::isnan(single_label_report({.columns = 1}, 3).f1_macro));
  EXPECT_TRUE(has(error_of([] { single_label_report({.columns = 1, .outputs = {0}, .targets = {2}}, 2); }),
                  "target 0 is 2, expected 0 to 1"));
}

TEST(LabelKinds, ReportOfSeveralLabels) {
  std::mt19937_64 random = fresh_random(3);
  for (int round = 0; round < 20; ++round) {
    const int64_t rows = 1 + static_cast<int64_t>(random() % 9), columns = 1 + static_cast<int64_t>(random() % 4);
    Outcomes o{.columns = columns};
    for (int64_t i = 0; i < rows * columns; ++i) {
      o.outputs.push_back(static_cast<float>(static_cast<int64_t>(random() % 5) - 2));  // 0: a probability of 0.5
      o.targets.push_back(static_cast<float>(random() % 2));
    }
    const SeveralLabelsReport report = several_labels_report(o);
    double right = 0, predicted = 0, wanted = 0, macro = 0, exact = 0;
    for (int64_t c = 0; c < columns; ++c) {
      double tp = 0, fp = 0, fn = 0;
      for (int64_t r = 0; r < rows; ++r) {
        const auto i = static_cast<size_t>(r * columns + c);
        const bool p = 1 / (1 + std::exp(-static_cast<double>(o.outputs[i]))) > 0.5, t = o.targets[i] == 1;
        tp += p && t;
        fp += p && !t;
        fn += !p && t;
      }
      right += tp;
      predicted += tp + fp;
      wanted += tp + fn;
      const double f1 = tp + fp + fn == 0 ? 0 : tp / (tp + (fp + fn) / 2);
      macro += f1 / static_cast<double>(columns);
      const auto& label = report.labels[static_cast<size_t>(c)];
      EXPECT_NEAR(label.f1(), f1, 1e-12);
      EXPECT_NEAR(label.accuracy(), 1 - (fp + fn) / static_cast<double>(rows), 1e-12);
      EXPECT_EQ(label.targets, static_cast<int64_t>(tp + fn));
    }
    for (int64_t r = 0; r < rows; ++r) {
      bool all = true;
      for (int64_t c = 0; c < columns; ++c) {
        const auto i = static_cast<size_t>(r * columns + c);
        all = all && (o.outputs[i] > 0) == (o.targets[i] == 1);
      }
      exact += all;
    }
    EXPECT_NEAR(report.f1_micro, predicted + wanted == 0 ? 0 : 2 * right / (predicted + wanted), 1e-12);
    EXPECT_EQ(micro_f1(o), report.f1_micro);
    EXPECT_NEAR(report.f1_macro, macro, 1e-12);
    EXPECT_NEAR(report.accuracy, exact / static_cast<double>(rows), 1e-12);
  }
  EXPECT_TRUE(std::isnan(micro_f1({.columns = 2})) && std::isnan(several_labels_report({.columns = 2}).f1_macro));
}

/// Numbers of numpy: means, corrcoef, and corrcoef of the mean ranks.
TEST(LabelKinds, ReportOfNumbers) {
  const Outcomes o{
      .columns = 1, .outputs = {0.5, -1.25, 3, 3, 0.125, 7, -2, 0.5}, .targets = {1, -1, 2.5, 4, 1, 5, -2, 0}};
  const NumbersReport report = numbers_report(o);
  EXPECT_NEAR(report.mse, 0.822265625, 1e-14);
  EXPECT_NEAR(report.mae, 0.703125, 1e-14);
  EXPECT_NEAR(report.r2, 0.8374517374517374, 1e-14);
  EXPECT_NEAR(report.pearson, 0.9491620980447515, 1e-14);
  EXPECT_NEAR(report.spearman, 0.9394111922831737, 1e-14);
  EXPECT_NEAR(comparable_r2(o), report.r2, 0);

  const NumbersReport equal = numbers_report({.columns = 1, .outputs = {1, 2}, .targets = {3, 3}});
  EXPECT_TRUE(equal.r2 == 0 && std::isnan(equal.pearson) && std::isnan(equal.spearman));
  EXPECT_TRUE(std::isnan(numbers_report({}).mse) && std::isnan(comparable_r2({})));
  EXPECT_TRUE(std::isnan(numbers_report({.columns = 1, .outputs = {1}, .targets = {1}}).r2));
  EXPECT_EQ(comparable_r2({.columns = 1, .outputs = {1}, .targets = {1}}), 1);
  EXPECT_EQ(comparable_r2({.columns = 1, .outputs = {1}, .targets = {2}}), 0);
  EXPECT_TRUE(std::isfinite(comparable_r2({.columns = 1, .outputs = {NAN, 1}, .targets = {1, 2}})));
}

/// A report is the same far from zero, where sums of squares would cancel.
TEST(LabelKinds, CorrelationsFarFromZero) {
  std::mt19937_64 random = fresh_random(4);
  Outcomes near_zero{.columns = 1}, far = near_zero;
  for (int i = 0; i < 50; ++i) {
    const auto y = static_cast<float>(random() % 64), p = y + static_cast<float>(random() % 16);
    near_zero.outputs.push_back(p);
    near_zero.targets.push_back(y);
    far.outputs.push_back(p + 0x1p22f);
    far.targets.push_back(y + 0x1p22f);
  }
  const NumbersReport a = numbers_report(near_zero), b = numbers_report(far);
  for (const auto& [x, y] : {std::pair(a.r2, b.r2), {a.pearson, b.pearson}, {a.spearman, b.spearman}, {a.mse, b.mse}})
    EXPECT_NEAR(x, y, 1e-9);
}

TEST(LabelKinds, OfAConfiguration) {
  const test::TemporaryFolder temporary;
  const auto kind_of = [&](const Json& fields) {
    const Json labels = {{"id2label", nullptr}, {"label2id", nullptr}};
    Json all = labels;
    all.update(fields);
    const std::string dir = folder_with(temporary, all);
    return DistilBertConfig::from_json(read_model_text(dir, "config.json"), "c").label_kind;
  };
  EXPECT_EQ(kind_of({{"num_labels", 1}}), LabelKind::kNumber);  // as transformers
  EXPECT_EQ(kind_of({{"num_labels", 2}}), LabelKind::kOne);
  EXPECT_EQ(kind_of({{"num_labels", 1}, {"problem_type", "multi_label_classification"}}), LabelKind::kSeveral);
  EXPECT_EQ(kind_of({{"num_labels", 4}, {"problem_type", "regression"}}), LabelKind::kNumber);
  EXPECT_EQ(kind_of({{"num_labels", 4}, {"problem_type", nullptr}}), LabelKind::kOne);
  EXPECT_TRUE(has(error_of([&] {
                    kind_of({{"problem_type", "ranking"}});
                  }),
                  "problem_type 'ranking' is unknown; Tern reads single_label_classification"));
  const std::string dir = folder_with(temporary, Json::object());
  EXPECT_EQ(DistilBert::from_pretrained(dir, {.label_kind = LabelKind::kSeveral})->label_kind(), LabelKind::kSeveral);
  const std::string vit = kGolden + "vit_hf";
  EXPECT_TRUE(has(error_of([&] { load_pretrained<ImageClassifier>(vit, {.label_kind = LabelKind::kNumber}); }),
                  "gives each input one label"));
  EXPECT_TRUE(has(error_of([&] { family_named("vit").make("", {.label_kind = LabelKind::kNumber}); }),
                  "gives each input one label"));
}

TEST(LabelKinds, Predictions) {
  const Tensor logits = from_vector<float>({2, -1, 0, -3, -2, -1, 0.5, 4, 1}, {3, 3});
  const std::vector<Prediction> several = predictions_of(logits, LabelKind::kSeveral);
  EXPECT_EQ(several[0].labels, std::vector<int64_t>{0});
  EXPECT_NEAR(several[0].scores[0], 1 / (1 + std::exp(-2.0)), 1e-12);
  EXPECT_TRUE(several[1].labels.empty() && several[1].scores.empty());
  EXPECT_EQ(several[2].labels, (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(several[2].logits, (std::vector<double>{0.5, 4, 1}));
  const std::vector<Prediction> one = predictions_of(logits);
  EXPECT_EQ(one[2].label, 1);
  EXPECT_NEAR(one[2].score, std::exp(4) / (std::exp(0.5) + std::exp(4) + std::exp(1)), 1e-6);
  EXPECT_TRUE(one[2].labels.empty());
  EXPECT_EQ(predictions_of(logits, LabelKind::kNumber)[1].logits, (std::vector<double>{-3, -2, -1}));

  const test::TemporaryFolder temporary;
  const TextPipeline pipeline =
      TextPipeline::load(folder_with(temporary, {{"problem_type", "multi_label_classification"}}));
  pipeline.model().eval();
  const Prediction p = pipeline.predict({"great movie"})[0];
  for (size_t i = 0; i < 3; ++i)
    EXPECT_EQ(std::count(p.labels.begin(), p.labels.end(), static_cast<int64_t>(i)) == 1, p.logits[i] > 0);
}

/// A task's batches, validation and evaluate() agree with the model's outputs one text at a time.
TEST(LabelKinds, TasksAreByHand) {
  const test::TemporaryFolder temporary;
  std::mt19937_64 random = fresh_random(5);
  auto tokens = std::make_shared<data::TokenSet>();
  for (int row = 0; row < 20; ++row) {
    for (uint64_t i = 0; i <= random() % 9; ++i) tokens->ids.push_back(static_cast<int32_t>(random() % 205));
    tokens->offsets.push_back(static_cast<int64_t>(tokens->ids.size()));
  }
  const auto range = [](int32_t begin, int32_t end) {
    const auto all = std::views::iota(begin, end);
    return std::vector<int32_t>(all.begin(), all.end());
  };
  for (const auto& [type, loss_of] :
       {std::pair("multi_label_classification", &several_labels_loss), std::pair("regression", &numbers_loss)}) {
    SCOPED_TRACE(type);
    const auto model = DistilBert::from_pretrained(folder_with(temporary, {{"problem_type", type}}), {.dropout = 0});
    Tensor targets = test::fresh_normal({20, 3}, 6);
    if (model->label_kind() == LabelKind::kSeveral) targets = (targets > 0.0).to(float32);
    const auto output_of = [&](int32_t row) {
      const std::span<const int32_t> ids = tokens->row(row);
      const std::vector<int32_t> list(ids.begin(), ids.end());
      return model->forward(data::padded_input(from_vector(list, {1, static_cast<int64_t>(list.size())})));
    };
    const auto loss_by_hand = [&](std::span<const int32_t> rows) {
      NoGrad off;
      double sum = 0;
      for (const int32_t row : rows) sum += loss_of(output_of(row), targets.slice(0, row, row + 1)).item<double>();
      return sum / static_cast<double>(rows.size());
    };
    for (const int64_t batch_size : {0, 3}) {
      TextTask task(*model, tokens, {}, range(0, 15), range(15, 20), 0,
                    {.epochs = 1, .batch_size = batch_size, .batch_tokens = 23, .transform = text_targets(targets)});
      model->train();
      task.begin_epoch(0);
      for (int64_t step = 0; step < task.steps(0); ++step) {
        ASSERT_TRUE(task.next_batch());
        EXPECT_NEAR(task.batch().loss().item<double>(), loss_by_hand(task.plan().epoch(0)->batch(step)), 1e-5);
      }
      const Evaluation found = task.validate();
      EXPECT_EQ(found.examples, 5);
      EXPECT_NEAR(found.loss, loss_by_hand(range(15, 20)), 1e-5);
      EXPECT_EQ(found.outcomes.outputs.size(), 15u);
      EXPECT_EQ(found.metric, (model->label_kind() == LabelKind::kSeveral ? micro_f1 : comparable_r2)(found.outcomes));
      const Evaluation same = evaluate(*model, tokens, {}, range(15, 20), 64, 0, {}, text_targets(targets));
      EXPECT_NEAR(same.metric, found.metric, 1e-6);
    }
  }
}

}  // namespace
}  // namespace tern::models
