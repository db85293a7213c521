#pragma once
// Hugging Face's safetensors format: u64 little-endian header length, a JSON header, then the tensors' bytes.
// https://github.com/huggingface/safetensors (format section). Files are memory-mapped; every number in the header is
// checked before use, so a truncated or malicious file is an Error that names the file and the problem.

#include <map>
#include <string>
#include <vector>

#include "tern/core/tensor.h"

namespace tern {

/// A tensor in a file whose element type or layout Tern does not support (complex, uint64, float8, sparse, ...).
struct UnreadableTensor {
  std::string name;
  std::string reason;  // "complex64 [2, 3]: Tern has no complex64"
};

struct SafetensorsFile {
  StateView tensors;                            // in the order of their bytes; they keep the mapping alive
  std::map<std::string, std::string> metadata;  // "__metadata__"
  std::map<std::string, std::string> widened;   // tensors of a narrower type in the file: name to "int16"
  std::vector<UnreadableTensor> unreadable;     // in the order of their bytes
};

/// Opens a file. The tensors are views of a private mapping (writing to one does not change the file), except that I8,
/// I16 and U16 become int32 and U32 becomes int64, as in load_torch. Types that no type of Tern's holds (U64, C64,
/// floats of 4, 6 and 8 bits) are in `unreadable`. Errors: cannot be opened, truncated, header longer than 100 MB or
/// the file, bad JSON, duplicate names, a dtype that the format does not have, offsets that overlap, leave holes or are
/// outside, a size that does not fit dtype and shape.
SafetensorsFile load_safetensors(const std::string& path);

/// Writes to a temporary file in the same folder, fsyncs and renames it: the old file stays until the new one is
/// complete. Names must be unique. Errors (no space, no permission) leave no temporary file.
void save_safetensors(const StateView& tensors, const std::string& path,
                      const std::map<std::string, std::string>& metadata = {});

}  // namespace tern
