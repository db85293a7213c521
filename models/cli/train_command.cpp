#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <iostream>

#include "tern/core/allocator.h"
#include "tern/models/cli/commands.h"
#include "tern/models/cli/progress.h"
#include "tern/models/cli/run_folder.h"
#include "tern/models/cli/step_profile.h"
#include "tern/models/cli/text_data.h"
#include "tern/models/cli/version.h"
#include "tern/models/text/text_classifier.h"
#include "tern/models/trainer/recompute_cost.h"

namespace tern::cli {
namespace {

/// The command's options. NaN, 0 or "" mean "by the rule that --help gives".
struct TrainArguments {
  std::string model, data, out, preset, init, optimizer = "adamw", schedule = "linear", dtype = "auto", split, fold,
                                              recompute = "none", profile;
  int64_t profile_steps = 20, epochs = 0, max_steps = 0, max_length = 0, batch_size = 0, batch_tokens = 0;
  double lr = NAN, weight_decay = 0.01, warmup = 0.1, clip = 1, dropout = NAN;
  int workers = 2;
  bool no_shuffle = false, group_by_length = false, kahan = false;
  CommonOptions common;
};

constexpr const char* kExamples = R"(Examples:
  tern train distilbert                                  the data at hand, the tiny model
  tern train distilbert --data reviews.csv --epochs 5    a file with the columns label and text
  tern train distilbert --init DIR --lr 5e-5             fine-tune a folder that transformers saved)";

constexpr double kMost = 1e30;  // of numbers that have no bound of their own

void add_options(CLI::App& c, TrainArguments& a) {
  c.add_option("model", a.model, "the model: distilbert")->required();
  c.add_option("--data", a.data,
               "imdb, sentences (embedded), a .csv, .tsv or .jsonl file with a label and a text column, or a folder "
               "train/LABEL/*.txt; default: imdb where it is on this machine, otherwise sentences");
  c.add_option("--split", a.split,
               "official, 80/10/10 (percent), 35000/5000/10000 (rows) or all; default: the set's own, or 80/10/10");
  c.add_option("--fold", a.fold, "i/k: the i-th of k stratified parts is the test set");
  c.add_option("--out", a.out, "folder of the run, new or empty; default: runs/distilbert-DATE");
  c.add_option("--preset", a.preset, "tiny (128 x 2 layers), small (256 x 4) or base (768 x 6); default: tiny");
  c.add_option("--init", a.init, "model folder to start from (config.json, model.safetensors, vocab.txt)");
  c.add_option("--epochs", a.epochs,
               "passes over the training rows; default: 3 with --init or --preset base, otherwise by the size of the "
               "set, 2 to 10")
      ->check(whole_in(1, 1000000));
  c.add_option("--max-steps", a.max_steps, "stop after this many steps")->check(whole_in(1, int64_t{1} << 40));
  c.add_option("--lr", a.lr, "learning rate; default: 5e-5 with --init or --preset base, otherwise 5e-4")
      ->check(number_in(0, kMost));
  c.add_option("--optimizer", a.optimizer, "adamw, adam or sgd")->capture_default_str();
  c.add_option("--weight-decay", a.weight_decay, "of matrices, not of biases and norms")
      ->capture_default_str()
      ->check(number_in(0, kMost));
  c.add_option("--schedule", a.schedule, "of the learning rate: linear, cosine or constant")->capture_default_str();
  c.add_option("--warmup", a.warmup, "steps (1 or more) or a fraction of all steps")
      ->capture_default_str()
      ->check(number_in(0, 1e15));
  c.add_option("--clip", a.clip, "greatest norm of the gradients; 0: no clipping")
      ->capture_default_str()
      ->check(number_in(0, kMost));
  c.add_option("--dropout", a.dropout,
               "of everything; default: the model's own with --init or --preset base, otherwise 0.5, and 0.3 from 4 MB "
               "of text on")
      ->check(number_in(0, 1));
  c.add_option("--dtype", a.dtype,
               "fp32; bf16 or fp16: mixed precision, fp32 weights and 16-bit matrix products; bf16-true or fp16-true: "
               "16-bit weights, gradients and activations with fp32 master copies in the optimizer; fp16 of both kinds "
               "with a loss scaler; auto: bf16 where the CPU multiplies it, otherwise fp32")
      ->capture_default_str();
  c.add_flag(
      "--kahan", a.kahan,
      "with --dtype bf16-true: no master copies; Kahan's summation keeps 16 bits a weight of what rounding took");
  c.add_option("--recompute", a.recompute,
               "none, block or every-N: keep only the inputs of each block (of every N blocks) and compute the rest "
               "again in backward; less memory, more time, the same bits")
      ->capture_default_str();
  c.add_option("--max-length", a.max_length, "tokens a text is cut to; default: 512, at most what the model takes")
      ->check(whole_in(2, int64_t{1} << 24));
  c.add_option("--batch-tokens", a.batch_tokens,
               "tokens a step, packed without padding; default: a power of two by the size of the set, at most 8192")
      ->check(whole_in(2, int64_t{1} << 40));
  c.add_option("--batch-size", a.batch_size, "sequences a step, padded to the longest, instead of packing")
      ->check(whole_in(1, 1000000));
  c.add_flag("--group-by-length", a.group_by_length, "with --batch-size: sequences of similar lengths, less padding");
  c.add_flag("--no-shuffle", a.no_shuffle, "keep the rows in their order");
  c.add_option("--workers", a.workers, "threads that make batches; the batches do not depend on it")
      ->capture_default_str()
      ->check(whole_in(0, 256));
  c.add_option("--profile", a.profile,
               "write where the time goes: a table and a trace for ui.perfetto.dev, into the run folder (on, or "
               "no value) or into VALUE.profile.txt and VALUE.trace.json")
      ->expected(0, 1);
  c.add_option("--profile-steps", a.profile_steps, "steps that --profile looks at, after two to warm up")
      ->capture_default_str()
      ->check(whole_in(1, 10000));
  add_common(c, a.common);
  c.footer(kExamples);
}

void check(bool condition, const std::string& message) {
  if (!condition) throw UsageError(message);
}

/// Blocks per stretch that is recomputed; 0: none.
int64_t parse_recompute(const std::string& text) {
  if (text == "none") return 0;
  if (text == "block") return 1;
  int64_t blocks = 0;
  const char* const end = text.data() + text.size();
  if (text.starts_with("every-")) {
    const auto [stopped, error] = std::from_chars(text.data() + 6, end, blocks);
    if (error == std::errc() && stopped == end && blocks >= 1 && blocks <= 1000000) return blocks;
  }
  throw UsageError("--recompute: expected none, block or every-N (such as every-2), got '" + text + "'");
}

void check_arguments(const TrainArguments& a) {
  if (a.model != "distilbert") {
    const bool planned = a.model == "bert" || a.model == "vit" || a.model == "cnn";
    throw UsageError(
        "train: " + (planned ? "'" + a.model + "' is not in this version" : "unknown model '" + a.model + "'") +
        "; this version trains distilbert");
  }
  check(a.preset.empty() || a.init.empty(), "--preset and --init exclude each other: --init brings its configuration");
  check(a.batch_size == 0 || a.batch_tokens == 0, "--batch-size and --batch-tokens exclude each other");
  check(!a.group_by_length || a.batch_size > 0,
        "--group-by-length goes with --batch-size: packed batches hold no padding");
  check_split(a.split, a.fold);
  const auto one_of = [](const std::string& flag, const std::string& value, const std::vector<std::string>& known) {
    if (std::find(known.begin(), known.end(), value) != known.end()) return;
    std::string list;
    for (const std::string& word : known) list += (list.empty() ? "" : ", ") + word;
    const std::string near = nearest(value, known);
    throw UsageError(flag + ": unknown '" + value + "'" + (near.empty() ? "" : ", did you mean '" + near + "'?") +
                     "; known: " + list);
  };
  if (!a.preset.empty()) one_of("--preset", a.preset, {"tiny", "small", "base"});
  one_of("--optimizer", a.optimizer, {"adamw", "adam", "sgd"});
  one_of("--schedule", a.schedule, {"linear", "cosine", "constant"});
  parse_recompute(a.recompute);
  one_of("--dtype", a.dtype, {"auto", "fp32", "bf16", "fp16", "bf16-true", "fp16-true"});
  check(!a.kahan || a.dtype == "bf16-true",
        "--kahan goes with --dtype bf16-true: it takes the place of fp32 master copies of bf16 weights");
}

/// How a run computes.
struct Precision {
  const char* name = "fp32";
  DType autocast = DType::kFloat32;  // of matrix products; float32: none
  DType weights = DType::kFloat32;
  /// What matrix products are computed in.
  DType products() const { return autocast != float32 ? autocast : weights; }
};

Precision parse_dtype(const std::string& text, Device device) {
  if (text == "bf16" || (text == "auto" && autocast_dtype(device) == bfloat16))
    return {.name = "bf16", .autocast = bfloat16};
  if (text == "fp16") return {.name = "fp16", .autocast = float16};
  if (text == "bf16-true") return {.name = "bf16-true", .weights = bfloat16};
  if (text == "fp16-true") return {.name = "fp16-true", .weights = float16};
  return {};
}

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
    end_in_order_on_signals();
    // First, so that a folder that cannot be used is known before any work.
    if (profiled()) check_profile_prefix(profile_prefix());
    RunFolder folder(a_.out.empty() ? default_run_folder("distilbert") : a_.out);
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
  add_options(*command, *options);
  return [command, options, arguments] {
    if (command->count("--profile") > 0 && options->profile.empty()) options->profile = "on";
    check_arguments(*options);
    return TextRun(*options, arguments).run();
  };
}

}  // namespace tern::cli
