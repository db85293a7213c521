#pragma once
// A simulated device: streams that run on request, events, and addresses without memory. It records every use of memory
// by queued work, and so detects memory that is reused too early.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tern/core/memory/allocator.h"

namespace tern::test {

class FakeDevice {
 public:
  explicit FakeDevice(int64_t room = int64_t{1} << 50) : room(room) {}

  detail::MemorySource source() {
    return {.allocate = [this](int64_t bytes) { return allocate(bytes); },
            .release = [this](void* pointer, int64_t bytes) { release(pointer, bytes); },
            .available = [this] { return room - held; },
            .total = [this] { return room + others; },
            .segment_bytes = int64_t{2} << 20,
            .alignment = 512,
            .record = [this](void* stream) { return record(stream); },
            .done = [this](void* event) { return done(*static_cast<Event*>(event)); },
            .wait = [this](void* event) { wait(*static_cast<Event*>(event)); },
            .drop =
                [this](void* event) {
                  --events;
                  delete static_cast<Event*>(event);
                }};
  }

  /// Queues work that uses the bytes.
  void use(void* pointer, int64_t bytes, void* stream) {
    const auto begin = reinterpret_cast<int64_t>(pointer);
    uses_.push_back({begin, begin + bytes, stream, ++queued[stream]});
  }
  void finish(void* stream) { finished[stream] = queued[stream]; }
  void finish_one(void* stream) { finished[stream] = std::min(finished[stream] + 1, queued[stream]); }
  void finish_all() {
    for (const auto& [stream, position] : queued) finished[stream] = position;
  }

  /// Must be called for every block that the allocator returns for `stream`.
  void note_handed_out(void* pointer, int64_t bytes, void* stream) {
    const auto begin = reinterpret_cast<int64_t>(pointer);
    check(begin % 512 == 0, "misaligned");
    auto segment = segments_.upper_bound(begin);
    const bool inside = segment != segments_.begin() && begin + bytes <= (--segment)->first + segment->second.bytes;
    check(inside, "handed out memory that the allocator does not hold");
    if (inside) check(segment->second.pool == pool, "handed out memory of another pool");
    check_unused(begin, begin + bytes, stream, "handed out");
  }
  /// `pool` is that of segments allocated from now on; pool_released() makes a closed pool's segments common.
  void pool_released(int64_t released) {
    for (auto& [begin, segment] : segments_)
      if (segment.pool == released) segment.pool = 0;
  }

  int64_t room, held = 0, others = 0, events = 0, queries = 0, waits = 0, calls = 0;
  int64_t fail_from = INT64_MAX, fail_until = INT64_MAX;  // allocate() fails in this range of calls
  int64_t pool = 0;
  bool capturing = false, lost = false;
  std::map<void*, int64_t> queued, finished;
  std::vector<std::string> faults;

 private:
  struct Event {
    void* stream;
    int64_t position;
  };
  struct Use {
    int64_t begin, end;
    void* stream;
    int64_t position;
  };
  struct Segment {
    int64_t bytes, pool;
  };

  void check(bool good, const char* what) {
    if (!good) faults.push_back(what);
  }
  void check_unused(int64_t begin, int64_t end, const void* by, const char* what) {
    std::erase_if(uses_, [&](const Use& use) { return finished[use.stream] >= use.position; });
    for (const Use& use : uses_)
      if (use.begin < end && begin < use.end && use.stream != by) {
        faults.push_back(std::string(what) + " while another stream works on it");
        return;
      }
  }
  void* allocate(int64_t bytes) {
    const int64_t call = calls++;
    if (held + bytes > room || (call >= fail_from && call < fail_until)) return nullptr;
    const int64_t begin = next_;
    next_ += (bytes + 511) / 512 * 512 + (next_ / 512 % 3) * 512;  // some segments are adjacent
    segments_[begin] = {bytes, pool};
    held += bytes;
    return reinterpret_cast<void*>(begin);
  }
  void release(void* pointer, int64_t bytes) {
    const auto begin = reinterpret_cast<int64_t>(pointer);
    const auto segment = segments_.find(begin);
    check(!capturing, "released during capture");
    if (segment == segments_.end() || segment->second.bytes != bytes) return check(false, "released no whole segment");
    check(segment->second.pool == 0, "released memory of a private pool");
    check_unused(begin, begin + bytes, &uses_, "released");
    segments_.erase(segment);
    held -= bytes;
  }
  bool done(const Event& event) {
    check(!capturing, "event queried during capture");
    ++queries;
    return finished[event.stream] >= event.position;
  }
  void wait(const Event& event) {
    check(!capturing, "waited during capture");
    ++waits;
    finished[event.stream] = std::max(finished[event.stream], event.position);
  }
  void* record(void* stream) {
    check(!capturing, "event recorded during capture");
    if (lost) return nullptr;
    ++events;
    return new Event{stream, queued[stream]};
  }

  int64_t next_ = int64_t{1} << 32;
  std::map<int64_t, Segment> segments_;
  std::vector<Use> uses_;
};

/// A stream handle of the fake device; 0 is the default stream.
inline void* stream(int64_t number) { return reinterpret_cast<void*>(number); }

inline constexpr int64_t kKiB = 1 << 10, kMiB = 1 << 20;
inline const Device kDevice{DeviceType::kCUDA, 0};

inline void expect_faultless(const FakeDevice& device) {
  for (const std::string& fault : device.faults) ADD_FAILURE() << fault;
}

/// The blocks cover each segment without gaps, free neighbours are merged, and the sums equal the statistics.
inline void expect_sound(const CachingAllocator& a, const FakeDevice& device) {
  const MemoryStatistics s = a.statistics();
  ASSERT_EQ(s.reserved_bytes, device.held);
  ASSERT_EQ(s.reserved_bytes, s.live_bytes + s.cached_bytes + s.deferred_bytes);
  std::map<std::string, int64_t> sums;
  int64_t largest = 0, beside_live = 0;
  const auto all = nlohmann::json::parse(a.snapshot_json());
  for (const auto& segment : all["segments"]) {
    int64_t expected = std::stoll(segment["address"].get<std::string>(), nullptr, 16);
    const int64_t end = expected + segment["bytes"].get<int64_t>();
    std::string previous;
    for (const auto& block : segment["blocks"]) {
      const std::string state = block["state"];
      const int64_t bytes = block["bytes"];
      ASSERT_EQ(std::stoll(block["address"].get<std::string>(), nullptr, 16), expected);
      ASSERT_TRUE(bytes > 0 && bytes % 512 == 0) << bytes;
      ASSERT_FALSE(state == "cached" && previous == "cached");
      sums[state] += bytes;
      if (state == "cached") largest = std::max(largest, bytes);
      if (state == "cached" && segment["blocks"].size() > 1) beside_live += bytes;
      expected += bytes;
      previous = state;
    }
    ASSERT_EQ(expected, end);
  }
  EXPECT_EQ(sums["live"], s.live_bytes);
  EXPECT_EQ(sums["cached"], s.cached_bytes);
  EXPECT_EQ(sums["deferred"], s.deferred_bytes);
  EXPECT_EQ(largest, s.largest_cached_block);
  EXPECT_EQ(beside_live, s.inactive_split_bytes);
}

}  // namespace tern::test
