// The caching allocator with segments and streams, on a simulated device.

#include <array>

#include "tern/core/memory/storage.h"
#include "tern/tests/core/core_test.h"
#include "tern/tests/core/fake_device.h"

namespace tern::test {
namespace {

void* at(void* pointer, int64_t offset) { return static_cast<char*>(pointer) + offset; }

/// An allocator of a simulated device, both checked at the end.
struct StreamAllocator : testing::Test {
  ~StreamAllocator() override {
    expect_sound(a, device);
    expect_faultless(device);
  }
  /// A block in use by another stream.
  void* used_block(int64_t bytes, int64_t own, int64_t other) {
    void* p = a.allocate(bytes, stream(own));
    device.use(p, bytes, stream(other));
    return p;
  }

  FakeDevice device;
  CachingAllocator a{kDevice, device.source()};
};

TEST(DeviceMemory, SegmentSizes) {
  const std::array<int64_t, 3> cases[] = {{1, 512, 2 * kMiB},
                                          {512, 512, 2 * kMiB},
                                          {513, 1024, 2 * kMiB},
                                          {kMiB, kMiB, 2 * kMiB},
                                          {kMiB + 1, kMiB + 512, 20 * kMiB},
                                          {10 * kMiB, 10 * kMiB, 20 * kMiB},
                                          // The rest is too small for a block.
                                          {10 * kMiB + 1, 10 * kMiB + 512, 12 * kMiB},
                                          {11 * kMiB, 12 * kMiB, 12 * kMiB},
                                          {100 * kMiB, 100 * kMiB, 100 * kMiB}};
  for (const auto& [requested, live, reserved] : cases) {
    FakeDevice device;
    CachingAllocator a(kDevice, device.source());
    void* p = a.allocate(requested);
    EXPECT_EQ(a.statistics().live_bytes, live) << requested;
    EXPECT_EQ(device.held, reserved) << requested;
    a.release(p);
    EXPECT_EQ(a.statistics().largest_cached_block, reserved);
    EXPECT_EQ(a.statistics().inactive_split_bytes, 0);
  }
}

TEST_F(StreamAllocator, SplitsAndMerges) {
  void* p = a.allocate(1000);
  void* q = a.allocate(3000);
  void* r = a.allocate(500);
  EXPECT_EQ(q, at(p, 1024));
  EXPECT_EQ(r, at(q, 3072));
  EXPECT_EQ(a.statistics().splits, 3);
  EXPECT_EQ(a.statistics().inactive_split_bytes, 2 * kMiB - 1024 - 3072 - 512);
  a.release(q);
  a.release(q);  // a second release, or inside a block: ignored
  a.release(at(p, 512));
  EXPECT_EQ(a.statistics().merges, 0);
  EXPECT_EQ(a.allocate(2049), at(p, 1024));  // the smallest hole that fits; 512 bytes of it remain
  EXPECT_EQ(a.allocate(512), at(p, 1024 + 2560));
  a.release(at(p, 1024));
  a.release(at(p, 1024 + 2560));
  a.release(p);
  a.release(r);
  EXPECT_EQ(a.statistics().merges, a.statistics().splits);
  EXPECT_EQ(a.statistics().largest_cached_block, 2 * kMiB);
  EXPECT_EQ(a.allocate(kMiB), p);
  // Large requests do not use small segments.
  void* large = a.allocate(3 * kMiB);
  EXPECT_EQ(device.held, 22 * kMiB);
  EXPECT_EQ(a.allocate(kMiB), at(p, kMiB));
  a.release(large);
  a.empty_cache();
  EXPECT_EQ(device.held, 2 * kMiB);
}

TEST_F(StreamAllocator, TakesTheBestFitOfASizeClass) {
  void* tight = a.allocate(8192);
  a.allocate(512);
  void* wide = a.allocate(8192 + 512);
  a.allocate(512);
  a.release(tight);
  a.release(wide);  // the last released of its class
  EXPECT_EQ(a.allocate(8000), tight);
  EXPECT_EQ(a.allocate(8000), wide);
  a.release(wide);
  EXPECT_EQ(a.allocate(8193), wide);
}

TEST_F(StreamAllocator, BlocksStayWithTheirStream) {
  void* p = used_block(4000, 1, 1);
  a.release(p);
  EXPECT_EQ(a.allocate(4000, stream(1)), p);  // runs after the stream's remaining work
  a.release(p);
  void* q = a.allocate(4000, stream(2));
  EXPECT_GT(q, at(p, kMiB));
  EXPECT_EQ(device.held, 4 * kMiB);
  EXPECT_EQ(device.queries + device.waits, 0);
  a.empty_cache();
  EXPECT_EQ(device.held, 2 * kMiB);
  expect_faultless(device);  // it waited for stream 1
  EXPECT_EQ(device.waits, 1);
}

TEST_F(StreamAllocator, AUsedBlockWaitsForTheOtherStream) {
  void* p = used_block(4096, 0, 1);
  device.use(p, 4096, stream(2));
  for (const int64_t s : {0, 1, 2, 1, 0}) a.record_stream(p, stream(s));
  a.release(p);
  EXPECT_EQ(device.events, 2);
  EXPECT_EQ(a.statistics().deferred_bytes, 4096);
  EXPECT_EQ(a.statistics().live_bytes, 0);
  expect_error([&] { a.record_stream(p, stream(3)); }, {"record_stream", "cuda:0"});
  EXPECT_NE(a.allocate(4096), p);
  device.finish(stream(2));
  device.use(nullptr, 0, stream(1));  // later work is not waited for
  EXPECT_NE(a.allocate(4096), p);
  device.finish_one(stream(1));
  EXPECT_EQ(a.allocate(4096), p);
  EXPECT_EQ(device.events, 0);
  EXPECT_EQ(device.waits, 0);
}

TEST_F(StreamAllocator, AsksOncePerBusyStream) {
  std::vector<void*> blocks(100);
  for (void*& p : blocks) p = a.allocate(512);
  for (size_t i = 0; i < blocks.size(); ++i) {
    device.use(blocks[i], 512, stream(1 + static_cast<int64_t>(i % 2)));
    a.record_stream(blocks[i], stream(1 + static_cast<int64_t>(i % 2)));
    a.release(blocks[i]);
  }
  void* p = a.allocate(512);
  EXPECT_EQ(device.queries, 2);
  a.release(p);
  for (int i = 0; i < 10; ++i) device.finish_one(stream(1));
  p = a.allocate(512);
  EXPECT_EQ(device.queries, 2 + 11 + 1);
  EXPECT_EQ(a.statistics().deferred_bytes, 90 * 512);
  device.lost = true;  // no more events: no work remains to wait for
  a.record_stream(p, stream(1));
  a.release(p);
  device.finish_all();
  a.release(a.allocate(512));
  EXPECT_EQ(a.statistics().deferred_bytes, 0);
  EXPECT_EQ(device.events, 0);
}

TEST(DeviceMemory, ThatTheHostWritesWaitsForEveryCopy) {
  FakeDevice device;
  detail::MemorySource source = device.source();
  source.used_by_host = true;
  CachingAllocator a(cpu, source);
  for (const int64_t s : {0, 1}) {
    void* p = a.allocate(4096, stream(s));
    device.use(p, 4096, stream(s));  // a copy; the host writes the next batch without stream order
    a.record_stream(p, stream(s));
    a.release(p);
    EXPECT_NE(a.allocate(4096, stream(s)), p);
    device.finish(stream(s));
    EXPECT_EQ(a.allocate(4096, stream(1 - s)), p);
  }
  EXPECT_EQ(device.held, 2 * kMiB);
  expect_faultless(device);
}

TEST_F(StreamAllocator, TheFakeDeviceSeesAMissingRecord) {
  void* p = used_block(4096, 0, 1);
  a.release(p);
  device.note_handed_out(a.allocate(4096), 4096, nullptr);
  EXPECT_EQ(std::exchange(device.faults, {}), std::vector<std::string>{"handed out while another stream works on it"});
}

TEST_F(StreamAllocator, AForgottenStreamLeavesItsMemoryToTheDefaultStream) {
  void* cached = a.allocate(4096, stream(7));
  void* live = a.allocate(4096, stream(7));
  void* shared = a.allocate(3 * kMiB);
  void* deferred = a.allocate(3 * kMiB);
  for (void* p : {cached, live, shared, deferred}) device.use(p, 4096, stream(7));
  a.record_stream(shared, stream(7));
  a.record_stream(deferred, stream(7));
  a.release(cached);
  a.release(deferred);
  a.forget_stream(stream(7));
  EXPECT_EQ(device.events, 0);
  device.note_handed_out(a.allocate(4096), 4096, nullptr);
  EXPECT_EQ(a.allocate(3 * kMiB), deferred);
  a.release(live);
  a.release(shared);
  EXPECT_EQ(device.events, 0);
  EXPECT_EQ(a.statistics().deferred_bytes, 0);
  a.forget_stream(nullptr);
  a.forget_stream(stream(8));
}

TEST_F(StreamAllocator, PrivatePools) {
  void* before = a.allocate(4096);
  void* other = a.allocate(4096);
  a.release(a.allocate(4096));
  const int64_t pool = device.pool = a.begin_private_pool();
  device.capturing = true;
  void* p = a.allocate(4096);
  device.note_handed_out(p, 4096, nullptr);
  a.release(p);
  EXPECT_EQ(a.allocate(4096), p);  // reused within the pool
  device.use(other, 4096, stream(1));
  a.record_stream(other, stream(1));
  a.release(other);  // its event must wait for the end of the capture
  a.release(before);
  void* kept = a.allocate(4096);
  EXPECT_EQ(device.held, 4 * kMiB);
  expect_error([&] { a.empty_cache(); }, {"empty_cache", "captured"});
  expect_error([&] { a.forget_stream(stream(1)); }, {"forget_stream", "captured"});
  expect_error([&] { a.begin_private_pool(); }, {"begin_private_pool", "already"});
  expect_error([&] { a.end_private_pool(pool + 1); }, {"end_private_pool", "not open"});
  expect_error([&] { a.release_private_pool(pool); }, {"release_private_pool", "open"});
  std::thread([&] {
    EXPECT_EQ(a.allocate(4096), before);  // another thread is served as usual
    expect_error([&] { a.end_private_pool(pool); }, {"not open in this thread"});
  }).join();
  device.capturing = false;
  a.end_private_pool(pool);
  device.pool = 0;
  a.release(p);
  a.empty_cache();
  EXPECT_EQ(device.held, 4 * kMiB);
  EXPECT_NE(a.allocate(4096), p);  // the address belongs to the graph
  a.release_private_pool(pool);
  device.pool_released(pool);
  expect_error([&] { a.release_private_pool(pool); }, {"released already"});
  a.release(kept);
  a.empty_cache();
  EXPECT_EQ(device.held, 2 * kMiB);
}

TEST_F(StreamAllocator, OutOfMemoryWaitsBeforeItGivesUp) {
  device.room = 40 * kMiB;
  void* p = used_block(20 * kMiB, 1, 2);
  a.record_stream(p, stream(2));
  a.release(p);
  void* q = a.allocate(30 * kMiB);
  device.note_handed_out(q, 30 * kMiB, nullptr);
  EXPECT_EQ(device.held, 30 * kMiB);
  // 5 MiB would need a segment of 20 MiB; the request alone fits.
  void* small = a.allocate(5 * kMiB);
  EXPECT_EQ(device.held, 35 * kMiB);
  a.release(q);
  a.set_limit(25 * kMiB);
  EXPECT_THROW(a.allocate(31 * kMiB), OutOfMemoryError);
  void* fits = a.allocate(20 * kMiB);
  a.release(fits);
  a.release(small);
}

TEST_F(StreamAllocator, TheErrorListsWhatHoldsTheMemory) {
  device.room = 24 * kMiB;
  device.others = int64_t{8} << 30;
  void* gone = nullptr;
  {
    const AllocationTag tag("softmax");
    gone = a.allocate(8 * kMiB);
    a.allocate(6 * kMiB);
  }
  a.release(gone);
  const AllocationTag tag("gelu");
  expect_error([&] { a.allocate(9 * kMiB); },
               {"out of memory on cuda:0: requested 9.0 MiB for gelu; live 6.0 MiB, the device has 4.0 MiB left of "
                "8216.0 MiB; cached 14.0 MiB",
                "the largest piece 8.0 MiB", "held by: softmax 6.0 MiB in 1", "smaller batch", "checkpoint()",
                "8192.0 MiB are held by other processes"});
  a.begin_private_pool();
  expect_error([&] { a.allocate(5 * kMiB); }, {"step is being captured", "empty_cache() before"});
}

TEST(DeviceMemory, EveryAllocationMayFail) {
  const auto run = [](FakeDevice& device, CachingAllocator& a) {
    std::vector<void*> live;
    int64_t errors = 0;
    for (int64_t i = 0; i < 40; ++i) {
      const int64_t bytes = (i * 7919 % 13 + 1) * (i % 3 ? 300 * kKiB : 2 * kMiB);
      try {
        live.push_back(a.allocate(bytes, stream(i % 3)));
        device.note_handed_out(live.back(), bytes, stream(i % 3));
      } catch (const OutOfMemoryError&) {
        ++errors;
        expect_sound(a, device);
        device.fail_from = INT64_MAX;
        live.push_back(a.allocate(bytes / 2, stream(i % 3)));
      }
      device.use(live.back(), 512, stream((i + 1) % 3));
      a.record_stream(live.back(), stream((i + 1) % 3));
      if (i % 4 == 3) {
        const auto victim = live.begin() + i * 31 % static_cast<int64_t>(live.size());
        a.release(*victim);
        live.erase(victim);
      }
      if (i % 5 == 0) device.finish_one(stream(i % 3));
    }
    for (void* p : live) a.release(p);
    a.empty_cache();
    EXPECT_EQ(device.held, 0);
    EXPECT_EQ(device.events, 0);
    EXPECT_EQ(a.statistics().splits, a.statistics().merges);
    expect_faultless(device);
    return errors;
  };
  int64_t calls = 0;
  {
    FakeDevice device;
    CachingAllocator a(kDevice, device.source());
    EXPECT_EQ(run(device, a), 0);
    calls = device.calls;
  }
  ASSERT_GT(calls, 10);
  int64_t all_errors = 0;
  for (int64_t n = 0; n < calls; ++n)
    for (const bool once : {true, false}) {
      FakeDevice device;
      device.fail_from = n;
      if (once) device.fail_until = n + 1;
      CachingAllocator a(kDevice, device.source());
      const int64_t errors = run(device, a);
      EXPECT_LE(errors, once ? 0 : 1) << n;  // freeing the cache may be enough
      all_errors += errors;
    }
  EXPECT_GT(all_errors, calls / 2);
}

TEST_F(StreamAllocator, BadRequests) {
  EXPECT_EQ(a.allocate(0, stream(1)), nullptr);
  EXPECT_EQ(a.allocate(-1), nullptr);
  EXPECT_EQ(a.allocate(INT64_MIN), nullptr);
  for (const int64_t bytes : {(int64_t{1} << 60) + 1, INT64_MAX, int64_t{1} << 60})
    EXPECT_THROW(a.allocate(bytes), OutOfMemoryError) << bytes;
  int stranger = 0;
  a.release(&stranger);
  a.record_stream(nullptr, stream(1));
  EXPECT_THROW(a.record_stream(&stranger, stream(1)), Error);
  EXPECT_EQ(device.held, 0);
  detail::MemorySource odd = device.source();
  odd.alignment = 96;
  expect_error([&] { CachingAllocator b(kDevice, odd); }, {"alignment", "96"});
  odd = device.source();
  odd.segment_bytes = 1000;
  expect_error([&] { CachingAllocator b(kDevice, odd); }, {"segment_bytes", "1000"});
}

TEST(DeviceMemory, StorageAndPinnedMemory) {
  const Storage storage(100, cpu);
  storage.record_stream(current_stream(cpu));
  expect_error([&] { storage.record_stream({DeviceType::kCUDA, 1, nullptr}); }, {"on cpu", "on cuda:1"});
  CachingAllocator& pinned = pinned_allocator();
  const int64_t before = pinned.statistics().live_bytes;
  auto* p = static_cast<char*>(pinned.allocate(1000));
  std::fill_n(p, 1000, 'x');
  pinned.release(p);
  EXPECT_EQ(pinned.statistics().live_bytes, before);
  EXPECT_NE(&pinned, &allocator(cpu));
}

}  // namespace
}  // namespace tern::test
