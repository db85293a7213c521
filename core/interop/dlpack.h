#pragma once
// DLPack 1.3: tensors are handed to other libraries of the same process, and taken from them, without a copy.
// https://dmlc.github.io/dlpack/latest (C API); Python's side of it is `__dlpack__` and `from_dlpack`, for which a
// capsule named "dltensor_versioned" (or "dltensor") holds the pointer: docs/interop.md has the whole of it.
//
// Both sides see one memory: a write by one is a write for the other. What another library writes does not change
// Tensor::version(), so that backward cannot report that a tensor it saved was written.
//
// Devices: the host (kDLCPU, kDLCUDAHost) and CUDA (kDLCUDA). No stream is part of an exchange in C: a tensor on CUDA
// may be read by work that is queued behind the work on it, on its stream or behind an Event of it
// (core/memory/stream.h).

#include "tern/core/tensor.h"

// Of dlpack.h, any of whose versions a program may include; only pointers are needed here.
struct DLManagedTensor;
struct DLManagedTensorVersioned;

namespace tern {

/// The tensor's memory for another library. The caller, and then whoever is given the pointer, calls its deleter once,
/// on any thread; until then the memory lives, also without the tensor. Shape, strides (0 for a broadcast dimension)
/// and dtype are the tensor's; `byte_offset` is 0. Errors: the tensor is undefined or requires a gradient, which the
/// other library would not record: pass detach().
[[nodiscard]] DLManagedTensorVersioned* to_dlpack(const Tensor& tensor);
/// The struct without version and flags, for libraries from before DLPack 1.0.
[[nodiscard]] DLManagedTensor* to_dlpack_unversioned(const Tensor& tensor);

enum class DLPackCopy {
  kNever,     // what cannot be shared is an Error
  kIfNeeded,  // of read-only memory, and of elements at addresses that are no multiple of their size
  kAlways,
};

/// A tensor on another library's memory, which keeps it until the last tensor on it is gone; then the deleter runs, on
/// whichever thread that is, and for memory of CUDA after the work that is queued on the device. A copy is made before
/// the return, and the deleter runs at once. After an Error the caller has still to call the deleter.
///
/// Errors: another major version; a device other than those above, or one that cannot be used; a dtype that Tern lacks
/// (int8, complex64, ...); vectors (lanes other than 1); more than 8 dimensions; sizes or strides that are negative or
/// exceed any memory; a null pointer; and, unless `copy` allows one, memory that the other library declares read-only,
/// because every tensor of Tern can be written, and elements that are not aligned.
Tensor from_dlpack(DLManagedTensorVersioned* managed, DLPackCopy copy = DLPackCopy::kNever);
/// Without version and flags: it cannot say that its memory is read-only.
Tensor from_dlpack(DLManagedTensor* managed, DLPackCopy copy = DLPackCopy::kNever);

/// Calls the deleter of what nobody has taken. A null pointer, or a null deleter, is none to call.
void release_dlpack(DLManagedTensorVersioned* managed);
void release_dlpack(DLManagedTensor* managed);

}  // namespace tern
