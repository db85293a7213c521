#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>

#include "tern/core/allocator.h"
#include "tern/models/cli/commands.h"
#include "tern/models/cli/progress.h"
#include "tern/models/cli/run_folder.h"
#include "tern/models/cli/step_profile.h"
#include "tern/models/cli/text_data.h"
#include "tern/models/cli/train_arguments.h"
#include "tern/models/cli/version.h"
#include "tern/models/text/text_classifier.h"
#include "tern/models/trainer/recompute_cost.h"

namespace tern::cli {
namespace {

/// Writes every step and epoch into the run folder, and the model whenever it is the best so far.
class RunObserver final : public models::TrainObserver {
 public:
  /// profile: null when there is none.
  RunObserver(RunFolder& folder, Progress& progress, const models::TextClassifier& classifier, bool scales_loss,
              StepProfile* profile)
      : folder_(folder), progress_(progress), classifier_(classifier), scales_loss_(scales_loss), profile_(profile) {}

  int64_t steps() const { return steps_; }
  /// The epoch whose weights are in the run folder; 0: none yet.
  int64_t saved_epoch() const { return saved_epoch_; }
  void on_step_begin(int64_t step) override {
    if (profile_) profile_->on_step_begin(step);
  }
  void on_step(const models::StepMetrics& m) override {
    steps_ = m.step;
    if (profile_) profile_->on_step_end(m.step);
    Json line = {{"step", m.step},           {"loss", m.loss},    {"lr", m.lr},
                 {"grad_norm", m.grad_norm}, {"tokens", m.items}, {"seconds", m.seconds}};
    if (scales_loss_) {
      line["loss_scale"] = m.loss_scale;
      line["skipped"] = m.skipped;
    }
    folder_.append_metrics(line);
    progress_.on_step(m);
  }
  void on_validation_begin(int64_t epoch) override { progress_.on_validation_begin(epoch); }
  void on_epoch(const models::EpochMetrics& m) override {
    folder_.append_metrics(
        {{"epoch", m.epoch}, {"val_loss", m.validation.loss}, {"val_accuracy", m.validation.accuracy}});
    if (m.best) {
      classifier_.save(folder_.path());
      saved_epoch_ = m.epoch;
    }
    progress_.on_epoch(m);
  }

 private:
  RunFolder& folder_;
  Progress& progress_;
  const models::TextClassifier& classifier_;
  const bool scales_loss_;
  StepProfile* const profile_;
  int64_t steps_ = 0, saved_epoch_ = 0;
};

/// One run of `tern train distilbert`.
class TextRun {
 public:
  TextRun(TrainArguments arguments, std::vector<std::string> command)
      : a_(std::move(arguments)), command_(std::move(command)), progress_(a_.common.quiet) {}

  int run() {
    device_ = apply_common(a_.common);
    precision_ = parse_dtype(a_.dtype, device_);
    const auto log = [this](const std::string& line) { progress_.log(line); };
    apply_matmul_options(a_.matmul, device_, log);
    end_in_order_on_signals();
    // First, so that a folder that cannot be used is known before any work.
    if (profiled()) check_profile_prefix(profile_prefix());
    RunFolder folder(a_.out.empty() ? default_run_folder("distilbert") : a_.out);
    if (!a_.init.empty()) restore_autotune(a_.init, device_, log);
    texts_ = load_texts(a_.data, {}, log);
    TERN_CHECK(texts_.label_names.size() > 1, texts_.name, ": every row has the label '", texts_.label_names.front(),
               "'; a classifier needs two or more");
    split_ = data::make_split(texts_, a_.split, a_.fold, a_.common.seed);
    make_classifier(log);
    tokens_ = tokenize_texts(texts_, classifier_->tokenizer(), max_length(), log);
    choose_schedule();
    folder.write_record(record(folder.path()));
    return train(folder);
  }

 private:
  int64_t max_length() const {
    const int64_t most = classifier_->model().config().max_positions;
    if (a_.max_length > 0) return std::min(a_.max_length, most);
    return std::min<int64_t>(512, most);
  }
  bool profiled() const { return !a_.profile.empty(); }
  /// Empty: the run folder.
  std::string profile_prefix() const { return a_.profile == "on" ? "" : a_.profile; }
  bool from_scratch_small() const { return a_.init.empty() && a_.preset != "base"; }

