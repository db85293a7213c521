#pragma once
// Checkpoints of a training run: everything that decides the next bit, in one folder each.
//
//   RUN/checkpoints/step-00000120/
//     config.json, model.safetensors, ...   the model as its run folder holds it: from_pretrained() takes the folder
//     optimizer.safetensors                 the optimizer's state and the loss scaler's
//     best.safetensors                      the weights of the best epoch so far, where something was validated
//     state.json                            where the run stands
//     checksums.json                        bytes and SHA-256 of every file above
//
// A checkpoint is written into a temporary folder (".tern-unfinished-" before its name), every file and folder fsynced,
// and renamed when it is whole; one is removed under another name (".tern-removed-" before its own). So a killed
// process and a power cut leave no half checkpoint under a checkpoint's name.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tern/core/parameter.h"

namespace tern::models {

struct Evaluation {
  double loss = 0;      // mean over the examples; NaN when there were none
  double accuracy = 0;  // in [0, 1]
  int64_t examples = 0;
};

/// Where a run stands between two steps.
struct TrainPosition {
  int64_t step = 0;           // optimizer steps done
  int64_t epoch = 0;          // the epoch in work, from 0
  int64_t step_in_epoch = 0;  // steps of it that are done
  bool validated = false;     // it is over, and validated
  int64_t items = 0;
  double seconds = 0, step_seconds = 0;  // as in TrainResult
  int64_t best_epoch = 0;                // from 1; 0: none yet
  Evaluation best;
  uint64_t seed = 0, offset = 0;  // of the module's generator
};

struct TrainCheckpoint {
  TrainPosition position;
  StateView optimizer;     // Optimizer::state_dict(), and the scaler's entries under "scaler/"
  StateView best_weights;  // of best_epoch, under the module's own names
};

class CheckpointFolder {
 public:
  using Log = std::function<void(const std::string&)>;

  /// `path`: RUN/checkpoints. Keeps the newest `keep` (>= 1), and the one that was made when the best epoch was
  /// validated. Temporary folders of a process that died while writing are removed, so only one process may use the
  /// folder at a time.
  CheckpointFolder(std::string path, int64_t keep);

  /// Writes a checkpoint; save_model writes the model's files, each whole and synced as write_atomically() does, into
  /// the folder it is given. Throws Error (no space, no permission); what was there before is then untouched. Returns
  /// when the checkpoint is on the disk; older ones that cannot be removed stay.
  void save(const TrainCheckpoint& checkpoint, const std::function<void(const std::string& dir)>& save_model);

  /// Removes the checkpoints of later steps, damaged ones too, so that a run that goes on from here has one history.
  /// Returns their names, the earliest first. Throws Error when one cannot be removed.
  std::vector<std::string> remove_after(const TrainPosition& position);

  const std::string& path() const { return path_; }

 private:
  void prune(const TrainPosition& newest) const;

  std::string path_;
  int64_t keep_;
};

/// The newest whole checkpoint of a folder of them; nothing when there is none at all. A damaged one is passed over,
/// which `log` hears in one line. Throws Error when all are damaged.
std::optional<std::string> newest_checkpoint(const std::string& path, const CheckpointFolder::Log& log);

/// Where a checkpoint's run stood, without a look at its other files. Throws Error as load_checkpoint().
TrainPosition load_checkpoint_position(const std::string& dir);

/// Reads one, all but the model. Throws Error that names the file when it is damaged, incomplete or of another version.
TrainCheckpoint load_checkpoint(const std::string& dir);

}  // namespace tern::models
