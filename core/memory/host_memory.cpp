// System memory and the allocators of the process.
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <fstream>

#include "tern/core/device/backend.h"
#include "tern/core/memory/allocator.h"
#include "tern/kernels/base/address_space.h"
#include "tern/kernels/base/check.h"

namespace tern {
namespace {

constexpr int64_t kAlignment = 64;

void* allocate_system(int64_t bytes) {
  const int64_t alignment = bytes >= detail::kHugePage ? detail::kHugePage : kAlignment;
  void* pointer = nullptr;
  if (posix_memalign(&pointer, static_cast<size_t>(alignment), static_cast<size_t>(bytes)) != 0) return nullptr;
  // Only a hint: fewer page faults and TLB misses where huge pages are available.
  if (bytes >= detail::kHugePage) madvise(pointer, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return pointer;
}

int64_t read_number(const char* path) {
  std::ifstream file(path);
  int64_t value = -1;
  return file >> value ? value : -1;  // "max" means no limit
}

/// Bytes left within the limit of the cgroup (a container); page cache is reclaimable and does not count as used.
int64_t available_in_cgroup() {
  const int64_t limit = read_number("/sys/fs/cgroup/memory.max");
  const int64_t used = read_number("/sys/fs/cgroup/memory.current");
  if (limit < 0 || used < 0) return INT64_MAX;
  int64_t cache = 0;
  std::ifstream statistics("/sys/fs/cgroup/memory.stat");
  std::string key;
  for (int64_t value; statistics >> key >> value;)
    if (key == "inactive_file" || key == "active_file") cache += value;
  return std::max<int64_t>(limit - used + cache, 0);
}

/// Bytes left within the limit of the address space (ulimit -v), less a reserve: oneDNN crashes when it cannot map
/// pages for the code that it generates.
int64_t available_addresses() {
  constexpr int64_t kKeptBack = int64_t{64} << 20;
  const int64_t limit = kernels::address_space_limit();
  if (limit == INT64_MAX) return limit;
  const int64_t pages = read_number("/proc/self/statm");  // the first number is the whole address space
  if (pages < 0) return INT64_MAX;
  return std::max<int64_t>(limit - pages * sysconf(_SC_PAGESIZE) - kKeptBack, 0);
}

detail::MemorySource system_memory_source() {
  return {.allocate = allocate_system,
          .release = [](void* pointer, int64_t) { std::free(pointer); },
          .available = detail::available_system_memory,
          .overcommits = true,
          .watched = true};
}

}  // namespace

int64_t detail::available_system_memory() {
  int64_t available = INT64_MAX;
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  for (int64_t value; file >> key >> value; std::getline(file, unit))
    if (key == "MemAvailable:") available = value * 1024;
  return std::min({available, available_in_cgroup(), available_addresses()});
}

detail::MemorySource detail::memory_source(Device device) {
  require_available(device);
  if (device.is_cuda()) return cuda::memory_source(device.index);
  return system_memory_source();
}

CachingAllocator& allocator(Device device) {
  static std::array<std::atomic<CachingAllocator*>, 1 + kernels::kMaxDevices> instances{};
  static std::mutex mutex;
  require_available(device);
  const size_t slot = device.is_cpu() ? 0 : 1 + static_cast<size_t>(device.index);
  TERN_CHECK(slot < instances.size(), "device ", device, ": expected an index below ", kernels::kMaxDevices);
  if (CachingAllocator* instance = instances[slot].load(std::memory_order_acquire)) return *instance;
  std::lock_guard<std::mutex> lock(mutex);
  if (!instances[slot]) instances[slot] = new CachingAllocator(device, detail::memory_source(device));
  return *instances[slot];
}

CachingAllocator& pinned_allocator() {
  static auto* instance = [] {
    detail::MemorySource source = cuda::in_this_program() ? cuda::pinned_memory_source() : system_memory_source();
    source.used_by_host = true;
    return new CachingAllocator(cpu, std::move(source));
  }();
  return *instance;
}

}  // namespace tern
