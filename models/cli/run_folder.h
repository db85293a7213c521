#pragma once
// The folder a training run leaves: model files, metrics.jsonl, run.json.

#include <nlohmann/json.hpp>
#include <string>

#include "tern/models/trainer/trainer.h"

namespace tern::cli {

using Json = nlohmann::ordered_json;

/// runs/NAME-20250131-235959.
std::string default_run_folder(const std::string& name);

class RunFolder {
 public:
  enum class Mode { kNew, kResume };
  /// kNew creates the folder and throws Error when it holds anything already; kResume opens the folder of an earlier
  /// run, and removes what that left half written. Throws Error when it cannot be created or written, or another
  /// process trains in it.
  explicit RunFolder(const std::string& path, Mode mode = Mode::kNew);
  /// Removes what this object made unless there was something to keep: metrics, or whatever keep() is called for.
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const;
  /// True when the earlier run ended before it wrote anything: there is nothing to go on with.
  bool is_blank() const;
  /// Writes run.json whole.
  void write_record(const Json& record) const;
  /// run.json of an earlier run. Throws Error when it cannot be read.
  static Json read_record(const std::string& path);
  std::string checkpoints() const { return file("checkpoints"); }
  /// Appends one line to metrics.jsonl, at once and whole or not at all; a number that is not finite becomes null.
  /// Throws Error when it cannot.
  void append_metrics(const Json& line);
  void keep() { kept_ = true; }
  /// Length of metrics.jsonl, for cut_metrics().
  int64_t metrics_bytes() const { return metrics_bytes_; }
  /// Returns when metrics.jsonl is on the disk as it is.
  void sync_metrics() const;
  /// Drops what metrics.jsonl holds beyond this length: steps that will be done again. Throws Error when it is shorter.
  void cut_metrics(int64_t bytes);

 private:
  std::string path_;
  bool created_ = false, kept_ = false;
  int metrics_ = -1;  // file descriptor
  int64_t metrics_bytes_ = 0;
};

/// What describes this machine in run.json.
Json machine_record();

}  // namespace tern::cli
