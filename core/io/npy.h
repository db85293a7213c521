#pragma once
// NumPy's .npy, one array, and .npz, a zip archive of several. Versions 1.0, 2.0 and 3.0 of
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html are read, 1.0 is written.
//
// Types: float64, float32, float16, int64, int32, uint8 and bool are those of NumPy, and bfloat16 is "<V2", as
// ml_dtypes writes it (in NumPy: numpy.load(path).view(ml_dtypes.bfloat16)). int8, int16 and uint16 are read as int32
// and uint32 as int64, as in load_safetensors. Other types (uint64, complex64, text, dates, records) are Errors that
// say how to convert them; an array of Python objects is a pickle, which is not read.

#include <map>
#include <string>
#include <vector>

#include "tern/core/io/safetensors.h"
#include "tern/core/tensor.h"

namespace tern {

/// The array of a file. It is a view of a private mapping (writing to it does not change the file) where the elements
/// are little-endian, aligned and of a type of Tern's, otherwise a copy; one in Fortran's order has strides. Errors,
/// which name the file: cannot be opened, truncated, no array of NumPy, a header that is not the dict that NumPy
/// writes, a type that Tern lacks, more than 8 dimensions, a shape that does not fit the bytes after the header.
Tensor load_npy(const std::string& path);
/// Writes the values in row-major order, byte for byte as numpy.save does for a C-contiguous array. The old file stays
/// until the new one is complete; an Error (no space, no permission) leaves no temporary file.
void save_npy(const Tensor& tensor, const std::string& path);

struct NumpyFile {
  StateView tensors;                           // in the order of the archive, without the ending .npy
  std::map<std::string, std::string> widened;  // arrays of a narrower type in the file: name to "int16"
  std::vector<UnreadableTensor> unreadable;    // arrays of a type that Tern lacks, and members that are no arrays
};

/// Opens what numpy.savez or numpy.savez_compressed wrote. Checksums are checked. An array is a view of a private
/// mapping where it is stored, aligned and needs no conversion; those that numpy.savez writes are mostly not aligned,
/// those of save_npz are. Memory: at most 1032 bytes for each compressed one of the file, the limit of deflate. Errors,
/// which name the file and the array: those of load_npy, but an unsupported type; a damaged archive or checksum, two
/// members of one name, encryption, compression other than deflate.
NumpyFile load_npz(const std::string& path);
/// Stores the arrays, as numpy.savez does, each at a multiple of 64 bytes; with zip64 where an array or the file needs
/// it. Names must be unique and UTF-8. Written as by save_npy.
void save_npz(const StateView& tensors, const std::string& path);

namespace detail {
/// What load_npy() reads as the one entry "tensor" of a NumpyFile.
NumpyFile load_npy_entry(const std::string& path);
}  // namespace detail

}  // namespace tern
