#include "tern/models/cli/run/train_run.h"

#include <algorithm>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tern/core/memory/allocator.h"
#include "tern/core/ops/roofline.h"
#include "tern/data/files/text.h"
#include "tern/data/hub/hub.h"
#include "tern/dist/loop/accumulation.h"
#include "tern/dist/loop/world.h"
#include "tern/models/cli/launch/process_end.h"
#include "tern/models/cli/options/matmul_options.h"
#include "tern/models/cli/options/option_record.h"
#include "tern/models/cli/run/evaluation_text.h"
#include "tern/models/cli/run/finders.h"
#include "tern/models/cli/run/plan.h"
#include "tern/models/cli/run/progress.h"
#include "tern/models/cli/run/resume.h"
#include "tern/models/cli/run/run_observer.h"
#include "tern/models/cli/run/step_profile.h"
#include "tern/models/cli/run/version.h"
#include "tern/models/cli/run/workload.h"
#include "tern/models/trainer/finite.h"
#include "tern/models/trainer/recompute_cost.h"

namespace tern::cli {
namespace {

class TrainRun {
 public:
  TrainRun(TrainPlan& given, Device device, const Precision& precision, std::vector<std::string> command)
      : given_(given),
        command_(std::move(command)),
        workload_(kind_of(given_) == For::kImages ? make_image_workload() : make_text_workload()),
        progress_(given_.quiet, workload_->unit()),
        device_(device),
        precision_(precision) {}

  int run(const dist::Launch& launch) {
    allocator(device_).set_limit(parse_bytes(given_.memory_limit).value());
    const models::Log log = [this](const std::string& line) { progress_.log(line); };
    apply_matmul_options({.tf32 = given_.tf32, .autotune = given_.autotune}, device_, log);
    world_.emplace(launch, device_,
                   dist::WorldOptions{.group = dist::with_environment({}),
                                      .facts = version_text() + "\n" + lines_to_compare(given_)});
    try {
      return run_in_world(log);
    } catch (const Interrupted&) {
      progress_.log("stopped by a signal before the first step: there is nothing new to save");
      return report_failure();
    } catch (...) {
      return report_failure();
    }
  }

 private:
  int run_in_world(const models::Log& log) {
    const std::optional<std::string> opened = open_folder(log);
    if (!opened) {
      world_->finish();
      return 0;
    }
    const std::string& from = *opened;
    const std::string init = from.empty() ? data::local_model(given_.init, data::HubUse::kModel, log) : "";
    if (const std::string& tuned = from.empty() ? init : from; !tuned.empty()) restore_autotune(tuned, device_, log);
    workload_->prepare(given_, {device_, precision_, from, init, log, &group()});
    lr_ = plan().lr.value();
    if (world_->store())
      world_->store()->compare(
          "the data and the model", group().world_ranks(), group().rank(),
          as_lines(workload_->data_record(), "the data's ") + as_lines(workload_->model_record(), "the model's "),
          kStartSeconds);
    const bool shard = plan().strategy == "zero1";
    if (group().size() > 1)
      parallel_.emplace(
          workload_->model(), world_->group(),
          dist::DataParallelOptions{.shard = shard,
                                    .whole_parameters = shard && models::algorithm_of(train_options()).needs_whole});
    else if (shard)
      progress_.log("--strategy zero1: there is one process, so nothing is divided");
    const int status = plan().find_batch_size > 0 ? find_batch()
                       : find_rate()              ? train(from)
                                                  : signal_status(agreed_signal());
    world_->finish();
    return status;
  }

  /// What --find-lr asks for; true when there is something to train.
  bool find_rate() {
    if (plan().find_lr.empty()) return true;
    std::optional<double> rate = recorded_rate();
    if (!rate) {
      set_recompute();
      progress_.log("find-lr: up to " + std::to_string(plan().find_lr_steps) + " steps with rising rates");
      const models::LrFinding finding =
          models::find_lr(workload_->task(), train_options(), {.steps = plan().find_lr_steps});
      if (finding.interrupted) return false;
      if (is_first()) {
        write_finding(*folder_, finding);
        progress_.log("find-lr: " + folder_->file("lr_finder.svg"));
        if (plan().find_lr == "report") std::cout << finding_text(finding) << std::endl;
      }
      if (plan().find_lr == "report") return false;
      // A loss that no rate lowers clearly in so few steps says nothing against the rate of the options.
      rate = finding.suggestion.value_or(lr_);
      progress_.log(finding_text(finding) +
                    (finding.suggestion ? "" : "; training goes on with --lr " + json_text(*rate)));
    }
    lr_ = *rate;
    return true;
  }

