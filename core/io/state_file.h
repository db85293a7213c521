#pragma once
// Weights from other programs: safetensors, PyTorch's or NumPy's, detected by the contents of a file and not by its
// name.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tern/core/io/pickle.h"
#include "tern/core/io/safetensors.h"
#include "tern/core/tensor.h"

namespace tern {

struct StateFile {
  std::string path;    // of the file; for a folder: of the one file, or of the index of its parts
  std::string format;  // "safetensors", "PyTorch (zip)", "PyTorch (older format)", "pickle", "NumPy (npy)" or "(npz)"
  std::string container;  // the path of the tensors in the file: "model", "checkpoint.state_dict", "" for all of it
  std::vector<std::string> other_containers;   // next to it, with tensors too: another's paths, "state_dict"
  std::string prefix;                          // removed from every name: "module."
  StateView tensors;                           // in the file's order
  std::map<std::string, std::string> widened;  // tensors of a narrower type in the file: name to "int16"
  std::vector<UnreadableTensor> unreadable;
  std::vector<std::pair<std::string, std::string>> other_entries;  // {"epoch", "7"}; safetensors' metadata
  PickleValue contents;                                            // the whole value; undefined unless PyTorch's
};

struct StateFileOptions {
  bool whole = false;  // return all tensors under their full names: enter no container, remove no prefix
};

/// Names: a dict's keys and a list's positions, joined by dots ("layers.0.weight"). A file of a single tensor gives it
/// the name "tensor". Those of an .npz have their names in it.
/// Containers: in a dict without direct weights (floating-point tensors of one dimension or more) the first of the keys
/// "state_dict_ema", "model_ema" (as in timm the average is taken), "state_dict", "model_state_dict", "model",
/// "model_state", "net", "network", "module", "weights", "params", "ema_state_dict", "ema", "teacher", "student" that
/// holds a dict with tensors is entered, and so on. "FILE:NAME", where there is no such file, is FILE with the
/// container NAME of its outermost dict instead. Prefixes: "module." (DataParallel) and "_orig_mod." (torch.compile)
/// are removed when every name has them; swa_utils' "n_averaged" is then dropped.
///
/// Errors: those of load_safetensors, load_torch, load_npy and load_npz, an unknown format, nesting of more than 64
/// containers, two tensors with the same name, no container of the name in the path.
StateFile load_state_file(const std::string& path, const StateFileOptions& options = {});

/// FILE of a path "FILE:NAME" (load_state_file), otherwise the path.
std::string file_of_weights(const std::string& path);

/// The weights of a model folder in the layout of transformers: the first that exists of model.safetensors,
/// model.safetensors.index.json, pytorch_model.bin, pytorch_model.bin.index.json. An index names the files of the
/// parts. Errors also: none of these files exists, a missing part or tensor, a repeated tensor, an unsupported type.
StateFile load_state_folder(const std::string& folder);

/// Throws Error when the file behind one of the tensors was cut shorter after loading: copies of it may be zeros.
void verify_files_of(const StateView& tensors);

}  // namespace tern
