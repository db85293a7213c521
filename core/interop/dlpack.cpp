#include "tern/core/interop/dlpack.h"

#include <algorithm>
#include <array>

#include "tern/core/device/backend.h"
#include "tern/core/interop/dlpack_abi.h"

namespace tern {
namespace {

struct DLPackType {
  uint8_t code, bits;
  DType dtype;
};
constexpr DLPackType kDLPackTypes[] = {{dlpack::kFloat, 64, float64},   {dlpack::kFloat, 32, float32},
                                       {dlpack::kBfloat, 16, bfloat16}, {dlpack::kFloat, 16, float16},
                                       {dlpack::kInt, 64, int64},       {dlpack::kInt, 32, int32},
                                       {dlpack::kUInt, 8, uint8},       {dlpack::kBool, 8, boolean}};  // by DType

constexpr const char* kDLPackCodes[] = {"int",
                                        "uint",
                                        "float",
                                        "opaque handle",
                                        "bfloat",
                                        "complex",
                                        "bool",
                                        "float8_e3m4",
                                        "float8_e4m3",
                                        "float8_e4m3b11fnuz",
                                        "float8_e4m3fn",
                                        "float8_e4m3fnuz",
                                        "float8_e5m2",
                                        "float8_e5m2fnuz",
                                        "float8_e8m0fnu",
                                        "float6_e2m3fn",
                                        "float6_e3m2fn",
                                        "float4_e2m1fn"};

/// "int16"; the names of small floats have their bits.
std::string name_of_type(const DLDataType& type) {
  if (type.code >= std::size(kDLPackCodes))
    return detail::concatenate("code ", int{type.code}, " of ", int{type.bits}, " bits");
  const std::string name = kDLPackCodes[type.code];
  return type.code <= dlpack::kBool ? name + std::to_string(type.bits) : name;
}

std::string name_of_device(const DLDevice& device) {
  constexpr const char* names[] = {
      nullptr,  "CPU",    "CUDA",    "CUDA host", "OpenCL",    nullptr,     nullptr,
      "Vulkan", "Metal",  "VPI",     "ROCm",      "ROCm host", "extension", "CUDA managed memory",
      "oneAPI", "WebGPU", "Hexagon", "MAIA",      "Trainium"};
  const auto type = static_cast<size_t>(device.device_type);
  return type < std::size(names) && names[type] ? names[type] : "of type " + std::to_string(device.device_type);
}

/// What the pointer that the other library has is a member of.
template <class Managed>
struct Exported {
  Managed managed{};
  std::shared_ptr<Storage> storage;
  std::array<int64_t, kMaxDims> shape{};
  Strides strides{};
};

template <class Managed>
Exported<Managed>* exported(const Tensor& tensor) {
  TERN_CHECK(tensor.defined(), "to_dlpack: the tensor is undefined");
  TERN_CHECK(!tensor.requires_grad(),
             "to_dlpack: the tensor requires a gradient, which another library does not record; pass its detach()");
  auto result = std::make_unique<Exported<Managed>>();
  result->storage = tensor.storage();
  result->strides = tensor.strides();
  std::copy(tensor.shape().begin(), tensor.shape().end(), result->shape.begin());
  const DLPackType& type = kDLPackTypes[static_cast<int>(tensor.dtype())];
  DLTensor& out = result->managed.dl_tensor;
  out.data = tensor.numel() == 0 ? nullptr : tensor.raw_data();
  out.device = {tensor.device().is_cuda() ? dlpack::kCUDA : dlpack::kCPU, tensor.device().index};
  out.ndim = tensor.dim();
  out.dtype = {type.code, type.bits, 1};
  out.shape = result->shape.data();
  out.strides = result->strides.data();
  result->managed.manager_ctx = result.get();
  result->managed.deleter = [](Managed* self) { delete static_cast<Exported<Managed>*>(self->manager_ctx); };
  return result.release();
}

DType dtype_of_dlpack(const DLDataType& type) {
  TERN_CHECK(type.lanes == 1, "from_dlpack: elements are vectors of ", type.lanes, " ", name_of_type(type),
             " (lanes); Tern has scalars only");
  const auto* const known = std::find_if(std::begin(kDLPackTypes), std::end(kDLPackTypes), [&](const DLPackType& t) {
    return t.code == type.code && t.bits == type.bits;
  });
  TERN_CHECK(known != std::end(kDLPackTypes), "from_dlpack: Tern has no ", name_of_type(type),
             "; convert the tensor first, to float64, float32, bfloat16, float16, int64, int32, uint8 or bool");
  return known->dtype;
}

Device device_of_dlpack(const DLDevice& device) {
  const bool host = device.device_type == dlpack::kCPU || device.device_type == dlpack::kCUDAHost;
  TERN_CHECK(host || device.device_type == dlpack::kCUDA, "from_dlpack: the memory is on a device ",
             name_of_device(device), "; Tern has CPU and CUDA; copy the tensor to one of them first");
  TERN_CHECK(host || device.device_id >= 0, "from_dlpack: CUDA device ", device.device_id, " has a negative number");
  return host ? cpu : Device{DeviceType::kCUDA, device.device_id};
}

/// The work that is queued on a device may use its memory; the owner is not told of Tern's streams.
void wait_before_release(Device device) {
  if (device.is_cpu()) return;
  try {
    cuda::synchronize_device(device.index);
  } catch (const Error&) {  // the device is lost, and nothing runs on it; whoever uses it next is told
  }
}

/// A copy of elements that are not aligned: byte by byte, in one more dimension.
Tensor aligned_copy(void* data, const Shape& shape, std::vector<int64_t> strides, DType dtype, Device device) {
  TERN_CHECK(shape.dims() < kMaxDims, "from_dlpack: elements that are not aligned are copied in up to ", kMaxDims - 1,
             " dimensions, not ", shape.dims());
  const int64_t size = size_of(dtype);
  for (int64_t& stride : strides)
    TERN_CHECK(!__builtin_mul_overflow(stride, size, &stride), "from_dlpack: a stride exceeds any memory");
  strides.push_back(1);
  const Tensor bytes = from_blob(data, shape.inserted(shape.dims(), size), strides, uint8, {}, device);
  Tensor copy = empty(bytes.shape(), bytes.options());
  copy.copy_(bytes);
  wait_before_release(device);
  return from_storage(copy.storage(), 0, shape, contiguous_strides(shape), dtype);
}

template <class Managed>
Tensor imported(Managed* managed, bool read_only, DLPackCopy copy) {
  const DLTensor& in = managed->dl_tensor;
  const DType dtype = dtype_of_dlpack(in.dtype);
  const Device device = device_of_dlpack(in.device);
  require_available(device);
  TERN_CHECK(in.ndim >= 0 && in.ndim <= kMaxDims, "from_dlpack: ", in.ndim, " dimensions; Tern has up to ", kMaxDims);
  TERN_CHECK(in.ndim == 0 || in.shape, "from_dlpack: ", in.ndim, " dimensions whose sizes are a null pointer");
  const Shape shape(in.shape, in.ndim);
  Strides strides = contiguous_strides(shape);
  for (int d = 0; d < in.ndim && in.strides && shape.numel() > 0; ++d) {
    if (shape[d] == 1) continue;
    TERN_CHECK(in.strides[d] >= 0, "from_dlpack: stride ", in.strides[d], " of dimension ", d,
               " is negative, which Tern's views cannot be; copy the tensor first (numpy.ascontiguousarray)");
    strides[static_cast<size_t>(d)] = in.strides[d];
  }
  const std::vector<int64_t> steps(strides.begin(), strides.begin() + in.ndim);
  TERN_CHECK(in.data || shape.numel() == 0, "from_dlpack: the data of ", shape, " is a null pointer");
  TERN_CHECK(
      !read_only || copy != DLPackCopy::kNever,
      "from_dlpack: the memory is read-only, and a tensor of Tern can be written; DLPackCopy::kIfNeeded copies it");
  char* const data = shape.numel() == 0 ? nullptr : static_cast<char*>(in.data) + in.byte_offset;
  const bool aligned = reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(size_of(dtype)) == 0;
  if (!aligned) {
    TERN_CHECK(copy != DLPackCopy::kNever, "from_dlpack: the elements are at address ", static_cast<void*>(data),
               ", no multiple of their ", size_of(dtype), " bytes; DLPackCopy::kIfNeeded copies them");
    const Tensor result = aligned_copy(data, shape, steps, dtype, device);
    release_dlpack(managed);
    return result;
  }
  // Whatever throws before the end leaves the memory with the caller.
  const auto taken = std::make_shared<bool>(false);
  const auto release = [managed, taken, device] {
    if (!*taken) return;
    wait_before_release(device);
    release_dlpack(managed);
  };
  const Tensor shared = from_blob(data, shape, steps, dtype, release, device);
  const Tensor result = copy == DLPackCopy::kAlways || read_only ? shared.clone() : shared;
  *taken = true;
  return result;
}

}  // namespace

DLManagedTensorVersioned* to_dlpack(const Tensor& tensor) {
  auto* const result = exported<DLManagedTensorVersioned>(tensor);
  result->managed.version = {dlpack::kMajor, dlpack::kMinor};
  return &result->managed;
}

DLManagedTensor* to_dlpack_unversioned(const Tensor& tensor) { return &exported<DLManagedTensor>(tensor)->managed; }

Tensor from_dlpack(DLManagedTensorVersioned* managed, DLPackCopy copy) {
  TERN_CHECK(managed, "from_dlpack: the pointer is null");
  TERN_CHECK(managed->version.major == dlpack::kMajor, "from_dlpack: version ", managed->version.major, ".",
             managed->version.minor, " of DLPack; Tern reads ", dlpack::kMajor, ".x");
  return imported(managed, (managed->flags & dlpack::kReadOnly) != 0, copy);
}

Tensor from_dlpack(DLManagedTensor* managed, DLPackCopy copy) {
  TERN_CHECK(managed, "from_dlpack: the pointer is null");
  return imported(managed, false, copy);
}

void release_dlpack(DLManagedTensorVersioned* managed) {
  if (managed && managed->deleter) managed->deleter(managed);
}

void release_dlpack(DLManagedTensor* managed) {
  if (managed && managed->deleter) managed->deleter(managed);
}

}  // namespace tern
