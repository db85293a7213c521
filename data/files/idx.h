#pragma once
// The idx format of MNIST's files (http://yann.lecun.com/exdb/mnist): two zero bytes, the type of the values, the
// number of dimensions, the sizes as 32 bits each, the highest byte first, then the values.

#include <string>
#include <string_view>

#include "tern/core/tensor.h"

namespace tern::data {

/// The values of an idx file of unsigned bytes (type 0x08): uint8, of the file's 1 to 8 dimensions. Throws Error that
/// begins with `name` and says at which byte: not idx, another type, more than 2^31 values, truncated, or more behind
/// its end.
Tensor parse_idx(std::string_view bytes, const std::string& name);

/// parse_idx of a file's contents, which may be compressed by gzip (recognised by its first bytes; at most 1 GiB
/// unpacked). Also throws Error when it cannot be read or unpacked.
Tensor read_idx(const std::string& path);

}  // namespace tern::data