  /// The rate with which the run in the folder began; it is found only once. On all ranks.
  std::optional<double> recorded_rate() {
    std::string rate;
    if (is_first() && resumes_ && !folder_->is_blank())
      rate = json_text(RunFolder::read_record(folder_->path()).at("options").at("lr"));
    if (world_->store() && is_first()) world_->store()->set("the learning rate", rate);
    if (world_->store() && !is_first()) rate = world_->store()->get("the learning rate", kStartSeconds);
    return rate.empty() ? std::nullopt : std::optional(std::stod(rate));
  }

  int find_batch() {
    set_recompute();
    const Workload::BatchRange range = workload_->batch_range();
    const auto make = [&](int64_t size) {
      constexpr int64_t kEpochs = 4;  // of a step at least
      return workload_->task_of(size, kEpochs);
    };
    const int64_t largest = std::max(range.smallest, std::min(range.largest, plan().find_batch_size));
    progress_.log("find-batch-size: from " + std::to_string(range.smallest) + " to " + std::to_string(largest) + " " +
                  range.unit);
    const models::BatchFinding finding =
        models::find_batch_size(workload_->model(), make, range.smallest, largest, train_options());
    if (finding.interrupted) return signal_status(agreed_signal());
    write_finding(*folder_, finding, range.unit, workload_->unit());
    progress_.log("find-batch-size: " + folder_->file("batch_finder.svg"));
    std::cout << finding_text(finding, range.unit, workload_->unit()) << std::endl;
    return 0;
  }

  /// Without the comparison that a run prints.
  void set_recompute() {
    if (const int64_t blocks = parse_recompute(plan().recompute).value(); blocks > 0)
      workload_->model().set_recompute(blocks);
  }

  // That ranks wait for rank 0, which may have to hash a large checkpoint, and for each other's data.
  static constexpr double kStartSeconds = 600;

  dist::Communicator& group() const { return *world_->group(); }
  bool is_first() const { return group().rank() == 0; }

  /// Rank 0 opens the run's folder; the result is the checkpoint to go on from, on all ranks, or empty. Nothing where
  /// the run in it is finished.
  std::optional<std::string> open_folder(const models::Log& log) {
    const std::string kFinished = "finished", kFrom = "from ";
    if (!is_first()) {
      const std::string state = world_->store()->get("the state of the run", kStartSeconds);
      return state == kFinished ? std::nullopt : std::optional(state.substr(kFrom.size()));
    }
    // First, so that a folder that cannot be used is known before any work.
    if (profiled()) check_profile_prefix(profile_prefix());
    const ResumePlan plan = plan_resume(given_.resume, given_.out, default_run_folder(given_.model));
    folder_.emplace(plan.run_folder, plan.mode, log);
    resumes_ = plan.mode == RunFolder::Mode::kResume;
    std::optional<std::string> from;
    if (!is_finished(plan)) {
      if (resumes_ && !folder_->is_blank()) check_same_task(RunFolder::read_record(folder_->path()), given_);
      from = find_checkpoint(plan, folder_->id(), log);
    }
    if (world_->store()) world_->store()->set("the state of the run", from ? kFrom + *from : kFinished);
    return from;
  }

  /// Whether the run in the folder has its results, and is not to go back to an earlier checkpoint. It is an error when
  /// another run is wanted.
  bool is_finished(const ResumePlan& plan) {
    if (!resumes_ || folder_->is_blank() || !plan.checkpoint.empty()) return false;
    const std::optional<Json> results = folder_->results();
    if (!results) return false;
    check_finished_run(RunFolder::read_record(folder_->path()), given_);
    progress_.log("resume: " + finished_text(folder_->path(), *results));
    return true;
  }

  void write_record(const std::string& from) {
    const Json now = record(folder_->path());
    if (resumes_ && !folder_->is_blank()) {
      const Json before = RunFolder::read_record(folder_->path());
      check_same_run(before, now);
      if (const std::string line = describe_other_arithmetic(before, now); !line.empty() && !from.empty())
        progress_.log(line);
    }
    if (from.empty()) folder_->cut_metrics({});  // from the beginning
    folder_->write_record(now);
  }

