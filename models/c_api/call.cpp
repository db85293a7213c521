#include "tern/models/c_api/call.h"

#include <mutex>
#include <new>
#include <thread>

namespace tern::models::c_api {
namespace {

constexpr uint32_t kSlotsOfChunk = 1024, kMostChunks = 1 << 14;

// Constant-initialised and never destroyed: calls may come before main() and after it.
constinit std::array<std::atomic<Slot*>, kMostChunks> slot_chunks{};
constinit std::mutex slot_mutex;
constinit Slot* unused_slots = nullptr;
constinit uint32_t slot_count = 0;

static_assert(sizeof(void*) == 8, "a handle holds a place and a count of 32 bits each");

void* handle_of(const Slot& slot) {
  const uint64_t generation = slot.generation.load(std::memory_order_relaxed);
  return reinterpret_cast<void*>(static_cast<uintptr_t>(generation << 32 | (slot.index + 1)));
}

Slot* slot_of(const void* handle) {
  const auto place = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(handle)) - 1;  // none for 0
  if (place / kSlotsOfChunk >= kMostChunks) return nullptr;
  Slot* const chunk = slot_chunks[place / kSlotsOfChunk].load(std::memory_order_acquire);
  return chunk == nullptr ? nullptr : chunk + place % kSlotsOfChunk;
}

bool is_generation(const Slot& slot, const void* handle) {
  return slot.generation.load(std::memory_order_acquire) == reinterpret_cast<uintptr_t>(handle) >> 32;
}

Slot& unused_slot() {
  const std::lock_guard lock(slot_mutex);
  if (unused_slots == nullptr) {
    const uint32_t chunk = slot_count / kSlotsOfChunk;
    if (chunk == kMostChunks)
      refuse(TERN_ERROR_MEMORY, "there are ", slot_count,
             " handles, and no more can be made: free those that are not needed");
    Slot* const slots = new Slot[kSlotsOfChunk];
    for (uint32_t i = kSlotsOfChunk; i-- > 0;) {
      slots[i].index = slot_count + i;
      slots[i].next = std::exchange(unused_slots, &slots[i]);
    }
    slot_count += kSlotsOfChunk;
    slot_chunks[chunk].store(slots, std::memory_order_release);
  }
  return *std::exchange(unused_slots, unused_slots->next);
}

/// A handle on an unused slot that fill(slot) fills. A call with a handle of the slot's past may look at it meanwhile.
template <class Fill>
void* filled_slot(HandleKind kind, const Fill& fill) {
  Slot& slot = unused_slot();
  Call maker;
  for (const Call* user = nullptr; !slot.user.compare_exchange_weak(user, &maker, std::memory_order_acquire);
       user = nullptr)
    std::this_thread::yield();
  slot.kind = kind;
  fill(slot);
  void* const handle = handle_of(slot);
  slot.user.store(nullptr, std::memory_order_release);
  return handle;
}

const char* kind_name(HandleKind kind) {
  switch (kind) {
    case HandleKind::kStatus:
      return "tern_status";
    case HandleKind::kTensor:
      return "tern_tensor";
    case HandleKind::kTensors:
      return "tern_tensors";
    case HandleKind::kModel:
      return "tern_model";
    case HandleKind::kOptimizer:
      return "tern_optimizer";
    case HandleKind::kNone:
      break;
  }
  return "handle that was freed";
}

void write_report(Report* report, tern_code code, const char* function, const char* message) noexcept {
  if (report == nullptr) return;
  report->code = code;
  try {
    report->message = std::string(function) + ": " + message;
  } catch (const std::bad_alloc&) {
    report->message.clear();
  }
}

}  // namespace

tern_tensor* new_handle(Tensor tensor) {
  return static_cast<tern_tensor*>(
      filled_slot(HandleKind::kTensor, [&](Slot& slot) { slot.tensor = std::move(tensor); }));
}

void* new_handle(HandleKind kind, std::unique_ptr<Object> object) {
  return filled_slot(kind, [&](Slot& slot) { slot.object = std::move(object); });
}

