#include "tern/models/cli/run/resume.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tern/core/io/file_kind.h"
#include "tern/kernels/base/check.h"
#include "tern/models/cli/options/option_record.h"
#include "tern/models/cli/run/data_sets.h"
#include "tern/models/trainer/checkpoint.h"

namespace tern::cli {
namespace {

namespace fs = std::filesystem;

bool holds_files(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error) && fs::directory_iterator(path, error) != fs::directory_iterator();
}

}  // namespace

ResumePlan plan_resume(const std::string& resume, const std::string& out, const std::string& fallback) {
  using Mode = RunFolder::Mode;
  if (resume.empty()) return {out.empty() ? fallback : out, Mode::kNew, ""};
  if (resume == "auto") {
    if (out.empty()) throw UsageError("--resume auto: give the folder of the run with --out");
    return {out, holds_files(out) ? Mode::kResume : Mode::kNew, ""};
  }
  ResumePlan plan{resume, Mode::kResume, ""};
  std::error_code error;
  if (fs::exists(fs::path(resume) / "state.json", error)) {
    // RUN/checkpoints/step-00000120
    const fs::path checkpoint = fs::weakly_canonical(resume);
    plan.checkpoint = checkpoint.string();
    plan.run_folder = checkpoint.parent_path().parent_path().string();
  }
  tern::detail::require_folder(plan.run_folder, "--resume takes the folder of a run");
  if (!out.empty() && fs::weakly_canonical(out) != fs::weakly_canonical(plan.run_folder))
    throw UsageError("--resume " + resume + " continues in that run's folder; omit --out");
  return plan;
}

std::string find_checkpoint(const ResumePlan& plan, const std::string& run, const models::Log& log) {
  if (plan.mode == RunFolder::Mode::kNew) return "";
  if (!plan.checkpoint.empty()) {
    models::check_writer(plan.checkpoint, run);
    return plan.checkpoint;
  }
  const std::string folder = (fs::path(plan.run_folder) / "checkpoints").string();
  const auto found = models::newest_checkpoint(folder, log, run);
  if (!found) log("resume: " + plan.run_folder + " has no checkpoint yet; the run starts from the beginning");
  return found.value_or("");
}

namespace {

/// How a run that is over is trained further.
std::string further_text(const std::string& run_folder) {
  return "to train further, begin a new run from its weights: --init " + run_folder + " with another --out";
}

}  // namespace

std::string finished_text(const std::string& run_folder, const Json& results) {
  std::string found;
  for (const auto& [name, value] : results.items())
    if (found.empty() && name.starts_with("test_") && value.is_number()) found = ", " + name + " " + json_text(value);
  return run_folder + " is finished (" + json_text(results.value("steps", Json(nullptr))) + " steps" + found +
         "); nothing is done or changed; " + further_text(run_folder);
}

void check_finished_run(const Json& before, const TrainArguments& now) {
  Json asked = to_record(TrainArguments());
  asked.update(before.at("options"));
  const Json given = to_record(now);
  for (const OptionRow& row : now.rows())
    if (now.given(row.spec.name)) asked[row.recorded_name()] = given.at(row.recorded_name());
  const std::string differences = record_differences(TrainArguments(), before.at("options"), asked);
  TERN_CHECK(differences.empty(), "resume: the run was started with other values: ", differences, "; it is finished; ",
             further_text(before.at("options").value("out", std::string("RUN"))));
}

std::string describe_other_arithmetic(const Json& before, const Json& now) {
  const auto place = [](const Json& record) {
    const Json machine = record.value("machine", Json::object());
    const std::string device = machine.value("device", std::string("cpu"));
    return device != "cpu" ? device : "CPU level " + machine.value("cpu_level", std::string("unknown"));
  };
  const std::string then = place(before), today = place(now);
  if (then == today) return "";
  return "resume: the run has computed on " + then + " and goes on on " + today +
         ", whose sums are rounded otherwise: it will not end with the bits that it would have had" +
         (then.starts_with("CPU level") ? " (TERN_CPU_LEVEL sets the level, up to that of the machine)" : "");
}

std::vector<std::string> describe_cut(int64_t step, const std::vector<std::string>& checkpoints,
                                      const RunFolder::Cut& metrics) {
  std::vector<std::string> lines;
  std::string removed;
  if (checkpoints.size() == 1) removed = "the checkpoint " + checkpoints[0];
  if (checkpoints.size() > 1)
    removed = std::to_string(checkpoints.size()) + " checkpoints, " + checkpoints.front() + " to " + checkpoints.back();
  if (metrics.removed_lines > 0)
    removed += (removed.empty() ? "" : ", and ") + std::to_string(metrics.removed_lines) +
               (metrics.removed_lines == 1 ? " line" : " lines") + " of metrics.jsonl";
  if (!removed.empty()) lines.push_back("removed what followed step " + std::to_string(step) + ": " + removed);
  if (metrics.last_step < step)
    lines.push_back("metrics.jsonl was changed: it ends with step " + std::to_string(metrics.last_step) +
                    "; the lines up to step " + std::to_string(step) + " are missing");
  return lines;
}