  bool profiled() const { return is_first() && !given_.profile.empty(); }
  /// Empty: the run folder.
  std::string profile_prefix() const { return given_.profile == "on" ? "" : given_.profile; }
  TrainPlan& plan() const { return workload_->plan(); }

  Json record(const std::string& out) const {
    Json options = to_record(plan()), machine = machine_record();
    machine["device"] = device_.is_cuda() ? "cuda" : "cpu";
    options["out"] = out;
    options["lr"] = lr_;
    options["find_lr"] = "";  // it was found
    options["processes"] = group().size();
    return {{"command", command_},
            {"folder", std::filesystem::current_path().string()},
            {"version", version()},
            {"commit", commit()},
            {"machine", machine},
            {"seed", plan().seed},
            {"options", options},
            {"model", workload_->model_record()},
            {"rows", workload_->data_record()}};
  }

  models::TrainOptions train_options() {
    models::TrainOptions options = trainer_options(plan(), workload_->model(), lr_);
    options.capture = !profiled();  // a replay is one launch: its ops have no ranges
    options.parallel = parallel_ ? &*parallel_ : nullptr;
    options.should_stop = [] { return pending_signal() != 0; };
    return options;
  }

  int64_t total_steps() const {
    int64_t steps = 0;
    for (int64_t epoch = 0; epoch < workload_->task().epochs(); ++epoch)
      steps += dist::StepPlan{workload_->task().steps(epoch), plan().accumulate, group().size()}.steps();
    return plan().max_steps > 0 ? std::min(steps, plan().max_steps) : steps;
  }

  /// Data, model and setting, for one line of the log.
  std::string description() const {
    std::ostringstream about;
    about << workload_->describe(total_steps()) << "; " << precision_.name
          << (plan().kahan ? " with Kahan's summation" : "") << " on " << device_ << ", " << kernels::num_threads()
          << " threads";
    if (parallel_) about << " in each of " << group().size() << " processes, over " << world_->transport();
    if (parallel_ && parallel_->is_sharded()) about << ", each with a part of the optimizer's state (zero1)";
    return about.str();
  }

  int train(const std::string& from) {
    if (is_first()) write_record(from);
    group().barrier();  // what is wrong with the folder is rank 0's to say, before others stumble on it
    models::TrainingTask& task = workload_->task();
    progress_.log(description());
    if (const std::string notice = world_->notice(); !notice.empty()) progress_.log(notice);
    const int64_t blocks = parse_recompute(plan().recompute).value();
    if (blocks > 0) recompute(task, blocks);
    std::optional<StepProfile> profile;
    if (profiled()) profile.emplace(profile_options());

    models::TrainOptions options = train_options();
    std::optional<models::CheckpointFolder> checkpoints;
    // Not only rank 0's: every rank must know that there are checkpoints, and when.
    if (is_first())
      checkpoints.emplace(folder_->checkpoints(), plan().keep,
                          models::CheckpointOwner{folder_->id(), [this] { folder_->check_own(); }});
    else
      checkpoints.emplace("", plan().keep);
    options.checkpoints = &*checkpoints;
    std::tie(options.checkpoint_steps, options.checkpoint_seconds) =
        parse_checkpoint_every(plan().checkpoint_every).value_or(std::pair<int64_t, double>());
    options.save_model = [&](const std::string& dir) {
      workload_->save(dir);
      save_autotune(dir, device_);
    };
    std::optional<models::TrainCheckpoint> checkpoint;
    if (!from.empty()) {
      checkpoint = models::load_checkpoint(from);
      options.resume = &*checkpoint;
      progress_.log("resume: " + from + ", step " + std::to_string(checkpoint->position.step));
    }
    allocator(device_).reset_peak();
    if (!is_first()) return train_beside(task, options);
    RunObserver observer(*folder_, progress_, *workload_, precision_.products() == float16,
                         profile ? &*profile : nullptr);
    std::optional<models::Evaluation> tested;
    MemoryStatistics memory;
    bool left = false;  // the folder has the weights that the run leaves
    options.test = [&] {
      if (profile) profile->end();
      memory = allocator(device_).statistics();
      leave_weights();
      left = true;
      tested = workload_->test();
    };
    models::TrainResult result;
    try {
      result = models::train(task, options, observer);
    } catch (const DeviceError&) {  // the weights of now are lost with the device's memory
      progress_.log(observer.saved_epoch() > 0
                        ? "the device failed; the weights of epoch " + std::to_string(observer.saved_epoch()) +
                              ", the best so far, are in " + folder_->path()
                        : "the device failed before any weights were saved");
      throw;
    } catch (const std::exception&) {
      // The weights are those before the failed step, or the best: worth keeping once there was a step.
      if (observer.steps() > 0 && !left && folder_->is_own()) {
        keep_weights();
        name_newest_checkpoint();
      }
      throw;
    }
    if (result.stopped) {
      if (profile) profile->end();
      if (!left) leave_weights();
      progress_.log("stopped by a signal after " + data::counted(result.steps, "step") + "; the weights are in " +
                    folder_->path() + ", and 'tern resume " + folder_->path() + "' continues");
      return signal_status(agreed_signal());
    }
    if (result.not_finite_since > 0) {
      leave_weights();
      fail_not_finite(result, observer);
    }
    finish(result, memory, tested);
    if (profile) profile->throw_failure();
    return 0;
  }

