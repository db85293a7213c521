#pragma once
// The structs and numbers of DLPack 1.3, which are an interface of compiled code: the order and types of the members
// are those of https://github.com/dmlc/dlpack/blob/v1.3/include/dlpack/dlpack.h, and so are the global names. Not
// installed, so that it never meets another copy of dlpack.h in one file.

#include <cstddef>
#include <cstdint>

struct DLPackVersion {
  uint32_t major;  // 1: this layout
  uint32_t minor;
};

struct DLDevice {
  int32_t device_type;  // tern::dlpack::Device; an enum of C, which is an int
  int32_t device_id;
};

struct DLDataType {
  uint8_t code;    // tern::dlpack::Code
  uint8_t bits;    // of one lane
  uint16_t lanes;  // more than 1: vectors
};

struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;      // in elements; null: row-major without gaps (before 1.2)
  uint64_t byte_offset;  // from data to the first element
};

struct DLManagedTensor {  // before 1.0
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);  // null: nothing to release
};

struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  uint64_t flags;  // tern::dlpack::kReadOnly, ...
  DLTensor dl_tensor;
};

namespace tern::dlpack {

inline constexpr uint32_t kMajor = 1, kMinor = 3;

inline constexpr uint64_t kReadOnly = 1, kIsCopied = 2, kSubbytePadded = 4;

enum Device : int32_t { kCPU = 1, kCUDA = 2, kCUDAHost = 3 };

enum Code : uint8_t { kInt = 0, kUInt = 1, kFloat = 2, kOpaque = 3, kBfloat = 4, kComplex = 5, kBool = 6 };

static_assert(sizeof(DLTensor) == 48 && sizeof(DLManagedTensor) == 64 && sizeof(DLManagedTensorVersioned) == 80 &&
              offsetof(DLTensor, dtype) == 20 && offsetof(DLManagedTensorVersioned, dl_tensor) == 32);

}  // namespace tern::dlpack
