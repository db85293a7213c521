#pragma once
// The folder a training run leaves: model files, metrics.jsonl, run.json.

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "tern/models/trainer/trainer.h"

namespace tern::cli {

using Json = nlohmann::ordered_json;

/// runs/NAME-20250131-235959.
std::string default_run_folder(const std::string& name);

class RunFolder {
 public:
  /// Creates the folder. Throws Error when it holds anything already, or cannot be created or written.
  explicit RunFolder(const std::string& path);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const;
  /// Writes run.json whole.
  void write_record(const Json& record) const;
  /// Appends one line to metrics.jsonl, at once; a number that is not finite becomes null. Throws Error when it cannot.
  void append_metrics(const Json& line);

 private:
  std::string path_;
  std::FILE* metrics_ = nullptr;
};

/// What describes this machine in run.json.
Json machine_record();

}  // namespace tern::cli
