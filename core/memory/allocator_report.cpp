// Reports of the caching allocator: statistics, snapshots and the out-of-memory message.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tern/core/memory/allocator.h"
#include "tern/kernels/base/check.h"

namespace tern {
namespace {

thread_local const char* current_tag = "other";
thread_local bool tag_covers_ops = false;

std::string megabytes(int64_t bytes) {
  std::ostringstream out;
  out.precision(1);
  out << std::fixed << static_cast<double>(bytes) / (1 << 20) << " MiB";
  return out.str();
}

std::string address(const void* pointer) {
  std::ostringstream out;
  out << "0x" << std::hex << reinterpret_cast<uintptr_t>(pointer);
  return out.str();
}

const char* name_of(detail::Block::State state) {
  constexpr const char* kNames[] = {"live", "cached", "deferred"};
  return kNames[static_cast<int>(state)];
}

}  // namespace

AllocationTag::AllocationTag(const char* name, bool covers_ops)
    : previous_(current_tag), outer_covers_(tag_covers_ops) {
  if (outer_covers_) return;
  current_tag = name;
  tag_covers_ops = covers_ops;
}
AllocationTag::~AllocationTag() {
  current_tag = previous_;
  tag_covers_ops = outer_covers_;
}
const char* AllocationTag::current() { return current_tag; }

MemoryStatistics CachingAllocator::statistics() const {
  std::lock_guard<std::mutex> lock(mutex_);
  MemoryStatistics result = statistics_;
  result.cached_bytes = result.reserved_bytes - result.live_bytes - result.deferred_bytes;
  for (const auto& [pointer, block] : blocks_) {
    if (block.state != detail::Block::State::kCached) continue;
    result.largest_cached_block = std::max(result.largest_cached_block, block.bytes);
    if (!block.is_whole_segment()) result.inactive_split_bytes += block.bytes;
  }
  return result;
}

std::string CachingAllocator::describe_live() const {
  std::map<std::string, std::pair<int64_t, int64_t>> by_tag;
  for (const auto& [pointer, block] : blocks_) {
    if (block.state != detail::Block::State::kLive) continue;
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

std::string CachingAllocator::snapshot_json() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<const detail::Block*> heads;
  for (const auto& [pointer, block] : blocks_)
    if (!block.before) heads.push_back(&block);
  std::sort(heads.begin(), heads.end(),
            [](const detail::Block* a, const detail::Block* b) { return a->data < b->data; });
  auto segments = nlohmann::ordered_json::array();
  for (const detail::Block* head : heads) {
    int64_t bytes = 0;
    auto blocks = nlohmann::ordered_json::array();
    for (const detail::Block* block = head; block; block = block->after) {
      bytes += block->bytes;
      blocks.push_back({{"address", address(block->data)},
                        {"bytes", block->bytes},
                        {"state", name_of(block->state)},
                        {"tag", block->tag}});
    }
    segments.push_back({{"address", address(head->data)},
                        {"bytes", bytes},
                        {"stream", address(head->home->stream)},
                        {"pool", head->home->pool},
                        {"blocks", std::move(blocks)}});
  }
  const nlohmann::ordered_json all = {
      {"device", device_.str()}, {"name", source_.name}, {"segments", std::move(segments)}};
  return all.dump(1);
}

void CachingAllocator::out_of_memory(int64_t bytes) const {
  if (source_.check) source_.check();
  std::ostringstream out;
  out << "out of " << source_.name << " on " << device_ << ": requested " << megabytes(bytes) << " for " << current_tag
      << "; live " << megabytes(statistics_.live_bytes);
  const int64_t available = source_.available();
  int64_t others = 0;
  if (limit_ > 0) {
    out << " of a limit of " << megabytes(limit_);
  } else if (source_.total) {
    const int64_t total = source_.total();
    others = std::max<int64_t>(total - available - statistics_.reserved_bytes, 0);
    out << ", the device has " << megabytes(available) << " left of " << megabytes(total);
  } else {
    out << ", the machine has " << megabytes(available) << " left";
  }
  int64_t cached = 0, largest = 0, pooled = 0;
  for (const auto& [pointer, block] : blocks_) {
    if (block.state != detail::Block::State::kCached) continue;
    cached += block.bytes;
    if (block.home->pool != 0)
      pooled += block.bytes;
    else
      largest = std::max(largest, block.bytes);
  }
  if (cached > 0)
    out << "; cached " << megabytes(cached) << " between live blocks or for other streams, the largest piece "
        << megabytes(largest);
  if (pooled > 0) out << ", " << megabytes(pooled) << " of it kept for captured steps";
  out << "; held by: " << describe_live()
      << "; try a smaller batch or sequence length, or recompute activations with checkpoint()";
  if (!open_pools_.empty()) out << "; a step is being captured: call empty_cache() before the capture";
  // A CUDA context alone takes some hundred MiB.
  if (others > (int64_t{1} << 30))
    out << "; " << megabytes(others) << " are held by other processes or libraries: end them or use another device";
  throw OutOfMemoryError(out.str());
}

}  // namespace tern
