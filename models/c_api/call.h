#pragma once
// The frame of the C API's calls (tern_c.h): handles, which are numbers that name slots of a table, and what becomes of
// errors.
//
// A slot's memory is never freed, so that a handle that was freed, or never was one, is found out by looking at it.

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/tensor.h"
#include "tern/tern_c.h"

namespace tern::models::c_api {

/// The error of a call, other than those of Tern itself.
struct Refusal {
  tern_code code;
  std::string message;
};
template <class... Parts>
[[noreturn]] void refuse(tern_code code, const Parts&... parts) {
  throw Refusal{code, tern::detail::concatenate(parts...)};
}
template <class... Parts>
void require(bool condition, const Parts&... parts) {
  if (!condition) refuse(TERN_ERROR_ARGUMENT, parts...);
}

/// What a handle stands for, unless it is a tensor.
struct Object {
  virtual ~Object() = default;
};
struct Report final : Object {
  tern_code code = TERN_OK;
  std::string message;
};
struct TensorList final : Object {
  StateView tensors;
};
struct ModelHandle;
struct OptimizerHandle;

enum class HandleKind : uint8_t { kNone, kStatus, kTensor, kTensors, kModel, kOptimizer };

template <class Handle>
struct KindOf;
template <>
struct KindOf<tern_status> {
  static constexpr HandleKind kKind = HandleKind::kStatus;
  using Content = Report;
};
template <>
struct KindOf<tern_tensor> {
  static constexpr HandleKind kKind = HandleKind::kTensor;
  using Content = Tensor;
};
template <>
struct KindOf<tern_tensors> {
  static constexpr HandleKind kKind = HandleKind::kTensors;
  using Content = TensorList;
};
template <>
struct KindOf<tern_model> {
  static constexpr HandleKind kKind = HandleKind::kModel;
  using Content = ModelHandle;
};
template <>
struct KindOf<tern_optimizer> {
  static constexpr HandleKind kKind = HandleKind::kOptimizer;
  using Content = OptimizerHandle;
};

class Call;

struct Slot {
  std::atomic<const Call*> user = nullptr;  // the call that uses it; the members below are read by that alone
  std::atomic<uint32_t> generation = 1;     // how often the slot was used, which is part of the handle
  HandleKind kind = HandleKind::kNone;
  uint32_t index = 0;
  Tensor tensor;
  std::unique_ptr<Object> object;
  std::string device;    // what tern_tensor_device() returned
  Slot* next = nullptr;  // of the unused ones
};

/// New handles.
tern_tensor* new_handle(Tensor tensor);
void* new_handle(HandleKind kind, std::unique_ptr<Object> object);
/// Of a list; undefined tensors become NULL. All or, after an exception, none.
void give_handles(std::vector<Tensor> tensors, tern_tensor** results);

/// One call, on its thread. Ends the use of what it used.
class Call {
 public:
  Call() = default;
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  /// The slot of a handle, used by this call until it ends. Throws Refusal when it is NULL, is no handle of the kind,
  /// or is used by another thread. argument: the parameter's name, for the message.
  Slot& use(const void* handle, HandleKind kind, const char* argument);
  template <class Handle>
  auto& content(Handle* handle, const char* argument) {
    using Content = typename KindOf<Handle>::Content;
    Slot& slot = use(handle, KindOf<Handle>::kKind, argument);
    if constexpr (std::is_same_v<Content, Tensor>)
      return std::as_const(slot.tensor);
    else
      return static_cast<Content&>(*slot.object);
  }
  const Tensor& tensor(tern_tensor* handle, const char* argument) { return content(handle, argument); }
  /// Undefined for NULL.
  Tensor optional_tensor(tern_tensor* handle, const char* argument) {
    return handle == nullptr ? Tensor() : tensor(handle, argument);
  }
  /// A list, of which NULL is no entry unless null_allowed.
  std::vector<Tensor> tensors(tern_tensor* const* handles, int32_t count, const char* argument,
                              bool null_allowed = false);
  /// Takes what several handles share; throws Refusal when another thread uses it.
  void take(std::atomic<const Call*>& user, const char* argument);

