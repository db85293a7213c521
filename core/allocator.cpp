#include "tern/core/allocator.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <fstream>
#include <map>
#include <new>
#include <sstream>
#include <vector>

#include "tern/core/check.h"

namespace tern {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kHugePage = int64_t{2} << 20;

thread_local const char* current_tag = "other";

/// Up to the next eighth of the power of two below: few distinct sizes, little waste.
int64_t round_size(int64_t bytes) {
  if (bytes <= 512) return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const int64_t step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(bytes))) / 8;
  return (bytes + step - 1) / step * step;
}

/// The number of a rounded size among all rounded sizes, from the smallest on.
size_t size_class(int64_t rounded) {
  if (rounded <= 512) return static_cast<size_t>(rounded / kAlignment - 1);
  const int power = std::bit_width(static_cast<uint64_t>(rounded)) - 1;
  return static_cast<size_t>(8 + (power - 9) * 8 + (rounded >> (power - 3)) - 8);
}

void* allocate_system(int64_t bytes) {
  const int64_t alignment = bytes >= kHugePage ? kHugePage : kAlignment;
  void* pointer = nullptr;
  if (posix_memalign(&pointer, static_cast<size_t>(alignment), static_cast<size_t>(bytes)) != 0) return nullptr;
  // Advice only: fewer page faults and TLB misses where the kernel has huge pages to give.
  if (bytes >= kHugePage) madvise(pointer, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return pointer;
}

std::string megabytes(int64_t bytes) {
  std::ostringstream out;
  out.precision(1);
  out << std::fixed << static_cast<double>(bytes) / (1 << 20) << " MiB";
  return out.str();
}

int64_t read_number(const char* path) {
  std::ifstream file(path);
  int64_t value = -1;
  return file >> value ? value : -1;  // "max" reads as no limit
}

/// What the cgroup (a container's limit) leaves; page cache is reclaimable and does not count as used.
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

/// What a limit of the address space (ulimit -v) leaves. Some of it is kept back: oneDNN crashes when it cannot map
/// pages for the code that it generates.
int64_t available_addresses() {
  constexpr int64_t kKeptBack = int64_t{64} << 20;
  rlimit limits{};
  if (getrlimit(RLIMIT_AS, &limits) != 0 || limits.rlim_cur == RLIM_INFINITY) return INT64_MAX;
  const int64_t pages = read_number("/proc/self/statm");  // the first number: the whole address space
  if (pages < 0) return INT64_MAX;
  return std::max<int64_t>(static_cast<int64_t>(limits.rlim_cur) - pages * sysconf(_SC_PAGESIZE) - kKeptBack, 0);
}

}  // namespace

int64_t available_system_memory() {
  int64_t available = INT64_MAX;
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  for (int64_t value; file >> key >> value; std::getline(file, unit))
    if (key == "MemAvailable:") available = value * 1024;
  return std::min({available, available_in_cgroup(), available_addresses()});
}

AllocationTag::AllocationTag(const char* name) : previous_(current_tag) { current_tag = name; }
AllocationTag::~AllocationTag() { current_tag = previous_; }

CachingAllocator::CachingAllocator(Device device, MemorySource source) : device_(device), source_(std::move(source)) {}

CachingAllocator::~CachingAllocator() { release_cached(); }

void* CachingAllocator::take_cached(int64_t bytes) {
  for (size_t c = size_class(bytes); c < cached_.size() && c <= size_class(bytes + bytes / 4); ++c) {
    if (cached_[c].empty() || cached_[c].back().mapped().bytes > bytes + bytes / 4) continue;
    Blocks::node_type block = std::move(cached_[c].back());
    cached_[c].pop_back();
    block.mapped().tag = current_tag;
    statistics_.live_bytes += block.mapped().bytes;
    return live_.insert(std::move(block)).position->first;
  }
  return nullptr;
}

void* CachingAllocator::take_new(int64_t bytes) {
  // A request beyond what the machine can give would succeed now and have the process killed when the pages are
  // touched.
  if (limit_ > 0 && statistics_.reserved_bytes + bytes > limit_) return nullptr;
  if (bytes >= kHugePage && bytes > source_.available()) return nullptr;
  void* pointer = source_.allocate(bytes);
  if (!pointer) return nullptr;
  live_[pointer] = {bytes, current_tag};
  statistics_.live_bytes += bytes;
  statistics_.reserved_bytes += bytes;
  ++statistics_.system_allocations;
  return pointer;
}

