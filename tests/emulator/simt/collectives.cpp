// Operations of several CUDA threads: barriers, warp operations, asynchronous copies; and the functions of runtime.h.

#include "tern/tests/emulator/simt/scheduler.h"

namespace simt {
namespace {

/// Calls f for the lanes of a set in ascending order.
template <class F>
void for_each_lane(unsigned lanes, F&& f) {
  for (; lanes != 0; lanes &= lanes - 1) f(static_cast<unsigned>(std::countr_zero(lanes)));
}

uint64_t combine_votes(Vote vote, uint64_t a, uint64_t b) {
  const bool less = static_cast<int64_t>(a) < static_cast<int64_t>(b);
  return vote == Vote::kAdd           ? a + b
         : vote == Vote::kMin         ? (less ? a : b)
         : vote == Vote::kMax         ? (less ? b : a)
         : vote == Vote::kUnsignedMin ? std::min(a, b)
         : vote == Vote::kUnsignedMax ? std::max(a, b)
         : vote == Vote::kAnd         ? a & b
         : vote == Vote::kXor         ? a ^ b
                                      : a | b;  // kOr; also kBallot, for which each lane has one bit
}

void take_vote(Warp& warp, Vote vote, unsigned lanes) {
  if (vote == Vote::kMatch) {
    for_each_lane(lanes, [&](unsigned lane) {
      uint64_t equal = 0;
      for_each_lane(lanes, [&](unsigned other) { equal |= uint64_t{warp.in[other] == warp.in[lane]} << other; });
      warp.out[lane] = equal;
    });
    return;
  }
  uint64_t result = 0;
  bool first = true;
  for_each_lane(lanes, [&](unsigned lane) {
    const uint64_t value = vote == Vote::kBallot ? warp.in[lane] << lane : warp.in[lane];
    result = first ? value : combine_votes(vote, result, value);
    first = false;
  });
  for_each_lane(lanes, [&](unsigned lane) { warp.out[lane] = result; });
}

}  // namespace

// --- block ---

void Scheduler::open_barrier() {
  Barrier& barrier = barrier_;
  barrier.result = barrier.kind == BarrierKind::kCount ? barrier.votes
                   : barrier.kind == BarrierKind::kAnd ? barrier.votes == thread_count_
                                                       : barrier.kind == BarrierKind::kOr && barrier.votes > 0;
  barrier.arrivals = 0;
  barrier.votes = 0;
  ++barrier.generation;
  for (int t = 0; t < thread_count_; ++t) {
    if (threads_[t].state != State::kAtBarrier) continue;
    threads_[t].state = State::kReady;
    warps_[t / 32].ready |= 1u << (t % 32);
  }
}

int Scheduler::block_barrier(BarrierKind kind, bool predicate, Location where) {
  Barrier& barrier = barrier_;
  if (live_ != thread_count_)
    fail("__syncthreads after ", thread_count_ - live_, " threads have left the kernel, ", where);
  if (barrier.arrivals == 0) {
    barrier.kind = kind;
    barrier.where = where;
  } else if (barrier.kind != kind || !same_place(barrier.where, where)) {
    fail("threads of one block wait at different barriers: ", barrier.where, " and ", where);
  }
  barrier.votes += predicate ? 1 : 0;
  void* key = &barrier.keys[barrier.generation % 2];
  sanitizer::release(key);
  if (++barrier.arrivals == thread_count_)
    open_barrier();
  else
    wait_in(State::kAtBarrier, where);
  sanitizer::acquire(key);
  return barrier.result;
}

// --- warp ---

void Scheduler::finish(Warp& warp, WarpOperation& operation, int warp_index) {
  const unsigned lanes = operation.arrived;
  switch (operation.kind) {
    case WarpKind::kBarrier:
      break;
    case WarpKind::kShuffle:
      for_each_lane(lanes, [&](unsigned lane) {
        const unsigned source = warp.source[lane] % 32;
        warp.out[lane] = (lanes >> source & 1u) != 0 ? warp.in[source] : ~uint64_t{0};
      });
      break;
    case WarpKind::kVote:
      take_vote(warp, operation.vote, lanes);
      break;
    case WarpKind::kCombine:
      if (lanes != operation.mask) fail("a warp-wide instruction lacks lanes that left the kernel, ", operation.where);
      operation.combine(warp.argument, lanes);
      break;
  }
  operation.arrived = 0;
  --warp.pending;
  for_each_lane(lanes, [&](unsigned lane) {
    Thread& thread = threads_[warp_index * 32 + static_cast<int>(lane)];
    if (thread.state != State::kAtWarpOperation) return;
    thread.state = State::kReady;
    warp.ready |= 1u << lane;
  });
}

void Scheduler::arrive(unsigned mask, WarpKind kind, Vote vote, Combine combine, Location where) {
  Warp& own = warp();
  const unsigned me = 1u << lane();
  if ((mask & me) == 0) fail("a warp operation is called by lane ", lane(), ", which is not in its mask, ", where);
  WarpOperation& operation = own.operations[std::countr_zero(mask)];
  if (operation.arrived == 0) {
    operation.mask = mask;
    operation.kind = kind;
    operation.vote = vote;
    operation.combine = combine;
    operation.where = where;
    ++own.pending;
  } else if (operation.mask != mask || operation.kind != kind || operation.vote != vote ||
             operation.combine != combine || !same_place(operation.where, where)) {
    fail("lanes of one warp execute different warp operations: ", operation.where, " and ", where);
  }
  operation.arrived |= me;
  if (operation.arrived == (mask & own.alive))
    finish(own, operation, running_ / 32);
  else
    wait_in(State::kAtWarpOperation, where);
}

void Scheduler::warp_barrier(unsigned mask, Location where) {
  // Two keys in turn, as for block barriers; the warp's memory serves as their addresses.
  void* key = &warp().in[thread().warp_barriers++ % 2];
  sanitizer::release(key);
  arrive(mask, WarpKind::kBarrier, Vote::kBallot, nullptr, where);
  sanitizer::acquire(key);
}

// --- runtime.h ---

void set_order(Order order) { Scheduler::current().order = order; }
Stats stats() { return Scheduler::current().stats; }
void reset_stats() { Scheduler::current().stats = {}; }

void run_grid(dim3 grid, dim3 block, size_t dynamic_shared_bytes, void (*thread_function)(void*), void* context) {
  Scheduler::current().run_grid(grid, block, dynamic_shared_bytes, thread_function, context);
}

unsigned lane() { return Scheduler::current().lane(); }
unsigned alive_lanes() { return Scheduler::current().warp().alive; }
void yield() { Scheduler::current().yield(); }

void fail(const char* message, Location where) { Scheduler::current().fail(message, ", ", where); }

int block_barrier(BarrierKind kind, bool predicate, Location where) {
  return Scheduler::current().block_barrier(kind, predicate, where);
}
void warp_barrier(unsigned mask, Location where) { Scheduler::current().warp_barrier(mask, where); }

uint64_t shuffle(unsigned mask, uint64_t value, unsigned source, Location where) {
  Scheduler& scheduler = Scheduler::current();
  Warp& warp = scheduler.warp();
  const unsigned lane = scheduler.lane();
  warp.in[lane] = value;
  warp.source[lane] = source;
  scheduler.arrive(mask, WarpKind::kShuffle, Vote::kBallot, nullptr, where);
  return warp.out[lane];
}

uint64_t vote(unsigned mask, uint64_t value, Vote kind, Location where) {
  Scheduler& scheduler = Scheduler::current();
  Warp& warp = scheduler.warp();
  const unsigned lane = scheduler.lane();
  warp.in[lane] = value;
  scheduler.arrive(mask, WarpKind::kVote, kind, nullptr, where);
  return warp.out[lane];
}

void warp_operation(unsigned mask, void* argument, Combine combine, Location where) {
  Scheduler& scheduler = Scheduler::current();
  scheduler.warp().argument[scheduler.lane()] = argument;
  scheduler.arrive(mask, WarpKind::kCombine, Vote::kBallot, combine, where);
}

void check_access(const void* pointer, size_t bytes, Access access, Location where) {
  Scheduler& scheduler = Scheduler::current();
  if (reinterpret_cast<uintptr_t>(pointer) % bytes != 0) fail("a misaligned access", where);
  const bool shared = scheduler.is_shared(pointer, bytes);
  if (access == Access::kShared && !shared) fail("an address outside shared memory", where);
  if (shared) {
    if (access == Access::kStore) scheduler.note_written(pointer, bytes);
    return;
  }
  (access == Access::kLoad ? scheduler.stats.loaded_bytes : scheduler.stats.stored_bytes) += bytes;
}

static void land(Scheduler& scheduler, const PendingCopy& copy) {
  sanitizer::note_write(copy.destination, sizeof copy.bytes);
  scheduler.note_written(copy.destination, sizeof copy.bytes);
  const sanitizer::Unchecked unchecked;
  std::memcpy(copy.destination, copy.bytes, sizeof copy.bytes);
}

void copy_async(void* to_shared, const void* from_global, bool on, Location where) {
  constexpr size_t kBytes = 16;
  Scheduler& scheduler = Scheduler::current();
  check_access(to_shared, kBytes, Access::kShared, where);
  PendingCopy copy{to_shared, scheduler.thread().copy_group, {}};
  if (on) {
    if (scheduler.is_shared(from_global, kBytes)) fail("the source is in shared memory", where);
    check_access(from_global, kBytes, Access::kLoad, where);
    sanitizer::note_read(from_global, kBytes);
    const sanitizer::Unchecked unchecked;
    std::memcpy(copy.bytes, from_global, kBytes);
  }
  if (scheduler.happens_early()) {
    land(scheduler, copy);
  } else {
    const sanitizer::Unchecked unchecked;
    scheduler.thread().copies.push_back(copy);
  }
}

void copy_async_commit() { ++Scheduler::current().thread().copy_group; }

void copy_async_wait(int newest) {
  Thread& thread = Scheduler::current().thread();
  size_t landed = 0;
  for (; landed < thread.copies.size(); ++landed) {
    const PendingCopy& copy = thread.copies[landed];
    if (static_cast<int>(thread.copy_group - copy.group) <= newest) break;
    land(Scheduler::current(), copy);
  }
  const sanitizer::Unchecked unchecked;
  thread.copies.erase(thread.copies.begin(), thread.copies.begin() + static_cast<std::ptrdiff_t>(landed));
}

void* dynamic_shared() { return Scheduler::current().dynamic_shared(); }
void* allocate_shared(size_t bytes, size_t alignment) { return Scheduler::current().allocate_shared(bytes, alignment); }
uint64_t block_serial() { return Scheduler::current().serial; }

}  // namespace simt
