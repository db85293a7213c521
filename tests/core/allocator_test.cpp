// The caching allocator: sizes, reuse, statistics, limits and threads.

#include <cstdlib>
#include <cstring>

#include "tern/core/memory/address_sanitizer.h"
#include "tern/core/memory/allocator.h"
#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

/// A memory source that counts its calls.
struct Source {
  int64_t held = 0, blocks = 0, room = INT64_MAX;
  detail::MemorySource source() {
    return {[this](int64_t bytes) -> void* {
              if (held + bytes > room) return nullptr;
              held += bytes;
              ++blocks;
              return std::aligned_alloc(64, static_cast<size_t>(bytes));
            },
            [this](void* pointer, int64_t bytes) {
              held -= bytes;
              --blocks;
              std::free(pointer);
            },
            [this] { return room - held; }};
  }
};

TEST(Allocator, RoundsToEighths) {
  Source memory;
  {
    CachingAllocator a(cpu, memory.source());
    for (const auto& [requested, got] : std::vector<std::pair<int64_t, int64_t>>{
             {1, 64}, {64, 64}, {65, 128}, {512, 512}, {513, 576}, {1000, 1024}, {1025, 1152}, {3'000'000, 3145728}}) {
      void* p = a.allocate(requested);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % 64, 0u);
      EXPECT_EQ(a.statistics().live_bytes, got) << requested;
      a.release(p);
    }
    // Above 512 bytes at most an eighth is lost.
    for (int64_t bytes = 513; bytes < 4'000'000; bytes = bytes * 9 / 8 + 7) {
      void* p = a.allocate(bytes);
      EXPECT_GE(a.statistics().live_bytes, bytes);
      EXPECT_LE(a.statistics().live_bytes, bytes * 5 / 4);  // a cached block may be a quarter larger
      a.release(p);
      a.empty_cache();
      p = a.allocate(bytes);
      EXPECT_LE(a.statistics().live_bytes, bytes + bytes / 8 + 1);
      a.release(p);
    }
    EXPECT_EQ(a.allocate(0), nullptr);
    EXPECT_EQ(a.allocate(-5), nullptr);
    a.release(nullptr);
    int stranger = 0;
    a.release(&stranger);
    EXPECT_EQ(a.statistics().live_bytes, 0);
  }
  EXPECT_EQ(memory.blocks, 0);  // the destructor frees everything
}

TEST(Allocator, ReusesBlocksAtMostAQuarterLarger) {
  Source memory;
  CachingAllocator a(cpu, memory.source());
  void* p = a.allocate(1280);
  a.release(p);
  EXPECT_EQ(a.allocate(1024), p);  // 1280 is a quarter larger
  a.release(p);
  void* q = a.allocate(960);
  EXPECT_NE(q, p);
  EXPECT_EQ(a.allocate(1280), p);
  const MemoryStatistics s = a.statistics();
  EXPECT_EQ(s.live_bytes, 960 + 1280);
  EXPECT_EQ(s.reserved_bytes, 960 + 1280);
  EXPECT_EQ(s.allocations, 4);
  EXPECT_EQ(s.system_allocations, 2);
  a.release(p);
  a.release(q);
  a.empty_cache();
  EXPECT_EQ(a.statistics().reserved_bytes, 0);
  EXPECT_EQ(memory.held, 0);
  EXPECT_EQ(a.statistics().peak_live_bytes, 960 + 1280);
  a.reset_peak();
  EXPECT_EQ(a.statistics().peak_live_bytes, 0);
}

TEST(Allocator, RandomUseKeepsTheBooks) {
  Source memory;
  CachingAllocator a(cpu, memory.source());
  std::vector<std::pair<char*, int64_t>> live;
  std::mt19937_64 random = fresh_random();
  for (int step = 0; step < 20000; ++step) {
    const int64_t bytes = 1 + static_cast<int64_t>(random() % (1u << (4 + random() % 14)));
    if (live.size() < 50 && random() % 2) {
      auto* p = static_cast<char*>(a.allocate(bytes));
      for (const auto& [other, size] : live) ASSERT_TRUE(p + bytes <= other || other + size <= p);
      std::memset(p, 7, static_cast<size_t>(bytes));
      live.emplace_back(p, bytes);
    } else if (!live.empty()) {
      const size_t k = random() % live.size();
      a.release(live[k].first);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(k));
    }
    const MemoryStatistics s = a.statistics();
    ASSERT_EQ(s.reserved_bytes, memory.held);
    ASSERT_LE(s.live_bytes, s.reserved_bytes);
  }
  EXPECT_LT(a.statistics().system_allocations, a.statistics().allocations / 4);
  for (const auto& [p, size] : live) a.release(p);
  EXPECT_EQ(a.statistics().live_bytes, 0);
}

