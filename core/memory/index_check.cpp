#include "tern/core/memory/index_check.h"

#include <array>
#include <cstring>
#include <mutex>
#include <new>

#include "tern/core/memory/allocator.h"
#include "tern/kernels/base/check.h"

namespace tern {
namespace {

constexpr size_t kMaxOps = 64;

/// The records of one device, one for every op that checks indices, in pinned memory at a fixed address, because the
/// kernels of a captured step write to it at every replay.
class FaultTable {
 public:
  kernels::IndexFault* record(const char* op) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!records_) make();
    size_t i = 0;
    while (i < count_ && std::strcmp(ops_[i], op) != 0) ++i;
    TERN_CHECK(i < kMaxOps, "index check: more than ", kMaxOps, " ops check their indices");
    if (i == count_) ops_[count_++] = op;
    return records_ + i;
  }

  void check(Device device) {
    std::lock_guard<std::mutex> lock(mutex_);
    std::string text;
    for (size_t i = 0; i < count_; ++i) {
      if (records_[i].count == 0) continue;
      text += detail::concatenate(text.empty() ? "" : "; ", ops_[i], ": ", records_[i].count,
                                  " indices are outside their range (the first at position ", records_[i].first, ")");
      records_[i] = {};
    }
    TERN_CHECK(text.empty(), text, "; found on ", device, " after the op had been queued, its results are not valid");
  }

 private:
  void make() {
    void* memory = pinned_allocator().allocate(static_cast<int64_t>(kMaxOps * sizeof(kernels::IndexFault)));
    auto* records = static_cast<kernels::IndexFault*>(memory);
    for (size_t i = 0; i < kMaxOps; ++i) new (records + i) kernels::IndexFault();
    records_ = records;
  }

  std::mutex mutex_;
  kernels::IndexFault* records_ = nullptr;
  std::array<const char*, kMaxOps> ops_ = {};
  size_t count_ = 0;
};

FaultTable& table(Device device) {
  static auto* tables = new std::array<FaultTable, kernels::kMaxDevices>;  // static tensors may outlive main
  return (*tables)[static_cast<size_t>(device.index)];
}

}  // namespace

IndexCheck::IndexCheck(const char* op, Device device) : record_(device.is_cpu() ? &host_ : table(device).record(op)) {}

void check_index_faults(Device device) {
  if (device.is_cuda()) table(device).check(device);
}

}  // namespace tern
