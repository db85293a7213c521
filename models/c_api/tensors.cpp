// The C API's tensors: memory, DLPack, lists of named tensors.

#include <algorithm>
#include <cstring>

#include "tern/core/interop/dlpack.h"
#include "tern/core/io/state_file.h"
#include "tern/core/ops/ops.h"
#include "tern/data/datasets/digits.h"
#include "tern/models/c_api/call.h"

namespace tern::models::c_api {
namespace {

void check_bytes(const Shape& shape, DType dtype, size_t bytes, const char* argument) {
  const auto wanted = static_cast<uint64_t>(shape.numel()) * static_cast<uint64_t>(size_of(dtype));
  require(shape.numel() <= INT64_MAX / size_of(dtype) && bytes == wanted, argument, ": the shape ", shape, " of ",
          dtype, " has ", shape.numel(), " elements of ", size_of(dtype), " bytes, but ", bytes, " bytes were given");
}

/// A tensor on the host with a copy of the bytes.
Tensor copied(const Shape& shape, DType dtype, const void* data, size_t bytes) {
  require(data != nullptr || bytes == 0, "data is NULL, but there are ", bytes, " bytes");
  check_bytes(shape, dtype, bytes, "bytes");
  const Tensor made = empty(shape, {.dtype = dtype});
  if (bytes == 0) return made;
  std::memcpy(made.raw_data(), data, bytes);
  if (dtype == DType::kBool) {  // of C, where any byte may stand for true
    auto* const values = static_cast<uint8_t*>(made.raw_data());
    std::transform(values, values + bytes, values, [](uint8_t value) { return static_cast<uint8_t>(value != 0); });
  }
  return made;
}

DLPackCopy dlpack_copy(int32_t copy) {
  require(copy >= 0 && copy <= 2, "copy: expected 0 (never), 1 (where needed) or 2 (always), got ", copy);
  return copy == 0 ? DLPackCopy::kNever : copy == 1 ? DLPackCopy::kIfNeeded : DLPackCopy::kAlways;
}

const NamedTensor& entry_of(const TensorList& list, int64_t index) {
  const auto count = static_cast<int64_t>(list.tensors.size());
  require(index >= 0 && index < count, "index ", index, " is outside of the list, which has ", count, " tensors");
  return list.tensors[static_cast<size_t>(index)];
}

}  // namespace

extern "C" {

tern_code tern_tensor_new(tern_dtype dtype, const int64_t* shape, int32_t ndim, const char* device, const void* data,
                          size_t bytes, tern_tensor** tensor, tern_status* status) {
  return return_handle("tern_tensor_new", tensor, status, [&](Call&) {
    const Shape sizes = shape_of(shape, ndim);
    const TensorOptions options{.dtype = dtype_of_code(dtype), .device = device_named(device)};
    if (data == nullptr && bytes == 0) return zeros(sizes, options);
    return copied(sizes, options.dtype, data, bytes).to(options.device);
  });
}

tern_code tern_tensor_wrap(tern_dtype dtype, const int64_t* shape, int32_t ndim, void* data, size_t bytes,
                           void (*release)(void* context), void* context, tern_tensor** tensor, tern_status* status) {
  return return_handle("tern_tensor_wrap", tensor, status, [&](Call&) {
    const Shape sizes = shape_of(shape, ndim);
    const DType type = dtype_of_code(dtype);
    check_bytes(sizes, type, bytes, "bytes");
    require(data != nullptr || bytes == 0, "data is NULL");
    require(reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(size_of(type)) == 0,
            "data must be at a multiple of the ", size_of(type), " bytes of an element");
    if (type == DType::kBool)
      require(std::all_of(static_cast<uint8_t*>(data), static_cast<uint8_t*>(data) + bytes,
                          [](uint8_t v) { return v <= 1; }),
              "a byte of TERN_BOOL is neither 0 nor 1: tern_tensor_new makes a copy in which it is 1");
    if (release == nullptr) return from_blob(data, sizes, type);
    return from_blob(data, sizes, type, [release, context] { release(context); });
  });
}

tern_code tern_tensor_random(tern_dtype dtype, const int64_t* shape, int32_t ndim, const char* device, double low,
                             double high, uint64_t seed, tern_tensor** tensor, tern_status* status) {
  return return_handle("tern_tensor_random", tensor, status, [&](Call&) {
    require(low <= high, "low is ", low, ", high ", high, "; low must not be above high");
    Generator generator(seed);
    const NoGrad off;
    Tensor made =
        rand(shape_of(shape, ndim), generator, {.dtype = dtype_of_code(dtype), .device = device_named(device)});
    made.mul_(high - low).add_(low);
    return made;
  });
}

tern_code tern_tensor_free(tern_tensor* tensor) { return free_handle("tern_tensor_free", tensor, "tensor"); }

tern_code tern_tensor_from_dlpack(DLManagedTensorVersioned* managed, int32_t copy, tern_tensor** tensor,
                                  tern_status* status) {
  return return_handle("tern_tensor_from_dlpack", tensor, status, [&](Call&) {
    require(managed != nullptr, "managed is NULL");
    return from_dlpack(managed, dlpack_copy(copy));
  });
}
tern_code tern_tensor_from_dlpack_unversioned(DLManagedTensor* managed, int32_t copy, tern_tensor** tensor,
                                              tern_status* status) {
  return return_handle("tern_tensor_from_dlpack_unversioned", tensor, status, [&](Call&) {
    require(managed != nullptr, "managed is NULL");
    return from_dlpack(managed, dlpack_copy(copy));
  });
}
tern_code tern_tensor_to_dlpack(tern_tensor* tensor, DLManagedTensorVersioned** managed, tern_status* status) {
  if (managed != nullptr) *managed = nullptr;
  return return_value("tern_tensor_to_dlpack", managed, status,
                      [&](Call& call) { return to_dlpack(call.tensor(tensor, "tensor")); });
}
tern_code tern_tensor_to_dlpack_unversioned(tern_tensor* tensor, DLManagedTensor** managed, tern_status* status) {
  if (managed != nullptr) *managed = nullptr;
  return return_value("tern_tensor_to_dlpack_unversioned", managed, status,
                      [&](Call& call) { return to_dlpack_unversioned(call.tensor(tensor, "tensor")); });
}

tern_code tern_tensor_dtype(tern_tensor* tensor, tern_dtype* dtype, tern_status* status) {
  return return_value("tern_tensor_dtype", dtype, status,
                      [&](Call& call) { return code_of_dtype(call.tensor(tensor, "tensor").dtype()); });
}
tern_code tern_tensor_ndim(tern_tensor* tensor, int32_t* ndim, tern_status* status) {
  return return_value("tern_tensor_ndim", ndim, status,
                      [&](Call& call) { return static_cast<int32_t>(call.tensor(tensor, "tensor").dim()); });
}
tern_code tern_tensor_shape(tern_tensor* tensor, int64_t* shape, int32_t capacity, int32_t* ndim, tern_status* status) {
  return run_call("tern_tensor_shape", status, [&](Call& call) {
    const Shape& sizes = call.tensor(tensor, "tensor").shape();
    require(capacity >= sizes.dims(), "capacity is ", capacity, ", but the tensor has ", sizes.dims(), " dimensions");
    require(shape != nullptr || sizes.dims() == 0, "shape is NULL");
    std::copy(sizes.begin(), sizes.end(), shape);
    if (ndim != nullptr) *ndim = sizes.dims();
  });
}
tern_code tern_tensor_numel(tern_tensor* tensor, int64_t* count, tern_status* status) {
  return return_value("tern_tensor_numel", count, status,
                      [&](Call& call) { return call.tensor(tensor, "tensor").numel(); });
}
tern_code tern_tensor_device(tern_tensor* tensor, const char** device, tern_status* status) {
  if (device != nullptr) *device = nullptr;
  return return_value("tern_tensor_device", device, status, [&](Call& call) {
    Slot& slot = call.use(tensor, HandleKind::kTensor, "tensor");
    if (slot.device.empty()) slot.device = slot.tensor.device().str();
    return slot.device.c_str();
  });
}
tern_code tern_tensor_data(tern_tensor* tensor, void** data, tern_status* status) {
  if (data != nullptr) *data = nullptr;
  return return_value("tern_tensor_data", data, status, [&](Call& call) {
    const Tensor& x = call.tensor(tensor, "tensor");
    TERN_CHECK(
        x.is_contiguous(), "the elements of this tensor, ", x.describe(),
        ", do not lie one after another: read them by tern_tensor_read, or take the data of a tern_tensor_clone");
    return x.raw_data();
  });
}
tern_code tern_tensor_read(tern_tensor* tensor, tern_dtype dtype, void* buffer, size_t bytes, tern_status* status) {
  return run_call("tern_tensor_read", status, [&](Call& call) {
    const Tensor& x = call.tensor(tensor, "tensor");
    const DType type = dtype_of_code(dtype);
    require(buffer != nullptr || bytes == 0, "buffer is NULL");
    check_bytes(x.shape(), type, bytes, "bytes");
    const NoGrad off;
    const Tensor values = x.detach().to(type).to(cpu).contiguous();
    if (bytes != 0) std::memcpy(buffer, values.raw_data(), bytes);
  });
}
tern_code tern_tensor_write(tern_tensor* tensor, tern_dtype dtype, const void* data, size_t bytes,
                            tern_status* status) {
  return run_call("tern_tensor_write", status, [&](Call& call) {
    Tensor x = call.tensor(tensor, "tensor");
    const NoGrad off;
    x.copy_(copied(x.shape(), dtype_of_code(dtype), data, bytes));
  });
}
tern_code tern_tensor_item(tern_tensor* tensor, double* value, tern_status* status) {
  return return_value("tern_tensor_item", value, status,
                      [&](Call& call) { return call.tensor(tensor, "tensor").item<double>(); });
}
tern_code tern_tensor_to(tern_tensor* tensor, const char* device, tern_dtype dtype, tern_tensor** result,
                         tern_status* status) {
  return return_handle("tern_tensor_to", result, status, [&](Call& call) {
    Tensor x = call.tensor(tensor, "tensor");
    if (dtype != TERN_DTYPE_DEFAULT) x = x.to(dtype_of_code(dtype));
    return device == nullptr ? x : x.to(device_named(device));
  });
}
tern_code tern_tensor_clone(tern_tensor* tensor, tern_tensor** result, tern_status* status) {
  return return_handle("tern_tensor_clone", result, status,
                       [&](Call& call) { return call.tensor(tensor, "tensor").clone(); });
}
tern_code tern_tensor_detach(tern_tensor* tensor, tern_tensor** result, tern_status* status) {
  return return_handle("tern_tensor_detach", result, status,
                       [&](Call& call) { return call.tensor(tensor, "tensor").detach(); });
}

tern_code tern_tensors_new(tern_tensors** list, tern_status* status) {
  return return_handle("tern_tensors_new", list, status, [](Call&) { return std::make_unique<TensorList>(); });
}
tern_code tern_tensors_add(tern_tensors* list, const char* name, tern_tensor* tensor, tern_status* status) {
  return run_call("tern_tensors_add", status, [&](Call& call) {
    StateView& tensors = call.content(list, "list").tensors;
    const Tensor& added = call.tensor(tensor, "tensor");
    const std::string text = text_of(name, "name");
    require(!text.empty(), "name is empty");
    require(!find(tensors, text).defined(), "the list has a tensor '", text, "' already");
    tensors.push_back({text, added});
  });
}
tern_code tern_tensors_count(tern_tensors* list, int64_t* count, tern_status* status) {
  return return_value("tern_tensors_count", count, status,
                      [&](Call& call) { return static_cast<int64_t>(call.content(list, "list").tensors.size()); });
}
tern_code tern_tensors_name(tern_tensors* list, int64_t index, const char** name, tern_status* status) {
  if (name != nullptr) *name = nullptr;
  return return_value("tern_tensors_name", name, status,
                      [&](Call& call) { return entry_of(call.content(list, "list"), index).name.c_str(); });
}
tern_code tern_tensors_get(tern_tensors* list, int64_t index, tern_tensor** tensor, tern_status* status) {
  return return_handle("tern_tensors_get", tensor, status,
                       [&](Call& call) { return entry_of(call.content(list, "list"), index).tensor; });
}
tern_code tern_tensors_find(tern_tensors* list, const char* name, tern_tensor** tensor, tern_status* status) {
  return return_handle("tern_tensors_find", tensor, status, [&](Call& call) {
    Tensor found = find(call.content(list, "list").tensors, text_of(name, "name"));
    TERN_CHECK(found.defined(), "the list has no tensor '", name, "'");
    return found;
  });
}
tern_code tern_tensors_load(const char* path, tern_tensors** list, tern_status* status) {
  return return_handle("tern_tensors_load", list, status, [&](Call&) {
    auto made = std::make_unique<TensorList>();
    StateFile file = load_state_file(text_of(path, "path"), {.whole = true});
    if (!file.unreadable.empty())
      fail(file.path, ": the tensor '", file.unreadable.front().name,
           "' cannot be read: ", file.unreadable.front().reason);
    made->tensors = std::move(file.tensors);
    return made;
  });
}
tern_code tern_tensors_save(tern_tensors* list, const char* path, tern_status* status) {
  return run_call("tern_tensors_save", status,
                  [&](Call& call) { save_safetensors(call.content(list, "list").tensors, text_of(path, "path")); });
}
tern_code tern_tensors_free(tern_tensors* list) { return free_handle("tern_tensors_free", list, "list"); }

tern_code tern_digits(const char* part, tern_tensor** pixels, tern_tensor** classes, tern_status* status) {
  if (pixels != nullptr) *pixels = nullptr;
  if (classes != nullptr) *classes = nullptr;
  return run_call("tern_digits", status, [&](Call&) {
    require(pixels != nullptr && classes != nullptr, "a pointer for a result is NULL");
    tern_tensor* made[2] = {};
    const auto tensors = data::digits(text_of(part, "part")).tensors();
    give_handles({tensors[0], tensors[1]}, made);
    *pixels = made[0];
    *classes = made[1];
  });
}
tern_code tern_device_available(const char* device, int32_t* available, tern_status* status) {
  return return_value("tern_device_available", available, status, [&](Call&) {
    const Device wanted = device_named(device);
    try {
      require_available(wanted);
      return 1;
    } catch (const Error&) {
      return 0;
    }
  });
}

}  // extern "C"
}  // namespace tern::models::c_api