TEST(Allocator, AFullLimitEmptiesTheCacheFirst) {
  Source memory;
  CachingAllocator a(cpu, memory.source());
  a.set_limit(1 << 20);
  a.release(a.allocate(700 << 10));
  void* p = a.allocate(500 << 10);  // fits only when the cached block is freed
  EXPECT_NE(p, nullptr);
  EXPECT_LE(a.statistics().reserved_bytes, 1 << 20);
  EXPECT_THROW(a.allocate(600 << 10), OutOfMemoryError);
  a.release(p);
  expect_error([&] { a.set_limit(-1); }, {"memory limit", "-1"});
  a.set_limit(0);
  a.release(a.allocate(8 << 20));
  memory.room = memory.held;
  a.release(a.allocate(8 << 20));
  expect_error([&] { a.allocate(64 << 20); }, {"out of memory", "64.0 MiB", "the machine has"});
}

TEST(Allocator, TheErrorListsWhoHoldsTheMemory) {
  CachingAllocator& a = allocator(cpu);
  a.empty_cache();
  const Tensor x = ones({1 << 20}, {.requires_grad = true});  // 4 MiB
  const Tensor y = gelu(x), z = softmax(x);
  const auto kept = [&] {
    const AllocationTag tag("a purpose", true);
    return abs(x);
  }();
  a.set_limit(a.statistics().reserved_bytes + (1 << 20));
  expect_error([&] { tanh(x); },
               {"out of memory on cpu", "requested 4.0 MiB for tanh", "of a limit of", "held by:", "gelu 4.0 MiB in 1",
                "softmax 4.0 MiB in 1", "a purpose 4.0 MiB in 1", "try a smaller batch"});
  a.set_limit(0);
  EXPECT_NE(a.snapshot().find("gelu 4.0 MiB"), std::string::npos);
  EXPECT_NO_THROW(tanh(x));
}

TEST(Allocator, MoreThanTheMachineHasIsAnErrorNotAKill) {
  const int64_t available = detail::available_system_memory();
  EXPECT_GT(available, 0);
  EXPECT_LT(available, INT64_MAX);
  EXPECT_THROW(empty({available / 4 + (int64_t{1} << 30)}), OutOfMemoryError);
  EXPECT_THROW(empty({INT64_MAX / 4}), OutOfMemoryError);
  EXPECT_THROW(empty({int64_t{1} << 55}), OutOfMemoryError);
  EXPECT_THROW(zeros({int64_t{1} << 45}), OutOfMemoryError);
  expect_error([] { empty({int64_t{1} << 61}, {.dtype = float64}); }, {"64 bits"});
  EXPECT_NO_THROW(ones({4}));
}

TEST(Allocator, ServesThreads) {
  CachingAllocator& a = allocator(cpu);
  const int64_t before = a.statistics().live_bytes;
  std::vector<int> bad(4, 0);
  in_threads(bad.size(), [&](size_t t) {
    for (int i = 0; i < 3000; ++i) {
      const AllocationTag tag("thread");
      const int64_t words = 1 + (i * 37 + static_cast<int64_t>(t)) % 500;
      auto* p = static_cast<int64_t*>(a.allocate(words * 8));
      for (int64_t k = 0; k < words; ++k) p[k] = static_cast<int64_t>(t);
      for (int64_t k = 0; k < words; ++k) bad[t] += p[k] != static_cast<int64_t>(t);
      a.release(p);
    }
  });
  EXPECT_EQ(bad, std::vector<int>(4, 0));
  EXPECT_EQ(a.statistics().live_bytes, before);
}

#ifdef TERN_ADDRESS_SANITIZER
TEST(Allocator, AddressSanitizerReportsMemoryOfNoTensor) {
  allocator(cpu).empty_cache();  // the first block then comes from the system, unpoisoned
  Tensor x = empty({13});
  const char* const data = reinterpret_cast<const char*>(x.data<float>());
  EXPECT_FALSE(__asan_address_is_poisoned(data));
  EXPECT_FALSE(__asan_address_is_poisoned(data + 51));
  for (int byte = 52; byte < 64; ++byte) EXPECT_TRUE(__asan_address_is_poisoned(data + byte)) << byte;
  x = Tensor();
  for (int byte = 0; byte < 64; ++byte) EXPECT_TRUE(__asan_address_is_poisoned(data + byte)) << byte;
  x = empty({15});
  ASSERT_EQ(reinterpret_cast<const char*>(x.data<float>()), data);  // from the cache
  EXPECT_FALSE(__asan_address_is_poisoned(data + 59));
  EXPECT_TRUE(__asan_address_is_poisoned(data + 60));
}
#endif

}  // namespace
}  // namespace tern::test
