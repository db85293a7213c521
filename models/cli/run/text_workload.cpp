#include <algorithm>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tern/core/memory/allocator.h"
#include "tern/data/tokenizers/wordpiece.h"
#include "tern/models/cli/run/data_sets.h"
#include "tern/models/cli/run/workload.h"
#include "tern/models/text/text_pipeline.h"
#include "tern/models/text/text_task.h"

namespace tern::cli {
namespace {

class TextWorkload final : public Workload {
 public:
  TextWorkload() : Workload("row", "tokens") {}
  void prepare(const TrainArguments& given, const RunSetting& setting) override {
    setting_ = setting;
    data_ = load_texts(given.data, kind_of_task(given.task), {}, setting.log);
    split(data_.texts, data_.kind, given, given.split, data_.labels, data_.targets);
    make_pipeline(given);
    const int64_t max_positions = models::token_limit(pipeline_->model(), pipeline_->tokenizer());
    tokens_ = tokenize_texts(data_.texts, *pipeline_, max_length_of(given, max_positions), setting.log);
    plan_.emplace(plan_run(given, TextFacts{.data = data_.texts.name,
                                            .max_positions = max_positions,
                                            .train_tokens = train_tokens(),
                                            .longest_row = std::ranges::max(tokens_->lengths())}));
    const int64_t epochs = planned_epochs(*plan_);
    if (packed() && epochs > kManyEpochs)
      setting_.log("counting the batches of " + std::to_string(epochs) +
                   " epochs, which takes a while; with --batch-size their number is known at once");
    task_.emplace(pipeline_->model(), tokens_, labels(), split_.train, split_.validation,
                  models::filler(pipeline_->tokenizer()), task_options());
  }

  Json data_record() const override {
    Json record = Workload::data_record();
    record["texts_sha256"] = data_.texts.content_hash();
    record["labels_sha256"] = data_.labels_hash();
    record["labels"] = labels_;
    return record;
  }

  models::TrainingTask& task() override { return *task_; }
  std::unique_ptr<models::TrainingTask> task_of(int64_t size, int64_t epochs) const override {
    models::TextTaskOptions options = task_options();
    options.epochs = epochs;
    (packed() ? options.batch_tokens : options.batch_size) = size;
    return std::make_unique<models::TextTask>(pipeline_->model(), tokens_, labels(), split_.train,
                                              std::vector<int32_t>(), models::filler(pipeline_->tokenizer()), options);
  }
  BatchRange batch_range() const override {
    if (!packed()) return {"sequences", 1, static_cast<int64_t>(split_.train.size())};
    int64_t longest = 1;
    for (const int32_t row : split_.train) longest = std::max<int64_t>(longest, std::ssize(tokens_->row(row)));
    return {"tokens", longest, std::max(longest, train_tokens())};
  }
  models::Model& model() const override { return pipeline_->model(); }
  void save(const std::string& dir) const override { pipeline_->save(dir); }

  double training_flops_per_item() const override {
    std::vector<int64_t> lengths;
    for (const int32_t row : split_.train) lengths.push_back(static_cast<int64_t>(tokens_->row(row).size()));
    return 3 * pipeline_->model().forward_flops(lengths) / static_cast<double>(std::max<int64_t>(train_tokens(), 1));
  }

 private:
  static constexpr int64_t kManyEpochs = 10'000;  // of which planning takes seconds

  bool packed() const { return plan_->batch_size == 0; }

  models::TextTaskOptions task_options() const {
    return {.epochs = planned_epochs(*plan_),
            .batch_size = plan_->batch_size,
            .batch_tokens = plan_->batch_tokens,
            .shuffle = plan_->shuffle,
            .group_by_length = plan_->group_by_length,
            .workers = plan_->workers,
            .seed = plan_->seed,
            .transform = data_.transform(),
            .validation = evaluation(setting_.precision.autocast),
            .between = check_interrupted};
  }

  std::string describe_batch() const override {
    std::ostringstream out;
    if (plan_->batch_size > 0)
      out << plan_->batch_size << " sequences";
    else
      out << plan_->batch_tokens << " tokens";
    out << " (" << std::fixed << std::setprecision(1) << 100 * task_->plan().fill() << " % filled)";
    return out.str();
  }

  models::Evaluation evaluate(const std::vector<int32_t>& rows) const override {
    return models::evaluate(pipeline_->model(), tokens_, labels(), rows, models::evaluation_tokens(plan_->batch_tokens),
                            models::filler(pipeline_->tokenizer()), evaluation(float32), data_.transform());
  }

  /// The label of each text; none where batches get targets.
  std::vector<int32_t> labels() const {
    return data_.kind == data::LabelKind::kOne ? data_.texts.labels : std::vector<int32_t>();
  }

  void make_pipeline(const TrainArguments& given) {
    models::BuildOptions options{
        .labels = data_.labels,
        .label_kind = data_.kind,
        .dropout = text_dropout_of(given, data_.texts.bytes.size() + data_.texts.pair_bytes.size()),
        .max_length = given.max_length};
    const std::string path = model_path();
    auto model = models::model_as<models::SequenceClassifier>(build(given, preset_of(given), options), given.model);
    pipeline_.emplace(std::move(model), path.empty()
                                            ? std::make_shared<const data::WordPiece>(data::WordPiece::from_embedded())
                                            : tokenizer_of(resumed() ? "" : given.tokenizer, path, setting_.log));
    labels_ = label_names_record(data_.labels);
    data_.order_labels(pipeline_->model().labels());
    const int64_t position_limit = models::token_limit(pipeline_->model(), pipeline_->tokenizer());
    if (given.max_length > position_limit && !resumed())
      setting_.log("--max-length: " + given.init + " takes at most " + std::to_string(position_limit) +
                   " tokens; texts are cut to that");
  }

  int64_t train_tokens() const {
    int64_t tokens = 0;
    for (const int32_t row : split_.train) tokens += static_cast<int64_t>(tokens_->row(row).size());
    return tokens;
  }

  LabelledTexts data_;
  std::string labels_;  // of the data, for the record
  std::optional<models::TextPipeline> pipeline_;
  std::shared_ptr<const data::TokenSet> tokens_;
  std::optional<models::TextTask> task_;
};

}  // namespace

std::unique_ptr<Workload> make_text_workload() { return std::make_unique<TextWorkload>(); }

}  // namespace tern::cli
