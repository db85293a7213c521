#pragma once
// The folder of a training run: model files, metrics.jsonl, run.json.

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tern/models/trainer/trainer.h"

namespace tern::cli {

using Json = nlohmann::ordered_json;

/// runs/NAME-20250131-235959.
std::string default_run_folder(const std::string& name);

/// The folder is the run's as long as the path leads to the same folder, with the same metrics.jsonl, and run.json has
/// the run's id. A folder that was removed or moved away meanwhile, or in which another run has begun, is not written
/// to: the run ends.
class RunFolder {
 public:
  enum class Mode { kNew, kResume };
  /// kNew creates the folder and throws Error if it has any content. kResume opens the folder of an earlier run and
  /// removes leftover temporary files; it throws Error, without changes, if the folder is not a run's. Both throw Error
  /// if the folder cannot be created or written, or if another process trains in it. On a file system without locks the
  /// latter is unknown, and `log` is called with a line that says so.
  RunFolder(const std::string& path, Mode mode, const std::function<void(const std::string&)>& log);
  /// Removes what this object created unless metrics were written or keep() was called.
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const;
  /// 16 random hexadecimal digits, which run.json and the checkpoints carry; of a resumed run those of run.json.
  const std::string& id() const { return id_; }
  /// Call it before something is written by its path. Throws Error if the folder is not the run's any more.
  void check_own() const;
  bool is_own() const { return problem(true).empty(); }
  /// Calls `save`, which writes the files of a model into the folder. Throws Error if the folder is not the run's, or
  /// not any more afterwards; then what `save` has written into a folder without a run is removed.
  void write_model(const std::function<void(const std::string& dir)>& save) const;
  /// True if the earlier run ended before it wrote anything: there is nothing to resume.
  bool is_blank() const { return blank_; }
  /// What the run found, the last line of metrics.jsonl, if it has come to its end.
  std::optional<Json> results() const;
  /// Writes run.json atomically, with the run's id.
  void write_record(Json record);
  /// Reads run.json of an earlier run. Throws Error if it cannot be read.
  static Json read_record(const std::string& path);
  std::string checkpoints() const { return file("checkpoints"); }
  /// Appends one line to metrics.jsonl atomically; a number that is not finite becomes null. Throws Error on failure.
  void append_metrics(const Json& line);
  void keep() { kept_ = true; }
  /// Returns when the current metrics.jsonl is on disk.
  void sync_metrics() const;

  struct Cut {
    int64_t removed_lines = 0;
    int64_t last_step = 0;  // of the remaining lines; 0: none
  };
  /// Removes the lines of metrics.jsonl that are ahead of the position: those of later steps and epochs, the results,
  /// and a last line truncated by a crash. Throws Error if the file cannot be read or written.
  Cut cut_metrics(const models::TrainPosition& position);

 private:
  void open_metrics(Mode mode);
  std::string read_metrics() const;
  /// Why the folder is not the run's any more; empty: it is. `with_id`: also by run.json.
  std::string problem(bool with_id) const;
  [[noreturn]] void fail_lost(const std::string& why) const;
  void lock(const std::function<void(const std::string&)>& log) const;
  void remove_created() const;

  std::string path_;
  std::vector<std::string> created_;  // folders, outermost first
  std::string id_;
  bool kept_ = false, blank_ = true;
  bool recorded_ = false;              // run.json has the id
  bool stable_ = false;                // the file system gives a file the same number whenever it is asked
  int directory_ = -1, metrics_ = -1;  // file descriptors, which also keep their numbers from being used again
  int64_t metrics_bytes_ = 0;
};

/// The description of this machine in run.json.
Json machine_record();

}  // namespace tern::cli
