#include "tern/core/memory/allocator.h"

#include <algorithm>
#include <bit>
#include <new>

#include "tern/core/memory/address_sanitizer.h"
#include "tern/kernels/base/check.h"

namespace tern {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 60;

int64_t round_up(int64_t bytes, int64_t step) { return (bytes + step - 1) / step * step; }

}  // namespace

CachingAllocator::CachingAllocator(Device device, detail::MemorySource source)
    : device_(device), source_(std::move(source)) {
  TERN_CHECK(source_.alignment >= 64 && std::has_single_bit(static_cast<uint64_t>(source_.alignment)),
             "memory source: alignment must be a power of two of at least 64, got ", source_.alignment);
  TERN_CHECK(source_.segment_bytes >= 0 && source_.segment_bytes % (2 * source_.alignment) == 0,
             "memory source: segment_bytes must be 0 or a multiple of twice the alignment, got ",
             source_.segment_bytes);
  blocks_.max_load_factor(0.25f);  // every release looks up its block
}

CachingAllocator::~CachingAllocator() {
  for (const OpenPool& open : open_pools_) closed_pools_.push_back(open.pool);
  open_pools_.clear();
  for (const int64_t pool : std::vector<int64_t>(closed_pools_)) release_private_pool(pool);
  wait_for_deferred();
  give_back_cached();
}

int64_t CachingAllocator::round(int64_t bytes) const {
  return uses_segments() ? round_up(bytes, source_.alignment) : detail::round_to_class(bytes);
}

int64_t CachingAllocator::segment_size(int64_t rounded) const {
  const int64_t unit = source_.segment_bytes;
  if (unit == 0) return rounded;
  if (rounded <= unit / 2) return unit;
  return rounded <= 5 * unit ? 10 * unit : round_up(rounded, unit);
}

detail::FreeList& CachingAllocator::list_of(void* stream, int64_t pool, bool small) {
  for (const auto& list : lists_)
    if (list->stream == stream && list->pool == pool && list->small == small) return *list;
  lists_.push_back(std::make_unique<detail::FreeList>(stream, pool, small));
  return *lists_.back();
}

int64_t CachingAllocator::current_pool() const {
  for (const OpenPool& open : open_pools_)
    if (open.thread == std::this_thread::get_id()) return open.pool;
  return 0;
}

detail::Block* CachingAllocator::take_cached(detail::FreeList& list, int64_t bytes) {
  detail::Block* block = list.best_fit(bytes, uses_segments() ? INT64_MAX : bytes + bytes / 4);
  if (!block) return nullptr;
  list.remove(*block);
  split(*block, bytes);
  return block;
}

/// Allocates a new segment and cuts it to size; null when memory is exhausted or the limit is reached.
detail::Block* CachingAllocator::take_new(detail::FreeList& list, int64_t bytes, int64_t segment) {
  if (limit_ > 0 && statistics_.reserved_bytes + segment > limit_) return nullptr;
  if (source_.overcommits && segment >= detail::kHugePage && segment > source_.available()) return nullptr;
  void* pointer = source_.allocate(segment);
  if (!pointer) return nullptr;
  detail::Block* block = nullptr;
  try {
    block = &blocks_[pointer];
  } catch (const std::bad_alloc&) {
    source_.release(pointer, segment);
    return nullptr;
  }
  block->data = static_cast<char*>(pointer);
  block->bytes = segment;
  block->home = &list;
  statistics_.reserved_bytes += segment;
  ++statistics_.system_allocations;
  split(*block, bytes);
  return block;
}

/// Cuts a block that is in no list down to `bytes` and caches the rest if it is large enough to be useful.
void CachingAllocator::split(detail::Block& block, int64_t bytes) {
  if (!uses_segments()) return;
  const int64_t rest = block.bytes - bytes;
  if (block.home->small ? rest < source_.alignment : rest <= source_.segment_bytes / 2) return;
  detail::Block* right = nullptr;
  try {
    right = &blocks_[block.data + bytes];
  } catch (const std::bad_alloc&) {
    return;  // the block stays larger than the request
  }
  right->data = block.data + bytes;
  right->bytes = rest;
  right->home = block.home;
  right->before = &block;
  right->after = block.after;
  if (right->after) right->after->before = right;
  block.after = right;
  block.bytes = bytes;
  block.home->insert(*right);
  ++statistics_.splits;
}

detail::Block* CachingAllocator::find(detail::FreeList& list, int64_t bytes) {
  detail::Block* block = take_cached(list, bytes);
  const int64_t segment = segment_size(bytes);
  if (!block) block = take_new(list, bytes, segment);
  if (!block && open_pools_.empty()) {
    give_back_cached();
    block = take_new(list, bytes, segment);
    if (!block && first_deferred_) {
      wait_for_deferred();
      block = take_cached(list, bytes);
      if (!block) {
        give_back_cached();
        block = take_new(list, bytes, segment);
      }
    }
  }
  // When a whole segment does not fit, the request alone may.
  if (!block && bytes < segment) block = take_new(list, bytes, bytes);
  return block;
}

