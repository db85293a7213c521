#pragma once
// The folder a training run leaves: model files, metrics.jsonl, run.json.

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tern/models/trainer/trainer.h"

namespace tern::cli {

using Json = nlohmann::ordered_json;

/// runs/NAME-20250131-235959.
std::string default_run_folder(const std::string& name);

class RunFolder {
 public:
  enum class Mode { kNew, kResume };
  /// kNew creates the folder and throws Error when it holds anything already. kResume opens the folder of an earlier
  /// run and removes the temporary files that it left; it throws Error, and has touched nothing, when the folder is not
  /// a run's. Both throw Error when the folder cannot be created or written, or another process trains in it. Where the
  /// file system has no locks, `log` is called with a line that says so: whether another process trains in the folder
  /// is then unknown.
  RunFolder(const std::string& path, Mode mode, const std::function<void(const std::string&)>& log);
  /// Removes what this object made unless there was something to keep: metrics, or whatever keep() is called for.
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const;
  /// True when the earlier run ended before it wrote anything: there is nothing to go on with.
  bool is_blank() const { return blank_; }
  /// Writes run.json whole.
  void write_record(const Json& record) const;
  /// run.json of an earlier run. Throws Error when it cannot be read.
  static Json read_record(const std::string& path);
  std::string checkpoints() const { return file("checkpoints"); }
  /// Appends one line to metrics.jsonl, at once and whole or not at all; a number that is not finite becomes null.
  /// Throws Error when it cannot.
  void append_metrics(const Json& line);
  void keep() { kept_ = true; }
  /// Returns when metrics.jsonl is on the disk as it is.
  void sync_metrics() const;

  struct Cut {
    int64_t removed_lines = 0;
    int64_t last_step = 0;  // of the lines that stay; 0: there is none
  };
  /// Removes the lines of metrics.jsonl that lie ahead of the position: of later steps and epochs, the results, and a
  /// last line that a crash cut short. Throws Error when the file cannot be read or written.
  Cut cut_metrics(const models::TrainPosition& position);

 private:
  void open_metrics(Mode mode);
  void lock(const std::function<void(const std::string&)>& log) const;
  void remove_created() const;

  std::string path_;
  std::vector<std::string> created_;  // folders, outermost first
  bool kept_ = false, blank_ = true;
  int metrics_ = -1;  // file descriptor
  int64_t metrics_bytes_ = 0;
};

/// What describes this machine in run.json.
Json machine_record();

}  // namespace tern::cli
