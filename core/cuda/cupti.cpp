#include "tern/core/cuda/cupti.h"

#include <cstdint>
#include <string>

#include "tern/core/profiler/device_profiler.h"
#include "tern/kernels/base/check.h"

namespace tern::cuda {

kernels::cuda::SharedLibrary& cupti_library() {
  static auto& instance = *new kernels::cuda::SharedLibrary(  // never destroyed: CUPTI's threads outlive main()
      {"CUPTI",
       "the times of kernels in --profile",
       {"libcupti.so.13", "libcupti.so.12", "libcupti.so"},
       "package cuda-cupti-13-0",
       "TERN_CUPTI",
       "cuptiGetVersion",
       [](void* probe) {
         uint32_t version = 0;
         reinterpret_cast<int (*)(uint32_t*)>(probe)(&version);
         return "API " + std::to_string(version);
       }});
  return instance;
}

}  // namespace tern::cuda

#if __has_include(<cupti.h>)

#include <cupti.h>
#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace tern::cuda {

namespace {

constexpr size_t kBufferBytes = size_t{4} << 20;
constexpr size_t kMaxActivities = 2000000;
constexpr CUpti_ExternalCorrelationKind kRanges = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
// Calls are enabled because CUPTI needs them to connect our ranges; their records are dropped.
constexpr CUpti_ActivityKind kKinds[] = {
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET,
    CUPTI_ACTIVITY_KIND_RUNTIME,           CUPTI_ACTIVITY_KIND_DRIVER, CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION};

/// The library's functions, named without "cupti".
struct Functions {
  TERN_LIBRARY_FUNCTION(cupti_library(), cupti, GetVersion);
  TERN_LIBRARY_FUNCTION(cupti_library(), cupti, GetTimestamp);
  TERN_LIBRARY_FUNCTION(cupti_library(), cupti, ActivityRegisterCallbacks);
  TERN_LIBRARY_FUNCTION(cupti_library(), cupti, ActivityEnable);
  TERN_LIBRARY_FUNCTION(cupti_library(), cupti, ActivityDisable);
  TERN_LIBRARY_FUNCTION(cupti_library(), cupti, ActivityFlushAll);
  TERN_LIBRARY_FUNCTION(cupti_library(), cupti, ActivityGetNextRecord);
  TERN_LIBRARY_FUNCTION(cupti_library(), cupti, ActivityPushExternalCorrelationId);
  TERN_LIBRARY_FUNCTION(cupti_library(), cupti, ActivityPopExternalCorrelationId);
};

/// Throws Error when the library is missing or lacks one of them.
const Functions& library() {
  static const Functions instance{};
  return instance;
}

/// Whether the library is of the headers' version: within a major version records only grow at their ends.
bool library_fits() {
  try {
    uint32_t version = 0;
    return library().GetVersion(&version) == CUPTI_SUCCESS && version >= CUPTI_API_VERSION &&
           version / 10000 == CUPTI_API_VERSION / 10000;
  } catch (const Error&) {
    return false;
  }
}

/// A kernel, copy or fill on the device.
struct Activity {
  std::string name;
  uint64_t begin = 0, end = 0;  // in CUPTI's clock
  uint32_t device = 0, stream = 0, correlation = 0;
};

/// The contents of the buffers, written by CUPTI's threads.
struct Collected {
  std::mutex mutex;
  std::vector<Activity> activities;
  std::unordered_map<uint32_t, uint64_t> range_of;            // by correlation id
  std::unordered_map<const char*, std::string> kernel_names;  // demangled
};

Collected& collected() {
  static Collected* const instance = new Collected;  // CUPTI may call after main
  return *instance;
}

std::string demangled(const char* name) {
  if (!name) return "kernel";
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free);
  return status == 0 ? text.get() : name;
}

const char* copy_name(uint8_t kind) {
  return kind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD   ? "copy host to device"
         : kind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH ? "copy device to host"
         : kind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOD ? "copy on device"
                                                   : "copy";
}

template <class Record>
Activity activity(std::string name, const Record& r) {
  return {std::move(name), r.start, r.end, r.deviceId, r.streamId, r.correlationId};
}

void take(Collected& all, const CUpti_Activity* record) {
  if (record->kind == CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION) {
    const auto& r = *reinterpret_cast<const CUpti_ActivityExternalCorrelation*>(record);
    if (r.externalKind == kRanges) all.range_of[r.correlationId] = r.externalId;
    return;
  }
  if (all.activities.size() >= kMaxActivities) return;
  if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL || record->kind == CUPTI_ACTIVITY_KIND_KERNEL) {
    const auto& r = *reinterpret_cast<const CUpti_ActivityKernel10*>(record);
    std::string& name = all.kernel_names[r.name];
    if (name.empty()) name = demangled(r.name);
    all.activities.push_back(activity(name, r));
  } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
    const auto& r = *reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
    all.activities.push_back(activity(copy_name(r.copyKind), r));
  } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
    const auto& r = *reinterpret_cast<const CUpti_ActivityMemset4*>(record);
    all.activities.push_back(activity("fill", r));
  }
}

