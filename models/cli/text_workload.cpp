#include <algorithm>
#include <iomanip>
#include <sstream>

#include "tern/core/allocator.h"
#include "tern/data/datasets/sha256.h"
#include "tern/models/cli/commands.h"
#include "tern/models/cli/text_data.h"
#include "tern/models/cli/train_defaults.h"
#include "tern/models/cli/workload.h"
#include "tern/models/text/text_classifier.h"

namespace tern::cli {
namespace {

/// DistilBERT on texts.
class TextWorkload final : public Workload {
 public:
  void prepare(const TrainArguments& given, const RunSetting& setting) override {
    setting_ = setting;
    texts_ = load_texts(given.data, {}, setting.log);
    TERN_CHECK(texts_.label_names.size() > 1, texts_.name, ": every row has the label '", texts_.label_names.front(),
               "'; a classifier needs two or more");
    split_ = data::make_split(texts_, given.split, given.fold, given.seed);
    make_classifier(given);
    const int64_t max_positions = classifier_->model().config().max_positions;
    tokens_ = tokenize_texts(texts_, classifier_->tokenizer(), max_length_of(given, max_positions), setting.log);
    options_ = with_defaults(given, TextFacts{.data = texts_.name,
                                              .max_positions = max_positions,
                                              .train_tokens = train_tokens(),
                                              .longest_row = std::ranges::max(tokens_->lengths())});
    check_plan();
    task_.emplace(classifier_->model(), tokens_, texts_.labels, split_.train, setting.share(split_.validation),
                  classifier_->tokenizer().pad_id(),
                  models::TextTaskOptions{.epochs = planned_epochs(options_),
                                          .batch_size = options_.batch_size,
                                          .batch_tokens = options_.batch_tokens,
                                          .shuffle = options_.shuffle,
                                          .group_by_length = options_.group_by_length,
                                          .workers = options_.workers,
                                          .seed = options_.seed,
                                          .dtype = setting.precision.autocast,
                                          .should_stop = [] { return pending_signal() != 0; }});
  }

  const TrainArguments& options() const override { return options_; }

  Json model_record() const override {
    const models::DistilBertConfig& config = classifier_->model().config();
    return {{"dropout", config.dropout},
            {"attention_dropout", config.attention_dropout},
            {"classifier_dropout", config.classifier_dropout},
            {"parameters", classifier_->model().num_parameters()}};
  }

  Json data_record() const override {
    data::Sha256 labels;
    labels.update(std::string_view(reinterpret_cast<const char*>(texts_.labels.data()),
                                   texts_.labels.size() * sizeof(texts_.labels[0])));
    return {{"train", split_.train.size()},
            {"validation", split_.validation.size()},
            {"test", split_.test.size()},
            {"texts_sha256", texts_.content_hash()},
            {"labels_sha256", labels.hex()}};
  }

  models::TrainingTask& task() override { return *task_; }
  nn::Module& module() override { return classifier_->model(); }
  void set_recompute(int64_t layers) override { classifier_->model().set_recompute(layers); }
  void save(const std::string& dir) const override { classifier_->save(dir); }
  const char* unit() const override { return "tokens"; }

  std::string describe(int64_t total_steps) const override {
    std::ostringstream out;
    out << "train: " << split_.train.size() << " rows, validate " << split_.validation.size() << ", test "
        << split_.test.size() << "; " << classifier_->model().num_parameters() << " parameters; " << total_steps
        << " steps of " << times(options_.accumulate * setting_.ranks)
        << (options_.batch_size > 0 ? std::to_string(options_.batch_size) + " sequences"
                                    : std::to_string(options_.batch_tokens) + " tokens")
        << " (" << std::fixed << std::setprecision(1) << 100 * task_->plan().fill() << " % filled), " << options_.epochs
        << " epochs";
    return out.str();
  }

  std::optional<models::Evaluation> test() override {
    if (split_.test.empty()) return std::nullopt;
    return models::evaluate(classifier_->model(), tokens_, texts_.labels, setting_.share(split_.test),
                            models::evaluation_tokens(options_.batch_tokens), classifier_->tokenizer().pad_id(),
                            float32, [] { return pending_signal() != 0; });
  }

  double training_flops_per_item() const override {
    std::vector<int64_t> lengths;
    for (const int32_t row : split_.train) lengths.push_back(static_cast<int64_t>(tokens_->row(row).size()));
    return 3 * classifier_->model().forward_flops(lengths) / static_cast<double>(std::max<int64_t>(train_tokens(), 1));
  }

 private:
  void make_classifier(const TrainArguments& given) {
    Generator generator(given.seed);
    const bool resumed = !setting_.checkpoint.empty();
    if (given.init.empty() && !resumed) {
      data::WordPiece tokenizer = data::WordPiece::from_embedded();
      models::DistilBertConfig config = models::DistilBertConfig::preset(preset_of(given));
      config.labels = texts_.label_names;
      config.max_positions = std::max<int64_t>(config.max_positions, given.max_length);
      if (const std::optional<double> p = text_dropout_of(given, texts_.bytes.size()))
        config.dropout = config.attention_dropout = config.classifier_dropout = *p;
      auto model = std::make_unique<models::DistilBert>(
          nn::Scope({.device = setting_.device, .dtype = setting_.precision.weights, .generator = generator}), config);
      classifier_.emplace(std::move(model), std::move(tokenizer));
      return;
    }
    const models::FromPretrainedOptions options{.device = setting_.device,
                                                .dtype = setting_.precision.weights,
                                                .generator = generator,
                                                .labels = texts_.label_names,
                                                .dropout = resumed ? std::nullopt : given.dropout,
                                                .allow_new_head = !resumed,
                                                .log = setting_.log};
    classifier_.emplace(models::TextClassifier::load(resumed ? setting_.checkpoint : given.init, options));
    texts_.order_labels(classifier_->model().config().labels);  // the folder's order of the labels
    const int64_t most = classifier_->model().config().max_positions;
    if (given.max_length > most && !resumed)
      setting_.log("--max-length: " + given.init + " takes at most " + std::to_string(most) +
                   " tokens; texts are cut to that");
  }

  int64_t train_tokens() const {
    int64_t tokens = 0;
    for (const int32_t row : split_.train) tokens += static_cast<int64_t>(tokens_->row(row).size());
    return tokens;
  }

  void check_plan() const {
    const int64_t epochs = planned_epochs(options_);
    const int64_t plan_bytes = epochs * static_cast<int64_t>(split_.train.size() * sizeof(int32_t));
    TERN_CHECK(plan_bytes <= tern::detail::available_system_memory() / 2, "--epochs: the plan of ", epochs,
               " epochs takes ", plan_bytes >> 20,
               " MiB, more than half of the memory left; give fewer, or --max-steps");
  }

  TrainArguments options_;
  RunSetting setting_;
  data::TextSet texts_;
  data::Split split_;
  std::optional<models::TextClassifier> classifier_;
  std::shared_ptr<const data::TokenSet> tokens_;
  std::optional<models::TextTask> task_;
};

}  // namespace

std::unique_ptr<Workload> make_text_workload() { return std::make_unique<TextWorkload>(); }

}  // namespace tern::cli
