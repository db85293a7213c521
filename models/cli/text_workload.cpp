#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

#include "tern/core/allocator.h"
#include "tern/data/datasets/sha256.h"
#include "tern/models/cli/commands.h"
#include "tern/models/cli/text_data.h"
#include "tern/models/cli/workload.h"
#include "tern/models/text/text_classifier.h"

namespace tern::cli {
namespace {

/// DistilBERT on texts.
class TextWorkload final : public Workload {
 public:
  void prepare(TrainArguments& arguments, const RunSetting& setting) override {
    a_ = &arguments;
    setting_ = setting;
    texts_ = load_texts(a_->data, {}, setting.log);
    a_->data = texts_.name;
    if (a_->init.empty() && a_->preset.empty()) a_->preset = "tiny";
    TERN_CHECK(texts_.label_names.size() > 1, texts_.name, ": every row has the label '", texts_.label_names.front(),
               "'; a classifier needs two or more");
    split_ = data::make_split(texts_, a_->split, a_->fold, a_->common.seed);
    make_classifier();
    tokens_ = tokenize_texts(texts_, classifier_->tokenizer(), max_length(), setting.log);
    a_->max_length = max_length();
    choose_schedule();
    task_.emplace(classifier_->model(), tokens_, texts_.labels, split_.train, setting.share(split_.validation),
                  classifier_->tokenizer().pad_id(),
                  models::TextTaskOptions{.epochs = planned_epochs_,
                                          .batch_size = a_->batch_size,
                                          .batch_tokens = a_->batch_tokens,
                                          .shuffle = a_->shuffle,
                                          .group_by_length = a_->group_by_length,
                                          .workers = a_->workers,
                                          .seed = a_->common.seed,
                                          .dtype = setting.precision.autocast,
                                          .should_stop = [] { return pending_signal() != 0; }});
  }

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
        << " steps of " << times(a_->accumulate * setting_.ranks)
        << (a_->batch_size > 0 ? std::to_string(a_->batch_size) + " sequences"
                               : std::to_string(a_->batch_tokens) + " tokens")
        << " (" << std::fixed << std::setprecision(1) << 100 * task_->plan().fill() << " % filled), " << a_->epochs
        << " epochs";
    return out.str();
  }

  std::optional<models::Evaluation> test() override {
    if (split_.test.empty()) return std::nullopt;
    return models::evaluate(classifier_->model(), tokens_, texts_.labels, setting_.share(split_.test),
                            models::evaluation_tokens(a_->batch_tokens), classifier_->tokenizer().pad_id(), float32,
                            [] { return pending_signal() != 0; });
  }

  double training_flops_per_item() const override {
    std::vector<int64_t> lengths;
    int64_t tokens = 0;
    for (const int32_t row : split_.train) {
      lengths.push_back(static_cast<int64_t>(tokens_->row(row).size()));
      tokens += lengths.back();
    }
    return 3 * classifier_->model().forward_flops(lengths) / static_cast<double>(std::max<int64_t>(tokens, 1));
  }

 private:
  int64_t max_length() const {
    const int64_t most = classifier_->model().config().max_positions;
    if (a_->max_length > 0) return std::min(a_->max_length, most);
    return std::min<int64_t>(512, most);
  }
  bool from_scratch_small() const { return a_->init.empty() && a_->preset != "base"; }

  void make_classifier() {
    Generator generator(a_->common.seed);
    const bool resumed = !setting_.checkpoint.empty();
    if (a_->init.empty() && !resumed) {
      data::WordPiece tokenizer = data::WordPiece::from_embedded();
      models::DistilBertConfig config = models::DistilBertConfig::preset(a_->preset);
      config.labels = texts_.label_names;
      config.max_positions = std::max<int64_t>(config.max_positions, a_->max_length);
      set_dropout(config);
      auto model = std::make_unique<models::DistilBert>(
          nn::Scope({.device = setting_.device, .dtype = setting_.precision.weights, .generator = generator}), config);
      classifier_.emplace(std::move(model), std::move(tokenizer));
      return;
    }
    models::FromPretrainedOptions options{.device = setting_.device,
                                          .dtype = setting_.precision.weights,
                                          .generator = generator,
                                          .labels = texts_.label_names,
                                          .allow_new_head = !resumed,
                                          .log = setting_.log};
    if (!std::isnan(a_->dropout) && !resumed) options.dropout = a_->dropout;
    classifier_.emplace(models::TextClassifier::load(resumed ? setting_.checkpoint : a_->init, options));
    take_label_order();
    if (a_->max_length > max_length() && !resumed)
      setting_.log("--max-length: " + a_->init + " takes at most " + std::to_string(max_length()) +
                   " tokens; texts are cut to that");
  }

  /// The folder's order of the labels becomes the data's.
  void take_label_order() {
    const std::vector<std::string>& order = classifier_->model().config().labels;
    std::vector<int32_t> number;
    for (const std::string& name : texts_.label_names)
      number.push_back(static_cast<int32_t>(std::find(order.begin(), order.end(), name) - order.begin()));
    for (int32_t& label : texts_.labels) label = number[static_cast<size_t>(label)];
    texts_.label_names = order;
  }

  /// A small model from scratch on few texts memorises them: much dropout is what keeps it from that.
  void set_dropout(models::DistilBertConfig& config) const {
    double p = a_->dropout;
    if (std::isnan(p) && from_scratch_small()) p = texts_.bytes.size() >= (size_t{4} << 20) ? 0.3 : 0.5;
    if (!std::isnan(p)) config.dropout = config.attention_dropout = config.classifier_dropout = p;
  }

  /// Defaults that depend on the size of the set: small sets get smaller steps and more passes.
  void choose_schedule() {
    int64_t train_tokens = 0;
    for (const int32_t row : split_.train) train_tokens += static_cast<int64_t>(tokens_->row(row).size());
    int64_t longest = 1;
    for (const int32_t length : tokens_->lengths()) longest = std::max<int64_t>(longest, length);
    if (a_->batch_size == 0 && a_->batch_tokens == 0) {
      int64_t tokens = 1024;
      while (tokens < 8192 && train_tokens / (2 * tokens) >= 64) tokens *= 2;
      while (tokens < longest) tokens *= 2;
      a_->batch_tokens = tokens;
    }
    if (a_->epochs == 0)
      a_->epochs = !from_scratch_small() ? 3 : train_tokens >= 4'000'000 ? 2 : train_tokens >= 500'000 ? 4 : 10;
    planned_epochs_ = a_->max_steps > 0 ? std::min(a_->epochs, a_->max_steps) : a_->epochs;  // each has a step at least
    const int64_t plan_bytes = planned_epochs_ * static_cast<int64_t>(split_.train.size() * sizeof(int32_t));
    TERN_CHECK(plan_bytes <= tern::detail::available_system_memory() / 2, "--epochs: the plan of ", planned_epochs_,
               " epochs takes ", plan_bytes >> 20,
               " MiB, more than half of the memory left; give fewer, or --max-steps");
    if (std::isnan(a_->lr)) a_->lr = from_scratch_small() ? 5e-4 : 5e-5;
  }

  TrainArguments* a_ = nullptr;
  RunSetting setting_;
  int64_t planned_epochs_ = 0;  // --epochs, or fewer when --max-steps ends the run before
  data::TextDataset texts_;
  data::Split split_;
  std::optional<models::TextClassifier> classifier_;
  std::shared_ptr<const data::TokenSet> tokens_;
  std::optional<models::TextTask> task_;
};

}  // namespace

std::unique_ptr<Workload> make_text_workload() { return std::make_unique<TextWorkload>(); }

}  // namespace tern::cli
