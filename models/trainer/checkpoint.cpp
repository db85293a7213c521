#include "tern/models/trainer/checkpoint.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tern/core/io/atomic_file.h"
#include "tern/core/io/folders.h"
#include "tern/core/io/json.h"
#include "tern/core/io/safetensors.h"
#include "tern/models/checksums.h"

namespace tern::models {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "tern-checkpoint";
constexpr int kVersion = 2;  // 1: other names of an encoder layer's parameters
constexpr const char* kPrefix = "step-";
constexpr const char* kValidated = "-validated";
// Prefixes of folders being written or removed; a process that ends meanwhile leaves them behind.
constexpr const char* kUnfinished = ".tern-unfinished-";
constexpr const char* kRemoved = ".tern-removed-";

/// "step-00000120", or "step-00000120-validated" if its epoch ends there and has been validated: sorts in the order of
/// the run.
std::string name_of_checkpoint(int64_t step, bool validated) {
  char text[64];
  std::snprintf(text, sizeof text, "%s%08lld%s", kPrefix, static_cast<long long>(step), validated ? kValidated : "");
  return text;
}

/// The step in a checkpoint's name; -1 for other names.
int64_t step_of(const std::string& name) {
  if (!name.starts_with(kPrefix)) return -1;
  int64_t step = 0;
  const char* const begin = name.data() + std::strlen(kPrefix);
  if (std::from_chars(begin, name.data() + name.size(), step).ec != std::errc() || step < 0) return -1;
  return name == name_of_checkpoint(step, name.ends_with(kValidated)) ? step : -1;
}

/// Order of a checkpoint in the run. Of two with the same step, the validated one is later.
std::pair<int64_t, bool> place_of(const TrainPosition& position) { return {position.step, position.validated}; }
std::pair<int64_t, bool> place_of(const fs::path& dir) {
  const std::string name = dir.filename().string();
  return {step_of(name), name.ends_with(kValidated)};
}

/// Checkpoints, oldest first.
std::vector<fs::path> checkpoints_in(const std::string& path) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path, error))
    if (entry.is_directory(error) && step_of(entry.path().filename().string()) >= 0) found.push_back(entry.path());
  std::sort(found.begin(), found.end(), [](const fs::path& a, const fs::path& b) { return place_of(a) < place_of(b); });
  return found;
}

/// True for a folder that was being written or removed when its process ended.
bool is_leftover(const fs::directory_entry& entry) {
  std::error_code error;
  const std::string name = entry.path().filename().string();
  for (const std::string prefix : {kUnfinished, kRemoved})
    if (name.starts_with(prefix) && step_of(name.substr(prefix.size())) >= 0) return entry.is_directory(error);
  return false;
}

Json read_json(const fs::path& path) {
  try {
    return Json(read_json_object(path.string()));
  } catch (const Error& error) {
    fail(error.what(), "; the checkpoint is damaged or incomplete");
  }
}

Json to_json(const TrainCheckpoint& checkpoint, const std::string& run) {
  const TrainPosition& p = checkpoint.position;
  return {{"format", kFormat},
          {"version", kVersion},
          {"run", run},
          {"step", p.step},
          {"epoch", p.epoch},
          {"step_in_epoch", p.step_in_epoch},
          {"validated", p.validated},
          {"items", p.items},
          {"seconds", p.seconds},
          {"step_seconds", p.step_seconds},
          {"best_epoch", p.best_epoch},
          {"best", {{"loss", p.best.loss}, {"accuracy", p.best.metric}, {"examples", p.best.examples}}},
          {"patience", {{"waited", p.waited}, {"reference", p.reference}}},
          {"generator", {{"seed", p.seed}, {"offset", p.offset}}}};
}

/// A required field of state.json. An int64_t is a count.
template <class T>
T field(const Json& json, const char* name, const fs::path& source) {
  const auto found = json.find(name);
  TERN_CHECK(found != json.end(), source.string(), ": has no \"", name, "\"; the checkpoint is damaged");
  if constexpr (std::is_floating_point_v<T>) {
    if (found->is_null()) return std::numeric_limits<T>::quiet_NaN();  // JSON has no NaN
  }
  constexpr int64_t kMaxCount = int64_t{1} << 53;  // more than any run needs; sums of two do not overflow
  const auto is_count = [&] {
    const int64_t count = integer_in(*found).value_or(-1);
    return count >= 0 && count <= kMaxCount;
  };
  // The library's conversions wrap, and round fractions to integers.
  const bool good = std::is_same_v<T, uint64_t>      ? found->is_number_unsigned()
                    : std::is_same_v<T, int64_t>     ? is_count()
                    : std::is_same_v<T, bool>        ? found->is_boolean()
                    : std::is_floating_point_v<T>    ? found->is_number()
                    : std::is_same_v<T, std::string> ? found->is_string()
                                                     : found->is_object();
  TERN_CHECK(good, source.string(), ": \"", name, "\" is ", shortened(*found), "; the checkpoint is damaged");
  return found->get<T>();
}