void* CachingAllocator::allocate(int64_t bytes, void* stream) {
  if (bytes <= 0) return nullptr;
  std::lock_guard<std::mutex> lock(mutex_);
  if (bytes > kMaxBytes) out_of_memory(bytes);
  const int64_t rounded = round(bytes);
  if (first_deferred_ && open_pools_.empty()) poll_deferred();
  void* owner = source_.used_by_host ? nullptr : stream;
  detail::Block* block = find(list_of(owner, current_pool(), rounded <= source_.segment_bytes / 2), rounded);
  if (!block) out_of_memory(rounded);
  block->state = detail::Block::State::kLive;
  block->tag = AllocationTag::current();
  if (source_.watched) {
    detail::allow_access(block->data, static_cast<size_t>(bytes));
    detail::forbid_access(block->data + bytes, static_cast<size_t>(block->bytes - bytes));
  }
  ++statistics_.allocations;
  statistics_.live_bytes += block->bytes;
  statistics_.peak_live_bytes = std::max(statistics_.peak_live_bytes, statistics_.live_bytes);
  statistics_.peak_reserved_bytes = std::max(statistics_.peak_reserved_bytes, statistics_.reserved_bytes);
  return block->data;
}

void CachingAllocator::release(void* pointer) noexcept {
  if (!pointer) return;
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = blocks_.find(pointer);
  if (found == blocks_.end() || found->second.state != detail::Block::State::kLive) return;
  detail::Block& block = found->second;
  statistics_.live_bytes -= block.bytes;
  if (block.uses.empty())
    cache(&block);
  else
    defer(block);
}

/// Merges a block that is in no list with its free neighbours and puts it into its free list.
void CachingAllocator::cache(detail::Block* block) noexcept {
  if (block->after && block->after->state == detail::Block::State::kCached) {
    block->home->remove(*block->after);
    block = merge(block, block->after);
  }
  if (block->before && block->before->state == detail::Block::State::kCached) {
    block->home->remove(*block->before);
    block = merge(block->before, block);
  }
  block->state = detail::Block::State::kCached;
  if (source_.watched) detail::forbid_access(block->data, static_cast<size_t>(block->bytes));
  block->home->insert(*block);
}

detail::Block* CachingAllocator::merge(detail::Block* left, detail::Block* right) noexcept {
  left->bytes += right->bytes;
  left->after = right->after;
  if (left->after) left->after->before = left;
  ++statistics_.merges;
  blocks_.erase(right->data);
  return left;
}

void CachingAllocator::record_stream(void* pointer, void* stream) {
  if (!source_.record || !pointer) return;
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = blocks_.find(pointer);
  TERN_CHECK(found != blocks_.end() && found->second.state == detail::Block::State::kLive,
             "record_stream: expected the address that allocate() gave on ", device_, ", got ", pointer);
  detail::Block& block = found->second;
  if (stream == block.home->stream && !source_.used_by_host) return;
  for (const detail::Block::StreamUse& use : block.uses)
    if (use.stream == stream) return;
  const bool known = std::any_of(other_streams_.begin(), other_streams_.end(),
                                 [&](const OtherStream& other) { return other.stream == stream; });
  if (!known) other_streams_.push_back({stream, false});
  block.uses.push_back({stream});
}

/// Queues a released block until its other streams have passed this point. During stream capture an event would become
/// part of the graph, so it is recorded after the capture.
void CachingAllocator::defer(detail::Block& block) noexcept {
  block.state = detail::Block::State::kDeferred;
  statistics_.deferred_bytes += block.bytes;
  if (open_pools_.empty())
    for (detail::Block::StreamUse& use : block.uses) use = {use.stream, source_.record(use.stream), true};
  block.previous = last_deferred_;
  block.next = nullptr;
  (last_deferred_ ? last_deferred_->next : first_deferred_) = &block;
  last_deferred_ = &block;
}

void CachingAllocator::undefer(detail::Block& block) noexcept {
  (block.previous ? block.previous->next : first_deferred_) = block.next;
  (block.next ? block.next->previous : last_deferred_) = block.previous;
  block.previous = block.next = nullptr;
  statistics_.deferred_bytes -= block.bytes;
  cache(&block);
}

/// Caches the deferred blocks whose events are done.
void CachingAllocator::poll_deferred() {
  for (OtherStream& other : other_streams_) other.busy = false;
  for (detail::Block *block = first_deferred_, *next = nullptr; block; block = next) {
    next = block->next;
    std::erase_if(block->uses, [this](detail::Block::StreamUse& use) { return is_finished(use); });
    if (block->uses.empty()) undefer(*block);
  }
}

