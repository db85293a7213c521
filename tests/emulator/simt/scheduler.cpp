#include "tern/tests/emulator/simt/scheduler.h"

#include <sys/mman.h>

#include <map>

thread_local constinit simt::Index threadIdx, blockIdx, blockDim, gridDim;

namespace simt {
namespace {

char* map_memory(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw Error("the emulator cannot map its memory");
  return static_cast<char*>(memory);
}

size_t round_up(size_t value, size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

}  // namespace

std::ostream& operator<<(std::ostream& out, const Location& where) {
  const std::string_view file = where.file_name();
  return out << file.substr(file.rfind('/') + 1) << ':' << where.line();
}

bool same_place(const Location& a, const Location& b) {
  return a.line() == b.line() && a.column() == b.column() &&
         (a.file_name() == b.file_name() || std::string_view(a.file_name()) == b.file_name());
}

Scheduler& Scheduler::current() {
  static thread_local constinit Scheduler* known = nullptr;  // avoids the initialisation check of owner in every call
  if (known == nullptr) {
    const sanitizer::Unchecked unchecked;
    static thread_local std::unique_ptr<Scheduler> owner;
    owner = std::make_unique<Scheduler>();
    known = owner.get();
  }
  return *known;
}

// ThreadSanitizer would confuse the successive threads of one stack: under it each thread has a separate fiber, and two
// sets of fibers alternate between blocks.
Scheduler::Scheduler() : fiber_count_(sanitizer::has_thread() ? 2 * kMaxThreads : kMaxThreads) {
  stacks_ = map_memory(kStackBytes * static_cast<size_t>(fiber_count_));
  arena_ = map_memory(kArenaBytes);
  written_ = std::make_unique<Written[]>(kArenaBytes / 16);
  fibers_ = std::make_unique<Fiber[]>(fiber_count_);
  for (int f = 0; f < fiber_count_; ++f) mprotect(stacks_ + f * kStackBytes, 4096, PROT_NONE);
  host_.adopt_host_stack();
}

Scheduler::~Scheduler() {
  munmap(stacks_, kStackBytes * static_cast<size_t>(fiber_count_));
  sanitizer::unpoison(arena_, kArenaBytes);
  munmap(arena_, kArenaBytes);
}

uint64_t Scheduler::random() {
  random_state_ ^= random_state_ << 13;
  random_state_ ^= random_state_ >> 7;
  random_state_ ^= random_state_ << 17;
  return random_state_;
}

unsigned Scheduler::pick(unsigned lanes) {
  switch (order.kind) {
    case Order::kForward:
      return std::countr_zero(lanes);
    case Order::kReverse:
      return 31 - std::countl_zero(lanes);
    default: {
      const unsigned turn = random() % 32;
      return (std::countr_zero(std::rotr(lanes, static_cast<int>(turn))) + turn) % 32;
    }
  }
}

bool Scheduler::happens_early() {
  return order.kind == Order::kReverse || (order.kind == Order::kRandom && random() % 2 == 0);
}

void Scheduler::set_running(int thread) {
  running_ = thread;
  const unsigned t = static_cast<unsigned>(thread);
  if (t < blockDim.x)
    threadIdx = {t, 0, 0};
  else
    threadIdx = {t % blockDim.x, t / blockDim.x % blockDim.y, t / (blockDim.x * blockDim.y)};
}

void Scheduler::run_grid(dim3 grid, dim3 block, size_t dynamic_bytes, void (*thread_function)(void*), void* context) {
  const auto check = [](bool condition, const char* message) {
    if (!condition) throw Error(std::string("invalid launch configuration: ") + message);
  };
  check(!in_grid_, "a kernel cannot launch a kernel");
  check(grid.x > 0 && grid.y > 0 && grid.z > 0, "the grid is empty");
  check(grid.x <= 0x7fffffffu && grid.y <= 65535 && grid.z <= 65535, "the grid is larger than 2147483647x65535x65535");
  check(block.x > 0 && block.y > 0 && block.z > 0, "the block is empty");
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  check(block.x <= 1024 && block.y <= 1024 && block.z <= 64 && threads <= kMaxThreads,
        "a block has at most 1024x1024x64 and 1024 threads in all");
  check(dynamic_bytes <= kSharedLimit, "more dynamic shared memory than 227 KiB");

  thread_function_ = thread_function;
  context_ = context;
  thread_count_ = static_cast<int>(threads);
  warp_count_ = (thread_count_ + 31) / 32;
  dynamic_bytes_ = dynamic_bytes;
  random_state_ = order.seed * 0x9e3779b97f4a7c15ull + 1;
  blockDim = {block.x, block.y, block.z};
  gridDim = {grid.x, grid.y, grid.z};
  sanitizer::release(&host_to_threads_);
  ++stats.launches;
  const uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
  const uint64_t turn = order.kind == Order::kRandom ? random() % blocks : 0;
  in_grid_ = true;
  for (uint64_t i = 0; i < blocks; ++i) {
    const uint64_t b = order.kind == Order::kReverse ? blocks - 1 - i : (i + turn) % blocks;
    last_blocks_ = i + 2 >= blocks;
    run_block({static_cast<unsigned>(b % grid.x), static_cast<unsigned>(b / grid.x % grid.y),
               static_cast<unsigned>(b / grid.x / grid.y)});
  }
  in_grid_ = false;
  sanitizer::acquire(&threads_to_host_);
}

void Scheduler::run_block(dim3 index) {
  blockIdx = {index.x, index.y, index.z};
  ++serial;
  ++stats.blocks;
  stats.threads += static_cast<uint64_t>(thread_count_);
  prepare_shared();
  prepare_threads();
  while (live_ > 0) {
    const int first = order.kind == Order::kRandom ? static_cast<int>(random() % warp_count_) : 0;
    bool progress = false;
    for (int k = 0; k < warp_count_ && live_ > 0; ++k) {
      const int warp = order.kind == Order::kReverse ? warp_count_ - 1 - k : (first + k) % warp_count_;
      progress |= run_some_of(warp);
    }
    if (!progress && live_ > 0) abort_launch(deadlock());
  }
  check_products();
  check_red_zones();
}

/// Fills a block's shared memory with NaN (and -1), so that reads before a write are visible.
void Scheduler::prepare_shared() {
  sanitizer::unpoison(arena_, kArenaBytes);
  {
    const sanitizer::Unchecked unchecked;
    // A new mapping makes ThreadSanitizer forget the previous block's accesses without ordering the blocks.
    if (sanitizer::has_thread() && arena_used_ > 0)
      mmap(arena_, round_up(arena_used_, 4096), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    arena_used_ = dynamic_bytes_ + kRedZone;
    std::memset(arena_, 0xff, arena_used_);
    red_zones_.assign(1, dynamic_bytes_);
  }
  static_bytes_ = 0;
  sanitizer::poison(arena_ + dynamic_bytes_, kArenaBytes - dynamic_bytes_);
}

void Scheduler::prepare_threads() {
  const sanitizer::Unchecked unchecked;
  for (int w = 0; w < warp_count_; ++w) {
    const int lanes = std::min(32, thread_count_ - 32 * w);
    Warp& warp = warps_[w];
    warp.fresh = warp.alive = lanes == 32 ? ~0u : (1u << lanes) - 1;
    warp.ready = 0;
    warp.pending = 0;
    warp.started.clear();
    for (WarpOperation& operation : warp.operations) operation.arrived = 0;
  }
  for (int t = 0; t < thread_count_; ++t) {
    Thread& thread = threads_[t];
    thread.state = State::kFresh;
    thread.fiber = -1;
    thread.warp_barriers = 0;
    thread.copies.clear();
    thread.copy_group = 0;
    thread.product_group = 0;
    thread.products_fenced = false;
    thread.products.clear();
    thread.sums.clear();
  }
  barrier_.arrivals = 0;
  barrier_.votes = 0;
  free_fibers_.clear();
  for (int f = thread_count_ - 1; f >= 0; --f) free_fibers_.push_back(f);
  live_ = thread_count_;
  error_.clear();
}

/// Runs threads of the warp until none can continue (random order: up to a limit). Returns false when none could run.
bool Scheduler::run_some_of(int warp_index) {
  Warp& warp = warps_[warp_index];
  bool progress = false;
  uint64_t budget = order.kind == Order::kRandom ? 1 + random() % 64 : ~uint64_t{0};
  while ((warp.ready | warp.fresh) != 0 && budget-- > 0) {
    progress = true;
    unsigned candidates = warp.ready | warp.fresh;
    if (order.kind != Order::kRandom && warp.fresh != 0) candidates = warp.fresh;
    const unsigned lane = pick(candidates);
    const bool fresh = (warp.fresh >> lane & 1u) != 0;
    (fresh ? warp.fresh : warp.ready) &= ~(1u << lane);
    resume(warp_index * 32 + static_cast<int>(lane), fresh);
  }
  return progress;
}

void Scheduler::resume(int t, bool fresh) {
  Thread& thread = threads_[t];
  if (fresh) {
    const sanitizer::Unchecked unchecked;
    if (sanitizer::has_thread()) {
      thread.fiber = t + static_cast<int>(serial % 2) * kMaxThreads;
    } else {
      thread.fiber = free_fibers_.back();
      free_fibers_.pop_back();
    }
    Fiber& fiber = fibers_[thread.fiber];
    if (!fiber.is_prepared())
      fiber.prepare(stacks_ + thread.fiber * kStackBytes, kStackBytes, thread.fiber, &Scheduler::fiber_entry);
  }
  set_running(t);
  thread.state = State::kReady;
  ++stats.switches;
  host_.switch_to(fibers_[thread.fiber]);
  if (!error_.empty()) abort_launch(error_);
}

void Scheduler::fiber_entry() {
  Scheduler& scheduler = current();
  scheduler.fibers_[scheduler.thread().fiber].begin(scheduler.host_);
  scheduler.run_threads_on_fiber();
}

void Scheduler::run_threads_on_fiber() {
  const int fiber = thread().fiber;
  for (;;) {
    sanitizer::acquire(&host_to_threads_);
    do {
      thread().fiber = fiber;
      thread().state = State::kReady;
      try {
        thread_function_(context_);
      } catch (const std::exception& exception) {
        set_error(concatenate("an exception left the kernel: ", exception.what()));
      }
      if (!error_.empty()) leave();
      thread_done();
    } while (take_fresh());
    // In earlier blocks the fiber's next thread inherits this thread's order.
    if (last_blocks_) sanitizer::release(&threads_to_host_);
    if (!sanitizer::has_thread()) free_fibers_.push_back(fiber);
    fibers_[fiber].switch_to(host_);
  }
}

void Scheduler::thread_done() {
  if (!thread().products.empty())
    set_error(concatenate("a thread exits the kernel before waiting for its product, ", thread().products[0].where));
  thread().state = State::kDone;
  --live_;
  Warp& own = warp();
  own.alive &= ~(1u << lane());
  if (own.pending > 0) {
    for (WarpOperation& operation : own.operations) {
      if (operation.arrived != 0 && operation.arrived == (operation.mask & own.alive))
        finish(own, operation, running_ / 32);
    }
  }
  if (barrier_.arrivals > 0 && barrier_.arrivals == live_)
    set_error(concatenate(thread_count_ - live_, " threads left the kernel while the others wait at ", barrier_.where));
}

/// Continues on the same stack with the warp's next thread that has not started, without a switch.
bool Scheduler::take_fresh() {
  Warp& own = warp();
  if (sanitizer::has_thread() || order.kind == Order::kRandom || own.fresh == 0 || !error_.empty()) return false;
  const unsigned next = pick(own.fresh);
  own.fresh &= ~(1u << next);
  set_running(running_ / 32 * 32 + static_cast<int>(next));
  return true;
}

void Scheduler::wait_in(State state, Location where) {
  thread().state = state;
  thread().where = where;
  const int fiber = thread().fiber;
  fibers_[fiber].switch_to(host_);
}

void Scheduler::yield() {
  warp().ready |= 1u << lane();
  fibers_[thread().fiber].switch_to(host_);
}

void Scheduler::set_error(std::string message) {
  const sanitizer::Unchecked unchecked;
  error_ = std::move(message);
}

void Scheduler::leave() {
  for (;;) fibers_[thread().fiber].switch_to(host_);
}

/// Throws, and discards the stacks of the block's threads.
void Scheduler::abort_launch(const std::string& message) {
  for (int f = 0; f < fiber_count_; ++f) fibers_[f].abandon(host_);
  in_grid_ = false;
  throw Error(concatenate(message, " (block ", blockIdx.x, ",", blockIdx.y, ",", blockIdx.z, ", thread ", threadIdx.x,
                          ",", threadIdx.y, ",", threadIdx.z, ")"));
}

std::string Scheduler::deadlock() const {
  std::map<std::string, int> places;
  for (int t = 0; t < thread_count_; ++t) {
    const Thread& thread = threads_[t];
    const char* const operation = thread.state == State::kAtBarrier ? "barrier, " : "warp operation, ";
    ++places[thread.state == State::kDone ? "left the kernel" : concatenate("wait at the ", operation, thread.where)];
  }
  std::string message = "deadlock:";
  for (const auto& [place, count] : places) message += " " + std::to_string(count) + " threads " + place + ";";
  message.pop_back();
  return message;
}

void* Scheduler::allocate_shared(size_t bytes, size_t alignment) {
  static_bytes_ = round_up(static_bytes_, alignment) + bytes;
  if (static_bytes_ > kStaticSharedLimit) fail("too much shared memory: more than 48 KiB of variables");
  if (static_bytes_ + dynamic_bytes_ > kSharedLimit) fail("too much shared memory: more than 227 KiB in a block");
  const size_t offset = round_up(arena_used_, alignment);
  arena_used_ = offset + bytes + kRedZone;
  if (arena_used_ > kArenaBytes) fail("too many variables in shared memory");
  const sanitizer::Unchecked unchecked;
  red_zones_.push_back(offset + bytes);
  sanitizer::unpoison(arena_ + offset, bytes + kRedZone);
  std::memset(arena_ + offset, 0xff, bytes + kRedZone);
  sanitizer::poison(arena_ + offset + bytes, kRedZone);
  return arena_ + offset;
}

/// Without AddressSanitizer a write just after a variable is only detected at the end of the block.
void Scheduler::check_red_zones() {
  sanitizer::unpoison(arena_, kArenaBytes);
  for (size_t zone : red_zones_)
    for (size_t i = 0; i < kRedZone; ++i) {
      if (static_cast<unsigned char>(arena_[zone + i]) != 0xff)
        abort_launch("a write past the end of a variable in shared memory");
    }
}

bool Scheduler::is_shared(const void* pointer, size_t bytes) const {
  const char* p = static_cast<const char*>(pointer);
  return p >= arena_ && p + bytes <= arena_ + kArenaBytes;
}

}  // namespace simt
