#include "tern/models/trainer/checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tern/core/io/atomic_file.h"
#include "tern/core/io/safetensors.h"
#include "tern/data/datasets/sha256.h"

namespace tern::models {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "tern-checkpoint";
constexpr int kVersion = 1;
constexpr const char* kPrefix = "step-";
constexpr const char* kTemporary = "unfinished-";

/// "step-00000120", and "step-00000120-validated" when the epoch that ends there has been validated: in the order of
/// the run.
std::string name_of_checkpoint(const TrainPosition& position) {
  char text[64];
  std::snprintf(text, sizeof text, "%s%08lld%s", kPrefix, static_cast<long long>(position.step),
                position.validated ? "-validated" : "");
  return text;
}

/// The step in such a name; -1 for other names.
int64_t step_of(std::string name) {
  const std::string end = "-validated";
  if (name.ends_with(end)) name.resize(name.size() - end.size());
  if (!name.starts_with(kPrefix)) return -1;
  const std::string digits = name.substr(std::strlen(kPrefix));
  if (digits.empty() || digits.size() > 18 || digits.find_first_not_of("0123456789") != std::string::npos) return -1;
  return std::stoll(digits);
}

/// Checkpoints, oldest first.
std::vector<fs::path> checkpoints_in(const std::string& path) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path, error))
    if (step_of(entry.path().filename().string()) >= 0) found.push_back(entry.path());
  std::sort(found.begin(), found.end(), [](const fs::path& a, const fs::path& b) {
    const std::string left = a.filename().string(), right = b.filename().string();
    return std::pair(step_of(left), left.size()) < std::pair(step_of(right), right.size());
  });
  return found;
}

struct Digest {
  uint64_t bytes = 0;
  std::string sha256;
};

Digest digest_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  TERN_CHECK(file, path.string(), ": cannot be opened: ", std::strerror(errno));
  Digest digest;
  data::Sha256 hash;
  std::vector<char> buffer(1 << 20);
  while (file) {
    file.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    const size_t count = static_cast<size_t>(file.gcount());
    hash.update(std::string_view(buffer.data(), count));
    digest.bytes += count;
  }
  TERN_CHECK(file.eof(), path.string(), ": cannot be read");
  digest.sha256 = hash.hex();
  return digest;
}

std::vector<fs::path> files_in(const fs::path& dir) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(dir)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

void sync_folder(const fs::path& dir) {
  const int descriptor = open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  TERN_CHECK(descriptor >= 0, dir.string(), ": cannot be opened: ", std::strerror(errno));
  fsync(descriptor);  // a file system that cannot keeps its own promise
  close(descriptor);
}

void write_checksums(const fs::path& dir) {
  Json json;
  for (const fs::path& file : files_in(dir)) {
    const Digest digest = digest_of(file);
    json[file.filename().string()] = {{"bytes", digest.bytes}, {"sha256", digest.sha256}};
  }
  write_atomically((dir / "checksums.json").string(), json.dump(2) + "\n");
}

Json read_json(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  TERN_CHECK(file, path.string(), ": cannot be opened; the checkpoint is incomplete");
  const Json json = Json::parse(file, nullptr, false);
  TERN_CHECK(json.is_object(), path.string(), ": not a JSON object; the checkpoint is damaged");
  return json;
}

/// Throws Error unless every file is there with the bytes it was written with.
void check_files(const fs::path& dir) {
  const Json json = read_json(dir / "checksums.json");
  TERN_CHECK(!json.empty(), (dir / "checksums.json").string(), ": is empty; the checkpoint is damaged");
  for (const auto& [name, wanted] : json.items()) {
    TERN_CHECK(wanted.is_object() && wanted.contains("bytes") && wanted["bytes"].is_number_unsigned() &&
                   wanted.contains("sha256") && wanted["sha256"].is_string() &&
                   fs::path(name).filename() == fs::path(name),
               (dir / "checksums.json").string(), ": is damaged");
    const fs::path path = dir / name;
    const Digest digest = digest_of(path);
    TERN_CHECK(digest.bytes == wanted["bytes"].get<uint64_t>(), path.string(), ": has ", digest.bytes,
               " bytes instead of ", wanted["bytes"].get<uint64_t>(), "; the checkpoint is damaged");
    TERN_CHECK(digest.sha256 == wanted["sha256"].get<std::string>(), path.string(),
               ": its checksum is wrong; the checkpoint is damaged");
  }
}

Json to_json(const TrainCheckpoint& checkpoint) {
  const TrainPosition& p = checkpoint.position;
  return {{"format", kFormat},
          {"version", kVersion},
          {"step", p.step},
          {"epoch", p.epoch},
          {"step_in_epoch", p.step_in_epoch},
          {"validated", p.validated},
          {"items", p.items},
          {"seconds", p.seconds},
          {"step_seconds", p.step_seconds},
          {"best_epoch", p.best_epoch},
          {"best", {{"loss", p.best.loss}, {"accuracy", p.best.accuracy}, {"examples", p.best.examples}}},
          {"generator", {{"seed", p.seed}, {"offset", p.offset}}},
          {"notes", checkpoint.notes}};
}

