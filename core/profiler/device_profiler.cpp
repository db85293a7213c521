#include "tern/core/profiler/device_profiler.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "tern/core/device/backend.h"
#include "tern/core/device/capture_state.h"
#include "tern/core/memory/stream.h"

namespace tern {
namespace {

/// The marks of one thread, in stream order.
struct Track {
  struct Mark {
    uint64_t range;
    bool opens;
    std::shared_ptr<void> mark;
  };
  std::vector<Mark> marks;
};

class MarkProfiler final : public DeviceProfiler {
 public:
  MarkProfiler(const DeviceMarks& marks, int64_t max_pairs) : marks_(marks), max_pairs_(max_pairs) {}

  void start(int64_t (*clock)()) override {
    // The stream is empty here, so this mark passes at once and relates device times to the clock.
    marks_.synchronize();
    base_ = marks_.record();
    marks_.synchronize();
    base_ns_ = clock();
  }

  void open(uint64_t range) override {
    const std::lock_guard lock(mutex_);
    if (pairs_ >= max_pairs_) return;
    if (add(range, true)) ++pairs_;
  }
  void close(uint64_t range) override {
    const std::lock_guard lock(mutex_);
    add(range, false);
  }

  detail::DeviceTimeline finish() override {
    const std::lock_guard lock(mutex_);
    marks_.synchronize();
    detail::DeviceTimeline timeline;
    timeline.inclusive = true;
    timeline.source = marks_.source;
    for (auto& [thread, track] : tracks_) {
      timeline.tracks.push_back(marks_.source + ", queue of thread " + std::to_string(timeline.tracks.size() + 1));
      place(track, static_cast<int32_t>(timeline.tracks.size() - 1), timeline.spans);
    }
    tracks_.clear();
    base_.reset();
    return timeline;
  }

 private:
  bool add(uint64_t range, bool opens) {
    if (!base_) return false;
    std::shared_ptr<void> mark = marks_.record();
    if (!mark) return false;
    tracks_[std::this_thread::get_id()].marks.push_back({range, opens, std::move(mark)});
    return true;
  }

  /// Adds up the times between successive marks, because the time between distant marks has few exact digits.
  void place(const Track& track, int32_t number, std::vector<detail::DeviceSpan>& spans) const {
    double seconds = 0;
    void* last = base_.get();
    std::unordered_map<uint64_t, size_t> opened;
    for (const Track::Mark& mark : track.marks) {
      seconds += std::max(0.0, marks_.seconds_between(last, mark.mark.get()));
      last = mark.mark.get();
      const int64_t now = base_ns_ + std::llround(seconds * 1e9);
      if (mark.opens) {
        opened[mark.range] = spans.size();
        spans.push_back({{}, mark.range, now, -1, number});
      } else if (const auto found = opened.find(mark.range); found != opened.end()) {
        spans[found->second].end_ns = now;
      }
    }
    std::erase_if(spans, [](const detail::DeviceSpan& span) { return span.end_ns < span.begin_ns; });
  }

  const DeviceMarks marks_;
  const int64_t max_pairs_;
  std::mutex mutex_;
  std::shared_ptr<void> base_;
  int64_t base_ns_ = 0, pairs_ = 0;
  std::map<std::thread::id, Track> tracks_;
};

}  // namespace

std::shared_ptr<DeviceProfiler> make_mark_profiler(const DeviceMarks& marks, int64_t max_pairs) {
  return std::make_shared<MarkProfiler>(marks, max_pairs);
}

std::shared_ptr<DeviceProfiler> device_profiler(Device device) {
  if (device.is_cpu()) return nullptr;
  const auto wait = [device] { cuda::synchronize_device(device.index); };
  if (auto profiler = cuda::make_cupti_profiler(wait)) return profiler;
  const auto record = [device]() -> std::shared_ptr<void> {
    if (detail::is_recording()) return nullptr;
    auto event = std::make_shared<Event>(device, true);
    event->record();
    return event;
  };
  const auto seconds = [](void* from, void* to) {
    return static_cast<Event*>(to)->seconds_since(*static_cast<Event*>(from));
  };
  return make_mark_profiler({"CUDA events", record, wait, seconds});
}

}  // namespace tern