TrainCheckpoint from_json(const Json& json, const fs::path& source) {
  TERN_CHECK(json.contains("format") && json["format"] == kFormat, source.string(),
             ": is not of a training checkpoint");
  TERN_CHECK(field<int64_t>(json, "version", source) == kVersion, source.string(), ": is of version ",
             field<int64_t>(json, "version", source), ", this program reads version ", kVersion,
             ": end the run with the program that began it, or begin a new one from its model with --init");
  TrainCheckpoint checkpoint;
  TrainPosition& p = checkpoint.position;
  p.step = field<int64_t>(json, "step", source);
  p.epoch = field<int64_t>(json, "epoch", source);
  p.step_in_epoch = field<int64_t>(json, "step_in_epoch", source);
  p.validated = field<bool>(json, "validated", source);
  p.items = field<int64_t>(json, "items", source);
  p.seconds = field<double>(json, "seconds", source);
  p.step_seconds = field<double>(json, "step_seconds", source);
  p.best_epoch = field<int64_t>(json, "best_epoch", source);
  const Json best = field<Json>(json, "best", source), generator = field<Json>(json, "generator", source);
  p.best = {field<double>(best, "loss", source), field<double>(best, "accuracy", source),
            field<int64_t>(best, "examples", source)};
  if (json.contains("patience")) {  // not in checkpoints of earlier programs
    const Json patience = field<Json>(json, "patience", source);
    p.waited = field<int64_t>(patience, "waited", source);
    p.reference = field<double>(patience, "reference", source);
  }
  p.seed = field<uint64_t>(generator, "seed", source);
  p.offset = field<uint64_t>(generator, "offset", source);
  TERN_CHECK(p.step_in_epoch <= p.step, source.string(),
             ": its numbers contradict each other; the checkpoint is damaged");
  return checkpoint;
}

/// Removes checkpoints of one folder, in this order. A partly removed one must not be taken for a checkpoint: all are
/// renamed first, and their content is removed when the new names are on disk. Throws Error at the first that cannot be
/// renamed.
void remove_safely(const std::vector<fs::path>& all) {
  if (all.empty()) return;
  std::vector<fs::path> removed;
  std::error_code error, ignored;
  for (const fs::path& dir : all) {
    const fs::path name = dir.parent_path() / (kRemoved + dir.filename().string());
    fs::remove_all(name, ignored);
    fs::rename(dir, name, error);
    if (error) break;
    removed.push_back(name);
  }
  sync_folder(all.front().parent_path().string());
  for (const fs::path& dir : removed) fs::remove_all(dir, ignored);  // the next run removes leftovers
  TERN_CHECK(!error, all[removed.size()].string(), ": cannot be removed: ", error.message());
}

/// The epoch, from 1, whose validation preceded the checkpoint; 0 for other or damaged checkpoints.
int64_t epoch_validated_by(const fs::path& dir) {
  try {
    const TrainPosition position = load_checkpoint_position(dir.string());
    return position.validated ? position.epoch + 1 : 0;
  } catch (const Error&) {
    return 0;
  }
}

/// True if `dir` is a complete checkpoint of exactly this state: a run resumed elsewhere may have one of the same step.
bool holds(const fs::path& dir, const TrainPosition& p, const std::string& run) {
  try {
    check_checksums(dir.string());
    check_writer(dir.string(), run);
    const TrainPosition saved = load_checkpoint_position(dir.string());
    return place_of(saved) == place_of(p) && saved.epoch == p.epoch && saved.items == p.items && saved.seed == p.seed &&
           saved.offset == p.offset && saved.best_epoch == p.best_epoch && saved.best.metric == p.best.metric;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

CheckpointFolder::CheckpointFolder(std::string path, int64_t keep, CheckpointOwner owner)
    : path_(std::move(path)), keep_(keep), owner_(std::move(owner)) {
  TERN_CHECK(keep >= 1, "checkpoints: keep must be 1 or more, got ", keep);
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path_, error))
    if (is_leftover(entry)) fs::remove_all(entry.path(), error);
}

