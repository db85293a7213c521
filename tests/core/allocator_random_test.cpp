// Random use of the caching allocator with segments and streams, from one thread and from several.

#include <atomic>
#include <cstdlib>

#include "tern/tests/core/core_test.h"
#include "tern/tests/core/fake_device.h"
#include "tern/tests/support/sanitizer.h"

namespace tern::test {
namespace {

/// Random sequences of all calls, checked against the fake device's records and a map of the live blocks.
class RandomUse {
 public:
  explicit RandomUse(uint64_t seed) : random_(seed), device_(300 * kMiB), a_(kDevice, device_.source()) {}

  void run(int steps) {
    for (int step = 0; step < steps && device_.faults.empty(); ++step) {
      const int64_t what = below(100);
      if (what < 40) {
        allocate();
      } else if (what < 78) {
        release();
      } else if (what < 95) {
        device_.finish_one(some_stream());
      } else if (what < 96) {
        toggle_pool();
      } else if (!device_.capturing) {
        rare(what);
      }
      if (step % 16 == 0) {
        ASSERT_NO_FATAL_FAILURE(expect_sound(a_, device_));
      }
    }
    finish();
  }
  int64_t errors = 0, reuses = 0;

 private:
  struct Live {
    int64_t end;
    void* stream;
  };

  int64_t below(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(random_); }
  void* some_stream() { return streams_[static_cast<size_t>(below(4))]; }

  void allocate() {
    const int64_t bytes = 1 + below(int64_t{1} << below(26));
    void* s = some_stream();
    const int64_t system = a_.statistics().system_allocations;
    void* p = nullptr;
    try {
      p = a_.allocate(bytes, s);
    } catch (const OutOfMemoryError&) {
      ++errors;
      if (!device_.capturing) {
        EXPECT_GT(device_.held + bytes + 512, limit_ ? std::min(limit_, device_.room) : device_.room);
        EXPECT_EQ(a_.statistics().deferred_bytes, 0);
      }
      return;
    }
    reuses += a_.statistics().system_allocations == system;
    device_.note_handed_out(p, bytes, s);
    const auto begin = reinterpret_cast<int64_t>(p);
    const auto after = live_.lower_bound(begin);
    EXPECT_TRUE(after == live_.end() || begin + bytes <= after->first) << "overlap";
    EXPECT_TRUE(after == live_.begin() || std::prev(after)->second.end <= begin) << "overlap";
    live_[begin] = {begin + bytes, s};
    device_.use(p, bytes, s);
    for (int64_t others = below(4); others > 1; --others) {
      void* other = some_stream();
      device_.use(p, bytes, other);
      if (other != s || below(2)) a_.record_stream(p, other);
    }
  }
  void release() {
    if (live_.empty()) return;
    const auto victim = std::next(live_.begin(), below(static_cast<int64_t>(live_.size())));
    a_.release(reinterpret_cast<void*>(victim->first));
    live_.erase(victim);
  }
  void toggle_pool() {
    if (device_.pool == 0) {
      device_.pool = a_.begin_private_pool();
      device_.capturing = true;
    } else {
      device_.capturing = false;
      a_.end_private_pool(device_.pool);
      pools_.push_back(device_.pool);
      device_.pool = 0;
    }
  }
  void rare(int64_t what) {
    if (what == 96) a_.empty_cache();
    if (what == 97) a_.set_limit(limit_ = below(2) ? 0 : 100 * kMiB + below(300 * kMiB));
    if (what == 98) {
      const size_t which = 1 + static_cast<size_t>(below(3));
      a_.forget_stream(streams_[which]);
      streams_[which] = stream(next_stream_++);
    }
    if (what == 99 && !pools_.empty()) {
      device_.finish_all();
      a_.release_private_pool(pools_.back());
      device_.pool_released(pools_.back());
      pools_.pop_back();
    }
  }
  void finish() {
    if (device_.pool) toggle_pool();
    while (!pools_.empty()) rare(99);
    while (!live_.empty()) release();
    a_.empty_cache();
    const MemoryStatistics s = a_.statistics();
    EXPECT_EQ(s.reserved_bytes, 0);
    EXPECT_EQ(s.deferred_bytes, 0);
    EXPECT_EQ(s.splits, s.merges);
    EXPECT_EQ(device_.held, 0);
    EXPECT_EQ(device_.events, 0);
    expect_faultless(device_);
  }