  /// Into the run folder: the model that the module holds.
  void leave_weights() {
    folder_->keep();
    folder_->write_model([&](const std::string& dir) {
      workload_->save(dir);
      save_autotune(dir, device_);
    });
  }

  /// A rank other than 0: it computes, and leaves files and words to rank 0.
  int train_beside(models::TrainingTask& task, models::TrainOptions& options) {
    models::TrainObserver silent;
    options.test = [this] { workload_->test(); };
    return models::train(task, options, silent).stopped ? signal_status(agreed_signal()) : 0;
  }

  /// The signal that came to any of the ranks, or 0. Called by all of them.
  int agreed_signal() {
    if (!parallel_) return pending_signal();
    Tensor signal = from_vector<int32_t>({pending_signal()}, {1}).to(device_);
    group().all_reduce(signal, dist::ReduceOp::kMax);
    return signal.item<int32_t>();
  }

  void recompute(models::TrainingTask& task, int64_t blocks) {
    const auto set = [&](bool on) { workload_->model().set_recompute(on ? blocks : 0); };
    set(true);
    if (parallel_) return;  // the comparison's passes would exchange gradients
    progress_.log("recompute " + plan().recompute + ": " +
                  models::measure_recompute(task, train_options(), set).text() + ", measured on the first batch");
  }

  StepProfileOptions profile_options() {
    const auto [table, trace] = profile_files(profile_prefix(), folder_->path());
    return {.table = table,
            .trace = trace,
            .steps = plan().profile_steps,
            .total_steps = total_steps(),
            .device = device_,
            .dtype = precision_.products(),
            .log = [this](const std::string& line) { progress_.log(line); }};
  }

  [[noreturn]] void fail_not_finite(const models::TrainResult& result, const RunObserver& observer) {
    name_newest_checkpoint();
    fail(
        "the run ended without a finite loss: since step ", result.not_finite_since,
        " that of training or validation, or an output of the model, is NaN or infinite; ",
        observer.saved_epoch() > 0
            ? "the weights of epoch " + std::to_string(observer.saved_epoch()) + ", the best, are in " + folder_->path()
            : "no epoch was validated with finite numbers; the last weights are in " + folder_->path(),
        "; try a lower --lr, a longer --warmup or --dtype fp32");
  }

  /// What is left of a run that failed.
  void name_newest_checkpoint() {
    try {
      const auto log = [this](const std::string& line) { progress_.log(line); };
      if (const auto newest = models::newest_checkpoint(folder_->checkpoints(), log, folder_->id()))
        progress_.log("the newest checkpoint, with finite weights, is " + *newest);
    } catch (const Error& error) {
      progress_.log(error.what());
    }
  }

  void keep_weights() {
    if (const std::string bad = models::first_non_finite(workload_->model()); !bad.empty()) {
      progress_.log("the weights are not saved: " + bad);
      return;
    }
    try {
      folder_->write_model([&](const std::string& dir) { workload_->save(dir); });
      progress_.log("the weights of the best epoch, or else those before the failed step, are in " + folder_->path());
    } catch (const std::exception& second) {
      progress_.log(std::string("the weights could not be saved: ") + second.what());
    }
  }