void CheckpointFolder::save(const TrainCheckpoint& checkpoint,
                            const std::function<void(const std::string& dir)>& save_model) {
  const std::string name = name_of_checkpoint(checkpoint.position.step, checkpoint.position.validated);
  const fs::path target = fs::path(path_) / name, temporary = fs::path(path_) / (kUnfinished + name);
  std::error_code error;
  check_place();
  try {
    const bool exists = fs::is_directory(target, error);
    if (exists && holds(target, checkpoint.position, owner_.run)) return;  // the same step has the same bits
    create_folders(path_);
    fs::remove_all(temporary, error);
    fs::create_directory(temporary, error);
    TERN_CHECK(!error, temporary.string(), ": cannot be created: ", error.message());
    save_model(temporary.string());
    save_safetensors(checkpoint.optimizer, (temporary / "optimizer.safetensors").string());
    if (!checkpoint.best_weights.empty())
      save_safetensors(checkpoint.best_weights, (temporary / "best.safetensors").string());
    write_atomically((temporary / "state.json").string(), to_json(checkpoint, owner_.run).dump(2) + "\n");
    write_checksums(temporary.string());  // last: syncs the names of all files
    check_place();
    if (exists) remove_safely({target});
    fs::rename(temporary, target, error);
    TERN_CHECK(!error, target.string(), ": cannot be created: ", error.message());
    sync_folder(path_);
  } catch (const std::exception& reason) {
    // Files that were written after somebody had removed the run's folder may have made its folders again. Of these
    // only empty ones are removed.
    const bool made = fs::exists(temporary, error);
    fs::remove_all(temporary, error);
    if (made && !is_in_place() && fs::remove(path_, error)) fs::remove(fs::path(path_).parent_path(), error);
    fail("checkpoint of step ", checkpoint.position.step, ": ", reason.what(), "; earlier checkpoints are untouched");
  }
  if (is_in_place()) prune(checkpoint.position);
}

void CheckpointFolder::check_place() const {
  if (owner_.check_place) owner_.check_place();
}

bool CheckpointFolder::is_in_place() const {
  try {
    check_place();
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::vector<std::string> CheckpointFolder::remove_after(const TrainPosition& position) {
  std::vector<fs::path> later = checkpoints_in(path_);
  std::erase_if(later, [&](const fs::path& dir) { return place_of(dir) <= place_of(position); });
  std::vector<std::string> names;
  for (const fs::path& dir : later) names.push_back(dir.filename().string());
  // Latest first: if this is interrupted, the remaining checkpoints are a prefix of the run.
  std::reverse(later.begin(), later.end());
  remove_safely(later);
  return names;
}

void CheckpointFolder::prune(const TrainPosition& newest) const {
  std::vector<fs::path> all = checkpoints_in(path_), old;
  std::erase_if(all, [&](const fs::path& dir) { return place_of(dir) > place_of(newest); });
  for (size_t i = 0; i + static_cast<size_t>(keep_) < all.size(); ++i)
    if (newest.best_epoch == 0 || epoch_validated_by(all[i]) != newest.best_epoch) old.push_back(all[i]);
  try {
    remove_safely(old);
  } catch (const Error&) {
    return;  // the new checkpoint is written; the next prune tries again
  }
}

std::optional<std::string> newest_checkpoint(const std::string& path, const Log& log, const std::string& run) {
  std::vector<fs::path> all = checkpoints_in(path);
  if (all.empty()) return std::nullopt;
  std::string reason;
  for (; !all.empty(); all.pop_back()) {
    try {
      check_checksums(all.back().string());
      check_writer(all.back().string(), run);
      return all.back().string();
    } catch (const Error& error) {
      reason = error.what();
      if (log && all.size() > 1) log(reason + "; the one before it is used");
    }
  }
  fail(path, ": no checkpoint is whole: ", reason);
}

void check_writer(const std::string& dir, const std::string& run) {
  const Json state = read_json(fs::path(dir) / "state.json");
  const Json writer = state.contains("run") ? state["run"] : Json("");
  TERN_CHECK(run.empty() || writer == "" || writer == run, dir, ": was written by another run (its id is ",
             shortened(writer), ", this run's \"", run, "\")");
}

TrainPosition load_checkpoint_position(const std::string& dir) {
  const fs::path path = fs::path(dir) / "state.json";
  return from_json(read_json(path), path).position;
}

TrainCheckpoint load_checkpoint(const std::string& dir) {
  check_checksums(dir);
  const fs::path path = fs::path(dir) / "state.json";
  TrainCheckpoint checkpoint = from_json(read_json(path), path);
  checkpoint.optimizer = load_safetensors((fs::path(dir) / "optimizer.safetensors").string()).tensors;
  if (checkpoint.position.best_epoch > 0)
    checkpoint.best_weights = load_safetensors((fs::path(dir) / "best.safetensors").string()).tensors;
  return checkpoint;
}

}  // namespace tern::models
