#pragma once
// Checkpoints of a training run: all state that determines its further bits, one folder each.
//
//   RUN/checkpoints/step-00000120/
//     config.json, model.safetensors, ...   the model as in its run folder: from_pretrained() reads this folder
//     optimizer.safetensors                 state of the optimizer and the loss scaler
//     best.safetensors                      weights of the best epoch so far, if there was a validation
//     state.json                            position of the run, and its id
//     checksums.json                        bytes and SHA-256 of every file above
//
// A checkpoint is written to a temporary folder (name prefixed with ".tern-unfinished-"), every file and folder is
// fsynced, and the folder is renamed when complete; before removal it is renamed again (prefix ".tern-removed-"). So a
// killed process or a power cut leaves no partial checkpoint under a checkpoint's name.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tern/core/autograd/parameter.h"
#include "tern/models/log.h"
#include "tern/models/trainer/evaluation.h"

namespace tern::models {

/// Position of a run between two steps.
struct TrainPosition {
  int64_t step = 0;           // optimizer steps done
  int64_t epoch = 0;          // current epoch, from 0
  int64_t step_in_epoch = 0;  // completed steps of it
  bool validated = false;     // the epoch is complete and validated
  int64_t items = 0;
  double seconds = 0, step_seconds = 0;  // as in TrainResult
  int64_t best_epoch = 0;                // from 1; 0: none yet
  Evaluation best;
  // TrainOptions::patience: validations since the last one that was better by min_delta, and that one's metric.
  int64_t waited = 0;
  double reference = 0;
  uint64_t seed = 0, offset = 0;  // state of the module's generator
};

struct TrainCheckpoint {
  TrainPosition position;
  StateView optimizer;     // Optimizer::state_dict(), and the scaler's entries under "scaler/"
  StateView best_weights;  // of best_epoch, under the module's names
};

/// The run that writes checkpoints.
struct CheckpointOwner {
  std::string run = "";                         // its id, which its checkpoints carry; empty: none
  std::function<void()> check_place = nullptr;  // throws Error when the folder is not the run's any more
};

class CheckpointFolder {
 public:
  /// `path`: RUN/checkpoints. Keeps the newest `keep` (>= 1), and the one made when the best epoch was validated.
  /// Removes temporary folders of earlier processes, so only one process may use the folder at a time.
  CheckpointFolder(std::string path, int64_t keep, CheckpointOwner owner = {});

  /// Writes a checkpoint; save_model writes the model's files into the given folder, each complete and synced as by
  /// write_atomically(). Throws Error (no space, no permission), and leaves existing checkpoints untouched. Returns
  /// when the checkpoint is on disk; older ones that cannot be removed stay. CheckpointOwner::check_place is called
  /// before the first file is written and before the checkpoint gets its name; where it throws nothing is left.
  void save(const TrainCheckpoint& checkpoint, const std::function<void(const std::string& dir)>& save_model);

  /// Removes the checkpoints of later steps, also damaged ones, so that a resumed run has one history. Returns their
  /// names, earliest first. Throws Error if one cannot be removed.
  std::vector<std::string> remove_after(const TrainPosition& position);

  const std::string& path() const { return path_; }

 private:
  void prune(const TrainPosition& newest) const;
  void check_place() const;
  bool is_in_place() const;

  std::string path_;
  int64_t keep_;
  CheckpointOwner owner_;
};

/// The newest complete checkpoint in a folder of them; nothing if there are none. Damaged ones, and those that another
/// run than `run` wrote ("": any run), are skipped, with one line each to `log`. Throws Error if there are no others.
std::optional<std::string> newest_checkpoint(const std::string& path, const Log& log, const std::string& run = "");

/// Throws Error when state.json of a checkpoint has the id of another run than `run`. Checkpoints of earlier programs
/// have none, and "" stands for any run.
void check_writer(const std::string& dir, const std::string& run);

/// The position of a checkpoint's run; reads no other file. Throws Error as load_checkpoint() does.
TrainPosition load_checkpoint_position(const std::string& dir);

/// Reads all but the model. Throws Error that names the file if it is damaged, incomplete or of another version.
TrainCheckpoint load_checkpoint(const std::string& dir);

}  // namespace tern::models
