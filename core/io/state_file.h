#pragma once
// Weights from files of others: safetensors or PyTorch's, found out by their contents and not by their names.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tern/core/io/pickle.h"
#include "tern/core/parameter.h"

namespace tern {

/// A tensor that is in the file and whose element type Tern has not (complex, uint64, float8, ...).
struct UnreadableTensor {
  std::string name;
  std::string reason;  // "complex64 [2, 3]: Tern has no complex64"
};

struct StateFile {
  std::string path;       // of the file; of a folder's: of the one file, or of the index of its parts
  std::string format;     // "safetensors", "PyTorch (zip)", "PyTorch (older format)" or "pickle"
  std::string container;  // where in the file the tensors are: "model", "checkpoint.state_dict", "" for all of it
  std::string prefix;     // what was taken off every name: "module."
  StateView tensors;      // in the file's order
  std::map<std::string, std::string> widened;  // tensors of a narrower type in the file: name to "int16"
  std::vector<UnreadableTensor> unreadable;
  std::vector<std::pair<std::string, std::string>> others;  // of the whole file: {"epoch", "7"}; safetensors' metadata
  PickleValue contents;                                     // the whole value; undefined for safetensors
};

struct StateFileOptions {
  bool whole = false;  // all tensors under their full names: no container is entered, no prefix taken off
};

/// Names: a dict's keys and a list's positions, joined by dots ("layers.0.weight"). A tensor that is saved alone is
/// named "tensor".
/// Containers: a dict without weights of its own (floating-point tensors of a dimension or more) is entered at the
/// first of the keys "state_dict", "model_state_dict", "model", "model_state", "net", "network", "module", "weights",
/// "params", "model_ema", "state_dict_ema", "ema_state_dict", "ema", "teacher", "student" under which there is a dict
/// with tensors, and so on from there.
/// Prefixes: "module." (DataParallel) and "_orig_mod." (torch.compile) go when every name has them; swa_utils'
/// "n_averaged" goes with them.
///
/// Errors: those of load_safetensors and load_torch, neither format, nesting of more than 64 containers, two tensors of
/// one name.
StateFile load_state_file(const std::string& path, const StateFileOptions& options = {});

/// The weights of a model folder as transformers writes it: the first that exists of model.safetensors,
/// model.safetensors.index.json, pytorch_model.bin, pytorch_model.bin.index.json. An index names the files that hold
/// the parts. Errors also: none of them, a part or one of its tensors that is missing, a tensor that comes twice, a
/// type that Tern has not.
StateFile load_state_folder(const std::string& folder);

/// Throws Error when a file that one of the tensors is a view of was cut shorter since it was loaded: what was copied
/// from it may be zeros.
void verify_files_of(const StateView& tensors);

}  // namespace tern