void give_handles(std::vector<Tensor> tensors, tern_tensor** results) {
  size_t i = 0;
  try {
    for (; i < tensors.size(); ++i)
      if (tensors[i].defined()) results[i] = new_handle(std::move(tensors[i]));
  } catch (...) {
    Call call;
    for (size_t k = 0; k < i; ++k)
      if (results[k] != nullptr) call.release(std::exchange(results[k], nullptr), HandleKind::kTensor, "results");
    throw;
  }
}

Call::~Call() {
  for (size_t i = 0; i < count_; ++i) held_[i]->store(nullptr, std::memory_order_release);
  for (std::atomic<const Call*>* user : more_) user->store(nullptr, std::memory_order_release);
}

void Call::hold(std::atomic<const Call*>& user) {
  if (count_ < held_.size()) {
    held_[count_++] = &user;
    return;
  }
  try {
    more_.push_back(&user);
  } catch (...) {
    user.store(nullptr, std::memory_order_release);
    throw;
  }
}

void Call::take(std::atomic<const Call*>& user, const char* argument) {
  const Call* other = nullptr;
  if (user.compare_exchange_strong(other, this, std::memory_order_acquire)) return hold(user);
  if (other != this)
    refuse(TERN_ERROR_BUSY, argument,
           " is in use by a call of another thread: a handle is used by one thread at a time (lock a mutex around it)");
}

Slot& Call::use(const void* handle, HandleKind kind, const char* argument) {
  require(handle != nullptr, argument, " is NULL");
  Slot* const slot = slot_of(handle);
  if (slot == nullptr) refuse(TERN_ERROR_HANDLE, argument, " is no handle, but some other pointer");
  if (is_generation(*slot, handle)) {
    take(slot->user, argument);
    if (is_generation(*slot, handle)) {
      if (slot->kind == kind) return *slot;
      refuse(TERN_ERROR_HANDLE, argument, " is a ", kind_name(slot->kind), "; expected a ", kind_name(kind));
    }
  }
  refuse(TERN_ERROR_HANDLE, argument, " is a handle that was freed, or none");
}

std::vector<Tensor> Call::tensors(tern_tensor* const* handles, int32_t count, const char* argument, bool null_allowed) {
  require(count >= 0, "the count of ", argument, " is ", count);
  require(handles != nullptr || count == 0, argument, " is NULL");
  std::vector<Tensor> found;
  found.reserve(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) {
    require(handles[i] != nullptr || null_allowed, argument, "[", i, "] is NULL");
    found.push_back(optional_tensor(handles[i], argument));
  }
  return found;
}

void Call::release(void* handle, HandleKind kind, const char* argument) {
  Slot& slot = use(handle, kind, argument);
  {
    const Tensor tensor = std::exchange(slot.tensor, Tensor());
    const std::unique_ptr<Object> object = std::move(slot.object);
    slot.device.clear();
    slot.kind = HandleKind::kNone;
    slot.generation.fetch_add(1, std::memory_order_release);
  }
  const std::lock_guard lock(slot_mutex);
  slot.next = std::exchange(unused_slots, &slot);
}

bool& records_gradients() {
  thread_local constinit bool records = true;
  return records;
}

tern_code failed(const char* function, Report* report) noexcept {
  const auto say = [&](tern_code code, const char* message) {
    write_report(report, code, function, message);
    return code;
  };
  try {
    throw;
  } catch (const Refusal& refusal) {
    return say(refusal.code, refusal.message.c_str());
  } catch (const OutOfMemoryError& error) {
    return say(TERN_ERROR_MEMORY, error.what());
  } catch (const Error& error) {
    return say(TERN_ERROR_FAILED, error.what());
  } catch (const std::bad_alloc&) {
    return say(TERN_ERROR_MEMORY, "no memory is left");
  } catch (const std::exception& error) {
    return say(TERN_ERROR_INTERNAL, error.what());
  } catch (...) {
    return say(TERN_ERROR_INTERNAL, "an exception of unknown type");
  }
}

tern_code take_status(Call& call, tern_status* status, Report** report) noexcept {
  if (status == nullptr) return TERN_OK;
  try {
    *report = &call.content(status, "status");
    return TERN_OK;
  } catch (...) {
    return failed("", nullptr);
  }
}