  void make_classifier(const Log& log) {
    Generator generator(a_.common.seed);
    if (a_.init.empty()) {
      data::WordPiece tokenizer = data::WordPiece::from_embedded();
      models::DistilBertConfig config = models::DistilBertConfig::preset(a_.preset.empty() ? "tiny" : a_.preset);
      config.labels = texts_.label_names;
      config.max_positions = std::max<int64_t>(config.max_positions, a_.max_length);
      set_dropout(config);
      auto model = std::make_unique<models::DistilBert>(
          nn::Scope({.device = device_, .dtype = precision_.weights, .generator = generator}), config);
      classifier_.emplace(std::move(model), std::move(tokenizer));
      return;
    }
    models::FromPretrainedOptions options{.device = device_,
                                          .dtype = precision_.weights,
                                          .generator = generator,
                                          .labels = texts_.label_names,
                                          .allow_new_head = true,
                                          .log = log};
    if (!std::isnan(a_.dropout)) options.dropout = a_.dropout;
    classifier_.emplace(models::TextClassifier::load(a_.init, options));
    take_label_order();
    if (a_.max_length > max_length())
      log("--max-length: " + a_.init + " takes at most " + std::to_string(max_length()) +
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
    double p = a_.dropout;
    if (std::isnan(p) && from_scratch_small()) p = texts_.bytes.size() >= (size_t{4} << 20) ? 0.3 : 0.5;
    if (!std::isnan(p)) config.dropout = config.attention_dropout = config.classifier_dropout = p;
  }

  /// Defaults that depend on the size of the set: small sets get smaller steps and more passes.
  void choose_schedule() {
    int64_t train_tokens = 0;
    for (const int32_t row : split_.train) train_tokens += static_cast<int64_t>(tokens_->row(row).size());
    int64_t longest = 1;
    for (const int32_t length : tokens_->lengths()) longest = std::max<int64_t>(longest, length);
    if (a_.batch_size == 0 && a_.batch_tokens == 0) {
      int64_t tokens = 1024;
      while (tokens < 8192 && train_tokens / (2 * tokens) >= 64) tokens *= 2;
      while (tokens < longest) tokens *= 2;
      a_.batch_tokens = tokens;
    }
    if (a_.epochs == 0)
      a_.epochs = !from_scratch_small() ? 3 : train_tokens >= 4'000'000 ? 2 : train_tokens >= 500'000 ? 4 : 10;
    planned_epochs_ = a_.max_steps > 0 ? std::min(a_.epochs, a_.max_steps) : a_.epochs;  // each has a step at least
    const int64_t plan_bytes = planned_epochs_ * static_cast<int64_t>(split_.train.size() * sizeof(int32_t));
    TERN_CHECK(plan_bytes <= available_system_memory() / 2, "--epochs: the plan of ", planned_epochs_, " epochs takes ",
               plan_bytes >> 20, " MiB, more than half of the memory left; give fewer, or --max-steps");
    if (std::isnan(a_.lr)) a_.lr = from_scratch_small() ? 5e-4 : 5e-5;
  }

  Json record(const std::string& out) const {
    Json options = {{"model", a_.model},
                    {"data", texts_.name},
                    {"split", a_.split},
                    {"fold", a_.fold},
                    {"out", out},
                    {"config", a_.common.config},
                    {"preset", a_.init.empty() ? (a_.preset.empty() ? "tiny" : a_.preset) : ""},
                    {"init", a_.init},
                    {"epochs", a_.epochs},
                    {"max_steps", a_.max_steps},
                    {"lr", a_.lr},
                    {"optimizer", a_.optimizer},
                    {"weight_decay", a_.weight_decay},
                    {"schedule", a_.schedule},
                    {"warmup", a_.warmup},
                    {"clip", a_.clip},
                    {"dropout", classifier_->model().config().dropout},
                    {"attention_dropout", classifier_->model().config().attention_dropout},
                    {"classifier_dropout", classifier_->model().config().classifier_dropout},
                    {"dtype", precision_.name},
                    {"tf32", a_.matmul.tf32},
                    {"autotune", a_.matmul.autotune},
                    {"kahan", a_.kahan},
                    {"recompute", a_.recompute},
                    {"max_length", max_length()},
                    {"batch_size", a_.batch_size},
                    {"batch_tokens", a_.batch_tokens},
                    {"shuffle", !a_.no_shuffle},
                    {"group_by_length", a_.group_by_length},
                    {"workers", a_.workers},
                    {"profile", a_.profile},
                    {"profile_steps", a_.profile_steps},
                    {"seed", a_.common.seed},
                    {"device", device_.str()},
                    {"threads", kernels::num_threads()},
                    {"quiet", a_.common.quiet}};
    return {{"command", command_},
            {"version", version()},
            {"commit", commit()},
            {"machine", machine_record()},
            {"seed", a_.common.seed},
            {"options", options},
            {"rows",
             {{"train", split_.train.size()}, {"validation", split_.validation.size()}, {"test", split_.test.size()}}}};
  }

  models::TrainOptions train_options() const {
    models::TrainOptions options;
    options.optimizer = a_.optimizer;
    options.lr = a_.lr;
    options.weight_decay = a_.weight_decay;
    options.schedule = a_.schedule;
    options.warmup = a_.warmup;
    options.clip = a_.clip;
    options.dtype = precision_.autocast;
    options.kahan = a_.kahan;
    options.device = device_;
    options.capture = !profiled();  // a replay is one launch: its ops have no ranges
    options.max_steps = a_.max_steps;
    options.should_stop = [] { return pending_signal() != 0; };
    return options;
  }

  int64_t total_steps(const models::TextTask& task) const {
    const int64_t steps = task.plan().total_steps();
    return a_.max_steps > 0 ? std::min(steps, a_.max_steps) : steps;
  }

  void describe(const models::TextTask& task) {
    std::ostringstream out;
    out << "train: " << split_.train.size() << " rows, validate " << split_.validation.size() << ", test "
        << split_.test.size() << "; " << classifier_->model().num_parameters() << " parameters; " << total_steps(task)
        << " steps of "
        << (a_.batch_size > 0 ? std::to_string(a_.batch_size) + " sequences"
                              : std::to_string(a_.batch_tokens) + " tokens")
        << " (" << std::fixed << std::setprecision(1) << 100 * task.plan().fill() << " % filled), " << a_.epochs
        << " epochs; " << precision_.name << (a_.kahan ? " with Kahan's summation" : "") << " on " << device_ << ", "
        << kernels::num_threads() << " threads";
    progress_.log(out.str());
  }

  int train(RunFolder& folder) {
    const models::TextTaskOptions task_options{.epochs = planned_epochs_,
                                               .batch_size = a_.batch_size,
                                               .batch_tokens = a_.batch_tokens,
                                               .shuffle = !a_.no_shuffle,
                                               .group_by_length = a_.group_by_length,
                                               .workers = a_.workers,
                                               .seed = a_.common.seed,
                                               .dtype = precision_.autocast,
                                               .should_stop = [] { return pending_signal() != 0; }};
    models::TextTask task(classifier_->model(), tokens_, texts_.labels, split_.train, split_.validation,
                          classifier_->tokenizer().pad_id(), task_options);
    describe(task);
    const int64_t blocks = parse_recompute(a_.recompute);
    if (blocks > 0) {
      const auto set = [&](bool on) { classifier_->model().set_recompute(on ? blocks : 0); };
      progress_.log("recompute " + a_.recompute + ": " + models::measure_recompute(task, train_options(), set).text() +
                    ", measured on the first batch");
    }
    std::optional<StepProfile> profile;
    if (profiled()) profile.emplace(profile_options(task, folder));
    RunObserver observer(folder, progress_, *classifier_, precision_.products() == float16,
                         profile ? &*profile : nullptr);
    allocator(device_).reset_peak();
    models::TrainResult result;
    try {
      result = models::train(task, train_options(), observer);
    } catch (const DeviceError&) {  // the weights of now are lost with the device's memory
      progress_.log(observer.saved_epoch() > 0
                        ? "the device failed; the weights of epoch " + std::to_string(observer.saved_epoch()) +
                              ", the best so far, are in " + folder.path()
                        : "the device failed before any weights were saved");
      throw;
    } catch (const std::exception&) {
      // The weights are those before the failed step, or the best: worth keeping once there was a step.
      if (observer.steps() > 0) keep_weights(folder);
      throw;
    }
    folder.keep();
    classifier_->save(folder.path());
    save_autotune(folder.path(), device_);
    if (profile) profile->end();
    if (result.stopped) {
      progress_.log("stopped by a signal after " + std::to_string(result.steps) + " steps; the weights are in " +
                    folder.path());
      return 128 + pending_signal();
    }
    finish(folder, result);
    if (profile) profile->throw_failure();
    return 0;
  }

  StepProfileOptions profile_options(const models::TextTask& task, const RunFolder& folder) {
    const auto [table, trace] = profile_files(profile_prefix(), folder.path());
    return {.table = table,
            .trace = trace,
            .steps = a_.profile_steps,
            .total_steps = total_steps(task),
            .device = device_,
            .dtype = precision_.products(),
            .log = [this](const std::string& line) { progress_.log(line); }};
  }

  void keep_weights(RunFolder& folder) {
    try {
      classifier_->save(folder.path());
      progress_.log("the weights of the best epoch, or else those before the failed step, are in " + folder.path());
    } catch (const std::exception& second) {
      progress_.log(std::string("the weights could not be saved: ") + second.what());
    }
  }

  void finish(RunFolder& folder, const models::TrainResult& result) {
    const double rate = static_cast<double>(result.items) / std::max(result.step_seconds, 1e-9);
    const MemoryStatistics memory = allocator(device_).statistics();
    Json last = {{"test_accuracy", nullptr},
                 {"test_loss", nullptr},
                 {"best_epoch", result.best_epoch},
                 {"best_val_accuracy", result.best_epoch > 0 ? Json(result.best.accuracy) : Json(nullptr)},
                 {"train_seconds", result.seconds},
                 {"steps", result.steps},
                 {"tokens_per_second", rate},
                 {"model_flops_utilization", utilization(result)},
                 {"peak_memory_bytes", memory.peak_live_bytes},
                 {"reserved_memory_bytes", memory.peak_reserved_bytes}};
    models::Evaluation test;
    if (!split_.test.empty()) {
      test = models::evaluate(classifier_->model(), tokens_, texts_.labels, split_.test,
                              models::evaluation_tokens(a_.batch_tokens), classifier_->tokenizer().pad_id(), float32,
                              [] { return pending_signal() != 0; });
      check_interrupted();
      last["test_accuracy"] = test.accuracy;
      last["test_loss"] = test.loss;
    }
    folder.append_metrics(last);
    std::ostringstream log;
    log << "trained " << result.steps << " steps in " << clock_text(result.seconds) << " ("
        << static_cast<int64_t>(rate) << " tokens/s), peak memory " << (memory.peak_live_bytes >> 20)
        << " MiB; run folder: " << folder.path();
    progress_.log(log.str());
    if (split_.test.empty())
      std::cout << "test accuracy: none, every row was trained on\n";
    else
      std::printf("test accuracy %.2f %% (%lld rows, loss %.4f)\n", 100 * test.accuracy,
                  static_cast<long long>(test.examples), test.loss);
    std::fflush(stdout);
  }

  /// The share of this machine's matrix rate, measured here, that the model's arithmetic reached.
  Json utilization(const models::TrainResult& result) const {
    std::vector<int64_t> lengths;
    int64_t tokens = 0;
    for (const int32_t row : split_.train) {
      lengths.push_back(static_cast<int64_t>(tokens_->row(row).size()));
      tokens += lengths.back();
    }
    if (tokens == 0 || result.step_seconds <= 0) return nullptr;
    const double per_token = 3 * classifier_->model().forward_flops(lengths) / static_cast<double>(tokens);
    return per_token * static_cast<double>(result.items) / result.step_seconds /
           measure_matrix_rate(device_, precision_.products());
  }

  TrainArguments a_;
  int64_t planned_epochs_ = 0;  // --epochs, or fewer when --max-steps ends the run before
  std::vector<std::string> command_;
  Progress progress_;
  Device device_;
  Precision precision_;
  data::TextDataset texts_;
  data::Split split_;
  std::optional<models::TextClassifier> classifier_;
  std::shared_ptr<const data::TokenSet> tokens_;
};

}  // namespace

Command add_train(CLI::App& app, const std::vector<std::string>& arguments) {
  CLI::App* command = app.add_subcommand("train", "train a model and leave a run folder");
  auto options = std::make_shared<TrainArguments>();
  add_train_options(*command, *options);
  return [command, options, arguments] {
    if (command->count("--profile") > 0 && options->profile.empty()) options->profile = "on";
    check_train_arguments(*options);
    return TextRun(*options, arguments).run();
  };
}

}  // namespace tern::cli
