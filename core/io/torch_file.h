#pragma once
// Files written by torch.save: .pt, .pth, .bin. Both formats: the zip archive (since PyTorch 1.6) and the older
// sequence of pickles and raw storages. No code in a file is run: pickle.h describes what is supported.
// https://github.com/pytorch/pytorch/blob/main/torch/serialization.py

#include <string>

#include "tern/core/io/pickle.h"

namespace tern {

struct TorchFile {
  std::string format;    // "PyTorch (zip)", "PyTorch (older format)" or "pickle"
  PickleValue contents;  // the result of torch.load as a tree of plain values
};

/// Opens a file by its contents, regardless of its name. Tensors are views of a private mapping (writing to one does
/// not change the file) where the bytes are aligned and little-endian, otherwise of one copy per storage; tensors that
/// share a storage in the file share it here, with their strides. int8, int16 and uint16 become int32, uint32 becomes
/// int64; PickleValue::tensor_problem describes unsupported types. A plain pickle of numpy arrays is read as well. To
/// get a model's weights by name use load_state_file (state_file.h).
///
/// Errors, which name the file and the place in it: truncated or damaged anywhere (zip directory, checksums, pickle,
/// storages that are missing, of another size or too small for a tensor), a class or function that pickle.h does not
/// list, compressed or encrypted entries, TorchScript archives, the tar format of before 2017.
TorchFile load_torch(const std::string& path);

}  // namespace tern