void CUPTIAPI buffer_requested(uint8_t** buffer, size_t* size, size_t* max_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(64, kBufferBytes));
  *size = *buffer ? kBufferBytes : 0;
  *max_records = 0;  // no limit
}

void CUPTIAPI buffer_completed(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  {
    Collected& all = collected();
    const std::lock_guard lock(all.mutex);
    CUpti_Activity* record = nullptr;
    while (valid > 0 && library().ActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) take(all, record);
  }
  std::free(buffer);
}

class CuptiProfiler final : public DeviceProfiler {
 public:
  explicit CuptiProfiler(std::function<void()> synchronize) : synchronize_(std::move(synchronize)) {}
  ~CuptiProfiler() override { disable(); }

  /// False when CUPTI returns an error.
  bool enable() {
    if (library().ActivityRegisterCallbacks(buffer_requested, buffer_completed) != CUPTI_SUCCESS) return false;
    for (const CUpti_ActivityKind kind : kKinds) {
      if (library().ActivityEnable(kind) != CUPTI_SUCCESS) {
        disable();
        return false;
      }
      enabled_.push_back(kind);
    }
    return true;
  }

  void start(int64_t (*clock)()) override {
    synchronize_();
    library().ActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    clear();
    // CUPTI's clock is read between two readings of ours.
    const int64_t before = clock();
    uint64_t theirs = 0;
    library().GetTimestamp(&theirs);
    offset_ = before + (clock() - before) / 2 - static_cast<int64_t>(theirs);
    begin_ = theirs;
  }

  void open(uint64_t range) override { library().ActivityPushExternalCorrelationId(kRanges, range); }
  void close(uint64_t) override {
    uint64_t last = 0;
    library().ActivityPopExternalCorrelationId(kRanges, &last);
  }

  detail::DeviceTimeline finish() override {
    synchronize_();
    library().ActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    disable();
    detail::DeviceTimeline timeline;
    timeline.source = "CUPTI";
    Collected& all = collected();
    const std::lock_guard lock(all.mutex);
    std::stable_sort(all.activities.begin(), all.activities.end(),
                     [](const Activity& a, const Activity& b) { return a.begin < b.begin; });
    Lanes lanes;
    for (Activity& a : all.activities) {
      if (a.begin < begin_ || a.end < a.begin) continue;
      const auto range = all.range_of.find(a.correlation);
      timeline.spans.push_back({std::move(a.name), range == all.range_of.end() ? 0 : range->second,
                                static_cast<int64_t>(a.begin) + offset_, static_cast<int64_t>(a.end) + offset_,
                                lane_of(lanes, a, timeline.tracks)});
    }
    all.activities.clear();
    all.range_of.clear();
    return timeline;
  }

 private:
  /// For each stream, (end, track) of its lanes: kernels of a stream may overlap, those of one lane do not.
  using Lanes = std::map<std::pair<uint32_t, uint32_t>, std::vector<std::pair<uint64_t, int32_t>>>;

  static int32_t lane_of(Lanes& lanes, const Activity& a, std::vector<std::string>& tracks) {
    auto& mine = lanes[{a.device, a.stream}];
    for (auto& [end, track] : mine) {
      if (a.begin < end) continue;
      end = a.end;
      return track;
    }
    tracks.push_back("cuda:" + std::to_string(a.device) + " stream " + std::to_string(a.stream) +
                     (mine.empty() ? "" : ", overlapping"));
    mine.emplace_back(a.end, static_cast<int32_t>(tracks.size() - 1));
    return mine.back().second;
  }

  void disable() {
    for (const CUpti_ActivityKind kind : enabled_) library().ActivityDisable(kind);
    enabled_.clear();
  }
  static void clear() {
    const std::lock_guard lock(collected().mutex);
    collected().activities.clear();
    collected().range_of.clear();
  }

  const std::function<void()> synchronize_;
  std::vector<CUpti_ActivityKind> enabled_;
  int64_t offset_ = 0;
  uint64_t begin_ = 0;
};

}  // namespace

std::shared_ptr<DeviceProfiler> make_cupti_profiler(std::function<void()> synchronize) {
  if (!library_fits()) return nullptr;
  auto profiler = std::make_shared<CuptiProfiler>(std::move(synchronize));
  if (!profiler->enable()) return nullptr;
  return profiler;
}

}  // namespace tern::cuda

#else  // CUPTI's headers are a separate package

namespace tern::cuda {
std::shared_ptr<DeviceProfiler> make_cupti_profiler(std::function<void()>) { return nullptr; }
}  // namespace tern::cuda

#endif