DType dtype_of_code(tern_dtype dtype) {
  require(dtype >= TERN_FLOAT64 && dtype <= TERN_BOOL, "dtype: expected one of TERN_FLOAT64 (1) to TERN_BOOL (8), got ",
          dtype);
  return static_cast<DType>(dtype - TERN_FLOAT64);
}
tern_dtype code_of_dtype(DType dtype) { return TERN_FLOAT64 + static_cast<tern_dtype>(dtype); }
static_assert(static_cast<int>(DType::kFloat64) == 0 && static_cast<int>(DType::kFloat32) == 1 &&
              static_cast<int>(DType::kBFloat16) == 2 && static_cast<int>(DType::kFloat16) == 3 &&
              static_cast<int>(DType::kInt64) == 4 && static_cast<int>(DType::kInt32) == 5 &&
              static_cast<int>(DType::kUInt8) == 6 && static_cast<int>(DType::kBool) == 7);

Device device_named(const char* device) { return device == nullptr ? cpu : parse_device(device); }

Shape shape_of(const int64_t* sizes, int32_t dims) {
  require(dims >= 0 && dims <= kMaxDims, "ndim: expected 0 to ", kMaxDims, ", got ", dims);
  require(sizes != nullptr || dims == 0, "shape is NULL");
  return Shape(sizes, dims);
}

const char* text_of(const char* text, const char* argument) {
  require(text != nullptr, argument, " is NULL");
  return text;
}

std::vector<int> dims_of(const int32_t* dims, int32_t count, const char* argument) {
  require(count >= 0 && count <= kMaxDims, "the count of ", argument, ": expected 0 to ", kMaxDims, ", got ", count);
  require(dims != nullptr || count == 0, argument, " is NULL");
  return count == 0 ? std::vector<int>() : std::vector<int>(dims, dims + count);
}

bool flag_of(int32_t value, const char* argument) {
  require(value == 0 || value == 1, argument, ": expected 0 or 1, got ", value);
  return value == 1;
}

extern "C" {

int32_t tern_c_api_version(void) { return TERN_C_API_VERSION; }

tern_code tern_check_version(int32_t version, tern_status* status) {
  return run_call("tern_check_version", status, [&](Call&) {
    if (version < 1 || version > TERN_C_API_VERSION)
      refuse(TERN_ERROR_VERSION, "the program was compiled for version ", version,
             " of the C API, this library has 1 to ", TERN_C_API_VERSION,
             ": install the libtern of the tern_c.h, or compile the program again");
  });
}

const char* tern_code_name(tern_code code) {
  constexpr const char* kNames[] = {"TERN_OK",           "TERN_ERROR_ARGUMENT", "TERN_ERROR_HANDLE",
                                    "TERN_ERROR_BUSY",   "TERN_ERROR_VERSION",  "TERN_ERROR_FAILED",
                                    "TERN_ERROR_MEMORY", "TERN_ERROR_INTERNAL"};
  return code >= TERN_OK && code <= TERN_ERROR_INTERNAL ? kNames[code] : "unknown";
}

tern_status* tern_status_new(void) {
  tern_status* status = nullptr;
  run_call("tern_status_new", nullptr, [&](Call&) {
    status = static_cast<tern_status*>(new_handle(HandleKind::kStatus, std::make_unique<Report>()));
  });
  return status;
}

tern_code tern_status_code(tern_status* status) {
  tern_code code = TERN_OK;
  const tern_code failure =
      run_call("tern_status_code", nullptr, [&](Call& call) { code = call.content(status, "status").code; });
  return failure != TERN_OK ? failure : code;
}

const char* tern_status_message(tern_status* status) {
  const char* message = nullptr;
  const tern_code failure = run_call("tern_status_message", nullptr,
                                     [&](Call& call) { message = call.content(status, "status").message.c_str(); });
  if (failure == TERN_OK) return message;
  return failure == TERN_ERROR_BUSY ? "the status is in use by another thread"
                                    : "tern_status_message: this is no tern_status";
}

tern_code tern_status_free(tern_status* status) { return free_handle("tern_status_free", status, "status"); }

}  // extern "C"

}  // namespace tern::models::c_api