  /// Ends a handle of the kind and what it holds.
  void release(void* handle, HandleKind kind, const char* argument);

 private:
  void hold(std::atomic<const Call*>& user);
  std::array<std::atomic<const Call*>*, 8> held_;
  size_t count_ = 0;
  std::vector<std::atomic<const Call*>*> more_;
};

/// Whether this thread's calls record gradients.
bool& records_gradients();
/// Writes the exception that is being handled into the report, which may be null. Returns its code.
tern_code failed(const char* function, Report* report) noexcept;
/// The status's report, used by the call; null without one. Anything but TERN_OK: the status is no handle, or is used.
tern_code take_status(Call& call, tern_status* status, Report** report) noexcept;

/// Runs body(call), and says in status how it ended. function: for messages.
template <class Body>
tern_code run_call(const char* function, tern_status* status, const Body& body) noexcept {
  Call call;
  Report* report = nullptr;
  if (const tern_code code = take_status(call, status, &report); code != TERN_OK) return code;
  try {
    const GradMode mode(grad_enabled() && records_gradients());
    body(call);
  } catch (...) {
    return failed(function, report);
  }
  if (report != nullptr && report->code != TERN_OK) {
    report->code = TERN_OK;
    report->message.clear();
  }
  return TERN_OK;
}

/// For calls that return a handle: *result becomes what body(call) returns, a Tensor or what the handle stands for.
template <class Handle, class Body>
tern_code return_handle(const char* function, Handle** result, tern_status* status, const Body& body) noexcept {
  if (result != nullptr) *result = nullptr;
  return run_call(function, status, [&](Call& call) {
    require(result != nullptr, "the pointer for the result is NULL");
    if constexpr (std::is_same_v<Handle, tern_tensor>)
      *result = new_handle(body(call));
    else
      *result = static_cast<Handle*>(new_handle(KindOf<Handle>::kKind, body(call)));
  });
}
/// For calls that return several tensors, of which undefined ones become NULL. body returns `count` of them.
template <class Body>
tern_code return_tensors(const char* function, tern_tensor** results, int32_t count, tern_status* status,
                         const Body& body) noexcept {
  for (int32_t i = 0; results != nullptr && i < count; ++i) results[i] = nullptr;
  return run_call(function, status, [&](Call& call) {
    require(count >= 0 && (results != nullptr || count == 0), "the array for ", count,
            " results is NULL, or the count negative");
    give_handles(body(call), results);
  });
}
/// For calls that return a number.
template <class T, class Body>
tern_code return_value(const char* function, T* result, tern_status* status, const Body& body) noexcept {
  return run_call(function, status, [&](Call& call) {
    require(result != nullptr, "the pointer for the result is NULL");
    *result = body(call);
  });
}
template <class Handle>
tern_code free_handle(const char* function, Handle* handle, const char* argument) noexcept {
  if (handle == nullptr) return TERN_OK;
  return run_call(function, nullptr, [&](Call& call) { call.release(handle, KindOf<Handle>::kKind, argument); });
}

// Arguments.
DType dtype_of_code(tern_dtype dtype);
tern_dtype code_of_dtype(DType dtype);
Device device_named(const char* device);  // NULL: the CPU
Shape shape_of(const int64_t* sizes, int32_t dims);
const char* text_of(const char* text, const char* argument);
std::vector<int> dims_of(const int32_t* dims, int32_t count, const char* argument);
bool flag_of(int32_t value, const char* argument);

/// Options of C with `size` first; all zeros for NULL. Throws Refusal when the size is that of no version.
template <class Options>
Options options_of(const Options* options, const char* name) {
  if (options == nullptr) return {};
  if (options->size != sizeof(Options))
    refuse(TERN_ERROR_VERSION, name, ".size is ", options->size, ", but ", name, " has ", sizeof(Options),
           " bytes in version ", TERN_C_API_VERSION, " of the C API: set it to sizeof(", name,
           "), and use the tern_c.h and the libtern of one version");
  return *options;
}

}  // namespace tern::models::c_api
