#pragma once
// Files written by torch.save: .pt, .pth, .bin. Both formats: the zip archive (since PyTorch 1.6) and the older stream
// of pickles and raw storages. Nothing in a file is run: see pickle.h for what is built and what is refused.
// https://github.com/pytorch/pytorch/blob/main/torch/serialization.py

#include <string>

#include "tern/core/io/pickle.h"

namespace tern {

struct TorchFile {
  std::string format;    // "PyTorch (zip)", "PyTorch (older format)" or "pickle"
  PickleValue contents;  // what torch.load would return, as a tree of plain values
};

/// Opens a file by its contents, whatever its name. Tensors are views of the file's mapping (private: writing to one
/// does not change the file) where the bytes are aligned and little-endian, else of one copy per storage; those that
/// share a storage in the file share it here, with their strides. int8, int16 and uint16 become int32, uint32 becomes
/// int64; see PickleValue::tensor_problem for types that Tern has not. A plain pickle of numpy arrays is read as well.
/// For a model's weights by name use load_state_file (state_file.h).
///
/// Errors, which name the file and the place in it: truncated or damaged anywhere (zip directory, checksums, pickle,
/// storages that are missing, of another size or too small for a tensor), a class or function that pickle.h does not
/// list, compressed or encrypted entries, TorchScript archives, the tar format of before 2017.
TorchFile load_torch(const std::string& path);

}  // namespace tern