  std::mt19937_64 random_;
  FakeDevice device_;
  CachingAllocator a_;
  std::map<int64_t, Live> live_;
  std::vector<void*> streams_ = {stream(0), stream(1), stream(2), stream(3)};
  int64_t next_stream_ = 4, limit_ = 0;
  std::vector<int64_t> pools_;
};

TEST(AllocatorRandom, RandomUse) {
  int64_t errors = 0, reuses = 0;
  // ThreadSanitizer makes it fifty times as slow, and there is only one thread.
  constexpr int kRuns = kSanitized ? 5 : 30;
  for (int run = 0; run < kRuns; ++run) {
    const uint64_t seed = fresh_random(static_cast<uint64_t>(run))();
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomUse use(seed);
    use.run(3000);
    errors += use.errors;
    reuses += use.reuses;
    if (HasFailure()) return;
  }
  EXPECT_GT(errors, 0);
  EXPECT_GT(reuses, 10000 * kRuns / 30);
}

void empty_cache_if_allowed(CachingAllocator& a) {
  try {
    a.empty_cache();
  } catch (const Error&) {  // a thread has a private pool open
  }
}

TEST(AllocatorRandom, ServesThreads) {
  FakeDevice device;
  std::atomic<int64_t> now = 0;
  // Real memory, so that a test can see the same bytes in two threads; an event is done two ticks later.
  detail::MemorySource source = device.source();
  source.segment_bytes = 64 * kKiB;
  source.allocate = [](int64_t bytes) { return std::aligned_alloc(512, static_cast<size_t>(bytes)); };
  source.release = [](void* pointer, int64_t) { std::free(pointer); };
  source.available = [] { return kMiB; };
  source.record = [&](void*) -> void* { return new int64_t(now + 2); };
  source.done = [&](void* event) { return *static_cast<int64_t*>(event) <= now; };
  source.wait = [&](void* event) { now = std::max<int64_t>(now, *static_cast<int64_t*>(event)); };
  source.drop = [](void* event) { delete static_cast<int64_t*>(event); };
  CachingAllocator a(kDevice, source);
  std::vector<int> bad(4, 0);
  in_threads(bad.size(), [&](size_t t) {
    std::vector<std::pair<int64_t*, int64_t>> live;
    const auto mine = static_cast<int64_t>(t);
    int64_t pool = 0;
    for (int64_t i = 0; i < 2000; ++i) {
      const AllocationTag tag("thread");
      const int64_t words = 1 + (i * 97 + mine) % 9000;
      auto* p = static_cast<int64_t*>(a.allocate(words * 8, stream(mine % 3)));
      p[0] = p[words - 1] = mine;
      live.emplace_back(p, words);
      if (i % 3 == 0) a.record_stream(p, stream((mine + 1) % 3));
      if (live.size() > 8) {
        const auto [old, count] = live[static_cast<size_t>(i % 8)];
        bad[t] += old[0] != mine || old[count - 1] != mine;
        a.release(old);
        live.erase(live.begin() + i % 8);
      }
      ++now;
      if (t == 0 && i % 400 == 100) pool = a.begin_private_pool();
      if (t == 0 && i % 400 == 110) a.end_private_pool(pool);
      if (t == 0 && i % 400 == 300) a.release_private_pool(pool);
      if (i % 250 == 0) (void)a.snapshot_json();
      if (t == 1 && i % 100 == 0) empty_cache_if_allowed(a);
    }
    for (const auto& [p, words] : live) a.release(p);
  });
  EXPECT_EQ(bad, std::vector<int>(4, 0));
  a.empty_cache();
  EXPECT_EQ(a.statistics().reserved_bytes, 0);
  EXPECT_EQ(a.statistics().splits, a.statistics().merges);
}

}  // namespace
}  // namespace tern::test