std::string as_lines(const Json& record, const std::string& prefix) {
  std::string lines;
  for (const auto& [name, value] : record.items()) lines += prefix + name + " " + json_text(value) + "\n";
  return lines;
}

int64_t accumulate_for(int64_t batches_a_step, int64_t processes) {
  TERN_CHECK(batches_a_step % processes == 0, "resume: the run has ", batches_a_step, " ",
             batches_a_step == 1 ? "batch" : "batches", " a step (processes x --accumulate), which ", processes,
             " processes cannot share equally; start it with a "
             "number of processes that divides ",
             batches_a_step);
  return batches_a_step / processes;
}

namespace {

/// Throws Error unless a step has as many batches, of all processes, as before.
void check_same_batches(const Json& before, const Json& now) {
  const auto batches = [](const Json& options) {
    return options.value("accumulate", int64_t{1}) * options.value("processes", int64_t{1});
  };
  const int64_t then = batches(before), today = batches(now);
  if (then == today) return;
  const int64_t processes = now.value("processes", int64_t{1});
  fail("resume: a step of the run had ", then, then == 1 ? " batch" : " batches",
       " (processes x --accumulate) and would have ", today, "; with ", processes,
       processes == 1 ? " process" : " processes", " give --accumulate ", accumulate_for(then, processes));
}

}  // namespace

TrainArguments arguments_of_run(const std::string& folder) {
  TrainArguments trained;
  const fs::path path = fs::path(folder) / "run.json";
  if (!tern::detail::name_exists(path.string())) return trained;
  const Json record = RunFolder::read_record(folder);
  from_record(trained, record["options"], path.string());
  // Relative paths were given as seen from where the run was started.
  const fs::path then = record.value("folder", "");
  std::error_code error;
  for (std::string* given : {&trained.data, &trained.init})
    if (!given->empty() && !(given == &trained.data && is_named_set(*given)) && fs::path(*given).is_relative() &&
        fs::exists(then / *given, error))
      *given = (then / *given).string();
  return trained;
}

std::string views_of_run(const TrainArguments& trained) { return trained.tta.empty() ? "none" : trained.tta; }

TrainArguments arguments_to_resume(const std::string& run, const CommonOptions& given, int64_t processes) {
  const std::string folder = plan_resume(run, "", "").run_folder;
  const Json options = RunFolder::read_record(folder)["options"];
  TrainArguments a = arguments_of_run(folder);
  a.out.clear();
  a.config.clear();  // its options are in the record
  a.accumulate = accumulate_for(a.accumulate * options.value("processes", int64_t{1}), processes);
  a.resume = run;
  if (given.given("--device")) a.device = given.device;
  a.threads = given.threads;
  a.quiet = given.quiet;
  return a;
}

namespace {

[[noreturn]] void fail_differing(const std::string& differences) {
  const bool longer = differences.starts_with("--epochs ") || differences.starts_with("--max-steps ");
  fail("resume: the run was started with other values: ", differences,
       "; 'tern resume RUN' takes the options it was started with",
       longer ? ". They decide the learning rate of every step; " + further_text("RUN") : "");
}

}  // namespace

void check_same_run(const Json& before, const Json& now) {
  check_same_batches(before.at("options"), now.at("options"));
  std::string differences = record_differences(TrainArguments(), before.at("options"), now.at("options"));
  const auto compare = [&](const char* part, const std::string& prefix) {
    const Json old = before.contains(part) && before[part].is_object() ? before[part] : Json::object();
    for (const auto& [name, value] : now.at(part).items()) {
      if (!old.contains(name) && !old.empty()) continue;  // an earlier program, which did not record it
      const Json earlier = old.contains(name) ? old[name] : Json(nullptr);
      if (earlier == value) continue;
      differences += (differences.empty() ? "" : "; ") + prefix + name + " was " + json_text(earlier) + " and is " +
                     json_text(value);
    }
  };
  compare("model", "the model's ");
  compare("rows", "the data's ");
  if (!differences.empty()) fail_differing(differences);
}

void check_same_task(const Json& before, const TrainArguments& now) {
  const Json& options = before.at("options");
  if (!options.contains("task") || !options["task"].is_string()) return;
  const std::string then = options["task"];
  if (then != now.task) fail_differing("--task was " + then + " and is " + now.task);
}

}  // namespace tern::cli