/// A field of state.json; every one is needed.
template <class T>
T field(const Json& json, const char* name, const fs::path& source) {
  const auto found = json.find(name);
  TERN_CHECK(found != json.end(), source.string(), ": has no \"", name, "\"; the checkpoint is damaged");
  if constexpr (std::is_floating_point_v<T>) {
    if (found->is_null()) return std::numeric_limits<T>::quiet_NaN();  // JSON has no NaN
  }
  try {
    return found->get<T>();
  } catch (const Json::exception&) {
    fail(source.string(), ": \"", name, "\" is ", found->dump().substr(0, 60), "; the checkpoint is damaged");
  }
}

TrainCheckpoint from_json(const Json& json, const fs::path& source) {
  TERN_CHECK(json.contains("format") && json["format"] == kFormat, source.string(),
             ": is not of a training checkpoint");
  TERN_CHECK(field<int>(json, "version", source) == kVersion, source.string(), ": is of version ",
             field<int>(json, "version", source), ", this program reads version ", kVersion);
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
  p.seed = field<uint64_t>(generator, "seed", source);
  p.offset = field<uint64_t>(generator, "offset", source);
  TERN_CHECK(p.step >= 0 && p.epoch >= 0 && p.step_in_epoch >= 0 && p.step_in_epoch <= p.step && p.best_epoch >= 0,
             source.string(), ": its numbers contradict each other; the checkpoint is damaged");
  checkpoint.notes = field<std::string>(json, "notes", source);
  return checkpoint;
}

bool is_whole(const fs::path& dir) {
  try {
    check_files(dir);
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// Renamed first: what is half removed must not be taken for a checkpoint.
void remove_safely(const fs::path& dir) {
  std::error_code ignored;
  const fs::path leaving = dir.parent_path() / (kTemporary + dir.filename().string());
  fs::rename(dir, leaving, ignored);
  fs::remove_all(leaving, ignored);
}

/// The epoch, from 1, after whose validation the checkpoint was made; 0 for others, and for damaged ones.
int64_t epoch_validated_by(const fs::path& dir) {
  try {
    const TrainPosition position = load_checkpoint_position(dir.string());
    return position.validated ? position.epoch + 1 : 0;
  } catch (const Error&) {
    return 0;
  }
}

}  // namespace

CheckpointFolder::CheckpointFolder(std::string path, int64_t keep) : path_(std::move(path)), keep_(keep) {
  TERN_CHECK(keep >= 1, "checkpoints: keep must be 1 or more, got ", keep);
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path_, error))
    if (entry.path().filename().string().starts_with(kTemporary)) fs::remove_all(entry.path(), error);
}

void CheckpointFolder::save(const TrainCheckpoint& checkpoint,
                            const std::function<void(const std::string& dir)>& save_model) {
  const std::string name = name_of_checkpoint(checkpoint.position);
  const fs::path target = fs::path(path_) / name, temporary = fs::path(path_) / (kTemporary + name);
  std::error_code error;
  if (fs::exists(target, error)) {
    if (is_whole(target)) return;  // the same step makes the same bits
    remove_safely(target);
  }
  fs::create_directories(temporary, error);
  TERN_CHECK(!error, temporary.string(), ": cannot be created: ", error.message());
  try {
    save_model(temporary.string());
    save_safetensors(checkpoint.optimizer, (temporary / "optimizer.safetensors").string());
    if (!checkpoint.best_weights.empty())
      save_safetensors(checkpoint.best_weights, (temporary / "best.safetensors").string());
    write_atomically((temporary / "state.json").string(), to_json(checkpoint).dump(2) + "\n");
    write_checksums(temporary);
    sync_folder(temporary);
    fs::rename(temporary, target);
    sync_folder(path_);
  } catch (const std::exception& reason) {
    fs::remove_all(temporary, error);
    fail("checkpoint of step ", checkpoint.position.step, ": ", reason.what(), "; earlier checkpoints are untouched");
  }
  prune();
}

void CheckpointFolder::prune() const {
  const std::vector<fs::path> all = checkpoints_in(path_);
  // The newest says which epoch is the best: the checkpoint that was made when it had been validated stays.
  const int64_t best = load_checkpoint_position(all.back().string()).best_epoch;
  for (size_t i = 0; i + static_cast<size_t>(keep_) < all.size(); ++i) {
    if (best > 0 && epoch_validated_by(all[i]) == best) continue;
    remove_safely(all[i]);
  }
}

std::optional<std::string> newest_checkpoint(const std::string& path, const CheckpointFolder::Log& log) {
  std::vector<fs::path> all = checkpoints_in(path);
  if (all.empty()) return std::nullopt;
  std::string reason;
  for (; !all.empty(); all.pop_back()) {
    try {
      check_files(all.back());
      return all.back().string();
    } catch (const Error& error) {
      reason = error.what();
      if (log && all.size() > 1) log(reason + "; the one before it is used");
    }
  }
  fail(path, ": no checkpoint is whole: ", reason);
}

TrainPosition load_checkpoint_position(const std::string& dir) {
  const fs::path path = fs::path(dir) / "state.json";
  return from_json(read_json(path), path).position;
}

TrainCheckpoint load_checkpoint(const std::string& dir) {
  check_files(dir);
  const fs::path path = fs::path(dir) / "state.json";
  TrainCheckpoint checkpoint = from_json(read_json(path), path);
  checkpoint.optimizer = load_safetensors((fs::path(dir) / "optimizer.safetensors").string()).tensors;
  if (checkpoint.position.best_epoch > 0)
    checkpoint.best_weights = load_safetensors((fs::path(dir) / "best.safetensors").string()).tensors;
  return checkpoint;
}

}  // namespace tern::models