  /// Writes and prints the results; `test` is that of the test rows, if there are any.
  void finish(const models::TrainResult& result, const MemoryStatistics& memory,
              const std::optional<models::Evaluation>& test) {
    const double rate = static_cast<double>(result.items) / std::max(result.step_seconds, 1e-9);
    const data::LabelKind kind = workload_->model().label_kind();
    const std::string metric = metric_key(kind);
    Json last = {{"test_" + metric, nullptr},
                 {"test_loss", nullptr},
                 {"best_epoch", result.best_epoch},
                 {"stopped_early", result.early},
                 {"best_val_" + metric, result.best_epoch > 0 ? Json(shown_metric(kind, result.best)) : Json(nullptr)},
                 {"train_seconds", result.seconds},
                 {"steps", result.steps},
                 {std::string(workload_->unit()) + "_per_second", rate},
                 {"model_flops_utilization", utilization(result)},
                 {"peak_memory_bytes", memory.peak_live_bytes},
                 {"reserved_memory_bytes", memory.peak_reserved_bytes},
                 {"model_state_bytes", result.memory.total()},
                 {"model_state_bytes_expected", result.memory.expected}};
    // Before the line of the results, by which a run counts as finished.
    TERN_CHECK(!test || test->is_finite(), not_finite_text("test", *test), ", with the weights of step ", result.steps,
               result.best_epoch > 0 ? " or those of the best epoch before it" : "");
    if (test) {
      last["test_" + metric] = shown_metric(kind, *test);
      last["test_loss"] = test->loss;
    }
    if (result.early)
      progress_.log("stopped early: no better " + metric_name(kind) + " in " +
                    data::counted(plan().patience, "validation") +
                    (result.best_epoch > 0 ? "; the best was that of epoch " + std::to_string(result.best_epoch)
                                           : "; the loss of every one was NaN"));
    folder_->append_metrics(last);
    folder_->sync_metrics();
    std::ostringstream log;
    log << "trained " << data::counted(result.steps, "step") << " in " << clock_text(result.seconds) << " ("
        << static_cast<int64_t>(rate) << " " << workload_->unit() << "/s), peak memory "
        << (memory.peak_live_bytes >> 20) << " MiB; run folder: " << folder_->path();
    progress_.log(log.str());
    if (parallel_) progress_.log(memory_text(result.memory));
    std::cout << "test " << (test ? evaluation_text(kind, *test) : metric_name(kind) + ": none, there are no test rows")
              << std::endl;
  }

  /// What this process held of the model.
  static std::string memory_text(const dist::ModelStateMemory& m) {
    const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
    std::ostringstream text;
    text << std::fixed << std::setprecision(2) << "model state of this process: " << mib(m.total()) << " MiB (weights "
         << mib(m.weights) << ", gradients " << mib(m.gradients) << ", optimizer " << mib(m.optimizer)
         << "); by the parameters' sizes: " << mib(m.expected) << " MiB";
    return text.str();
  }

  /// The share of this machine's matrix rate, measured here, that the model's arithmetic reached.
  Json utilization(const models::TrainResult& result) const {
    if (result.step_seconds <= 0) return nullptr;
    return workload_->training_flops_per_item() * static_cast<double>(result.items) / result.step_seconds /
           (tern::detail::measure_matrix_rate(device_, precision_.products()) * group().size());
  }

  TrainPlan given_;  // before the data is known
  std::vector<std::string> command_;
  std::unique_ptr<Workload> workload_;
  Progress progress_;
  double lr_ = 0;  // the plan's, or the one that --find-lr found
  const Device device_;
  const Precision precision_;
  std::optional<dist::World> world_;
  std::optional<RunFolder> folder_;  // of rank 0
  bool resumes_ = false;
  std::optional<dist::DataParallel> parallel_;  // of several processes
};

}  // namespace

int train_run(const TrainArguments& given, std::vector<std::string> command) {
  end_in_order_on_signals();
  const dist::Launch launch = dist::detect_launch();
  const Device device = apply_common(given);
  const Precision precision = parse_dtype(given.dtype, device);
  return TrainRun(on_device(given, device, precision), device, precision, std::move(command)).run(launch);
}

}  // namespace tern::cli