void* CachingAllocator::allocate(int64_t bytes) {
  if (bytes <= 0) return nullptr;
  std::lock_guard<std::mutex> lock(mutex_);
  if (bytes > (int64_t{1} << 60)) out_of_memory(bytes);
  const int64_t rounded = round_size(bytes);
  void* pointer = take_cached(rounded);
  if (!pointer) pointer = take_new(rounded);
  if (!pointer) {
    release_cached();
    pointer = take_new(rounded);
  }
  if (!pointer) out_of_memory(rounded);
  ++statistics_.allocations;
  statistics_.peak_live_bytes = std::max(statistics_.peak_live_bytes, statistics_.live_bytes);
  statistics_.peak_reserved_bytes = std::max(statistics_.peak_reserved_bytes, statistics_.reserved_bytes);
  return pointer;
}

void CachingAllocator::release(void* pointer) noexcept {
  if (!pointer) return;
  std::lock_guard<std::mutex> lock(mutex_);
  const auto block = live_.find(pointer);
  if (block == live_.end()) return;
  statistics_.live_bytes -= block->second.bytes;
  const size_t c = size_class(block->second.bytes);
  if (c >= cached_.size()) cached_.resize(c + 1);
  cached_[c].push_back(live_.extract(block));
}

void CachingAllocator::release_cached() {
  for (auto& blocks : cached_) {
    for (const auto& block : blocks) {
      source_.release(block.key(), block.mapped().bytes);
      statistics_.reserved_bytes -= block.mapped().bytes;
    }
    blocks.clear();
  }
}

void CachingAllocator::empty_cache() {
  std::lock_guard<std::mutex> lock(mutex_);
  release_cached();
}

MemoryStatistics CachingAllocator::statistics() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return statistics_;
}

void CachingAllocator::reset_peak() {
  std::lock_guard<std::mutex> lock(mutex_);
  statistics_.peak_live_bytes = statistics_.live_bytes;
  statistics_.peak_reserved_bytes = statistics_.reserved_bytes;
}

void CachingAllocator::set_limit(int64_t bytes) {
  TERN_CHECK(bytes >= 0, "memory limit: expected at least 0 bytes, got ", bytes);
  std::lock_guard<std::mutex> lock(mutex_);
  limit_ = bytes;
}

std::string CachingAllocator::describe_live() const {
  std::map<std::string, std::pair<int64_t, int64_t>> by_tag;
  for (const auto& [pointer, block] : live_) {
    auto& [bytes, count] = by_tag[block.tag];
    bytes += block.bytes;
    ++count;
  }
  std::vector<std::pair<int64_t, std::string>> rows;
  for (const auto& [tag, entry] : by_tag)
    rows.emplace_back(entry.first, tag + " " + megabytes(entry.first) + " in " + std::to_string(entry.second));
  std::sort(rows.rbegin(), rows.rend());
  std::string text;
  for (size_t i = 0; i < rows.size() && i < 8; ++i) text += (i ? ", " : "") + rows[i].second;
  return text.empty() ? "nothing" : text;
}

std::string CachingAllocator::snapshot() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return describe_live();
}

void CachingAllocator::out_of_memory(int64_t bytes) const {
  std::ostringstream out;
  out << "out of memory on " << device_ << ": asked for " << megabytes(bytes) << " for " << current_tag << "; live "
      << megabytes(statistics_.live_bytes);
  if (limit_ > 0)
    out << " of a limit of " << megabytes(limit_);
  else
    out << ", the machine has " << megabytes(source_.available()) << " left";
  out << "; held by: " << describe_live() << "; try a smaller batch or sequence length";
  throw OutOfMemoryError(out.str());
}

CachingAllocator& allocator(Device device) {
  require_available(device);
  static auto* instance = new CachingAllocator(
      cpu, {allocate_system, [](void* pointer, int64_t) { std::free(pointer); }, available_system_memory});
  return *instance;
}

}  // namespace tern