/// The events of one stream complete in the order of the releases, so after the first event that is not done the later
/// events of that stream are not queried.
bool CachingAllocator::is_finished(detail::Block::StreamUse& use) {
  if (!use.recorded) use = {use.stream, source_.record(use.stream), true};
  if (!use.event) return true;
  const auto other = std::find_if(other_streams_.begin(), other_streams_.end(),
                                  [&](const OtherStream& o) { return o.stream == use.stream; });
  if (other->busy) return false;
  other->busy = !source_.done(use.event);
  if (!other->busy) source_.drop(use.event);
  return !other->busy;
}

void CachingAllocator::wait_for_deferred() {
  for (detail::Block *block = first_deferred_, *next = nullptr; block; block = next) {
    next = block->next;
    for (detail::Block::StreamUse& use : block->uses) {
      if (!use.recorded) use.event = source_.record(use.stream);
      if (!use.event) continue;
      source_.wait(use.event);
      source_.drop(use.event);
    }
    block->uses.clear();
    undefer(*block);
  }
}

void CachingAllocator::wait_for(void* stream) {
  if (!source_.record) return;
  void* event = source_.record(stream);
  if (!event) return;
  source_.wait(event);
  source_.drop(event);
}

/// Frees only whole segments of the common pool. Queued work may still use memory that its stream has released.
void CachingAllocator::give_back_cached() {
  for (const auto& list : lists_) {
    if (list->pool != 0) continue;
    bool waited = false;
    for (detail::Block *block = list->next_of(nullptr), *next = nullptr; block; block = next) {
      next = list->next_of(block);
      if (!block->is_whole_segment()) continue;
      if (!waited && !source_.used_by_host) wait_for(list->stream);
      waited = true;
      list->remove(*block);
      if (source_.watched) detail::allow_access(block->data, static_cast<size_t>(block->bytes));
      source_.release(block->data, block->bytes);
      statistics_.reserved_bytes -= block->bytes;
      blocks_.erase(block->data);
    }
  }
}

void CachingAllocator::empty_cache() {
  std::lock_guard<std::mutex> lock(mutex_);
  TERN_CHECK(open_pools_.empty(), "empty_cache: a step is being captured on ", device_,
             ", memory cannot be released during it; call it before or after");
  wait_for_deferred();
  give_back_cached();
}

void CachingAllocator::move_blocks(detail::FreeList& from, detail::FreeList& to) {
  for (auto& [pointer, block] : blocks_) {
    if (block.home != &from) continue;
    if (block.state == detail::Block::State::kCached) {
      from.remove(block);
      to.insert(block);
    }
    block.home = &to;
  }
}

void CachingAllocator::forget_stream(void* stream) {
  if (!stream) return;
  std::lock_guard<std::mutex> lock(mutex_);
  TERN_CHECK(open_pools_.empty(), "forget_stream: a step is being captured on ", device_,
             ", streams cannot be waited for during it; destroy the stream before or after");
  wait_for(stream);
  for (auto& [pointer, block] : blocks_)
    std::erase_if(block.uses, [&](const detail::Block::StreamUse& use) {
      if (use.stream == stream && use.event) source_.drop(use.event);
      return use.stream == stream;
    });
  for (size_t i = 0; i < lists_.size(); ++i) {
    if (lists_[i]->stream != stream) continue;
    detail::FreeList& target = list_of(nullptr, lists_[i]->pool, lists_[i]->small);
    move_blocks(*lists_[i], target);
  }
  std::erase_if(lists_, [&](const auto& list) { return list->stream == stream; });
  std::erase_if(other_streams_, [&](const OtherStream& other) { return other.stream == stream; });
}

int64_t CachingAllocator::begin_private_pool() {
  std::lock_guard<std::mutex> lock(mutex_);
  TERN_CHECK(current_pool() == 0, "begin_private_pool: this thread has an open pool on ", device_, " already");
  open_pools_.push_back({std::this_thread::get_id(), ++pools_});
  return pools_;
}

void CachingAllocator::end_private_pool(int64_t pool) {
  std::lock_guard<std::mutex> lock(mutex_);
  TERN_CHECK(pool > 0 && current_pool() == pool, "end_private_pool: pool ", pool, " is not open in this thread on ",
             device_);
  closed_pools_.push_back(pool);
  std::erase_if(open_pools_, [&](const OpenPool& open) { return open.pool == pool; });
}

void CachingAllocator::release_private_pool(int64_t pool) {
  std::lock_guard<std::mutex> lock(mutex_);
  TERN_CHECK(std::erase(closed_pools_, pool) == 1, "release_private_pool: pool ", pool, " on ", device_,
             " is open, released already or was never begun");
  for (size_t i = 0; i < lists_.size(); ++i) {
    if (lists_[i]->pool != pool) continue;
    detail::FreeList& target = list_of(lists_[i]->stream, 0, lists_[i]->small);
    move_blocks(*lists_[i], target);
  }
  std::erase_if(lists_, [&](const auto& list) { return list->pool == pool; });
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

}  // namespace tern
