#pragma once
// The state of the running block, and the selection of the next thread. One Scheduler per host thread.

#include <cstdint>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "tern/tests/emulator/simt/fiber.h"
#include "tern/tests/emulator/simt/sanitizers.h"
#include "tern/tests/emulator/simt/simt.h"

namespace simt {

inline constexpr int kMaxThreads = 1024;
inline constexpr int kMaxWarps = kMaxThreads / 32;
inline constexpr size_t kStackBytes = 256 * 1024;        // per thread; only pages in use take memory
inline constexpr size_t kStaticSharedLimit = 48 * 1024;  // CUDA's limit for variables
inline constexpr size_t kSharedLimit = 227 * 1024;       // sm_90's limit for variables and dynamic memory together
inline constexpr size_t kArenaBytes = 384 * 1024;        // includes red zones between variables
inline constexpr size_t kRedZone = 64;

enum class State : uint8_t { kFresh, kReady, kAtBarrier, kAtWarpOperation, kDone };

struct PendingCopy {
  void* destination;
  unsigned group;
  unsigned char bytes[16];
};

struct PendingProduct {
  Product product;
  unsigned group;
  bool done;
  Location where;
};
/// Registers that products write, and their values until the program has waited for the last of these products.
struct PendingSums {
  float* registers;
  std::vector<float> values;
};

struct Thread {
  State state = State::kFresh;
  int fiber = -1;
  unsigned warp_barriers = 0;  // number passed so far
  unsigned copy_group = 0;
  std::vector<PendingCopy> copies;
  unsigned product_group = 0;
  bool products_fenced = false;
  std::vector<PendingProduct> products;
  std::vector<PendingSums> sums;
  uint32_t proxy_fences = 0;  // number executed so far, in all blocks
  Location where;             // the operation that the thread waits at
};

enum class WarpKind : uint8_t { kBarrier, kShuffle, kVote, kCombine };

/// An operation at which some lanes of a warp have arrived.
struct WarpOperation {
  unsigned mask = 0, arrived = 0;
  WarpKind kind = WarpKind::kBarrier;
  Vote vote = Vote::kBallot;
  Combine combine = nullptr;
  Location where;
};

struct Warp {
  unsigned fresh = 0, ready = 0, alive = 0;  // sets of lanes
  int pending = 0;                           // number of operations with arrived lanes
  uint64_t in[32] = {}, out[32] = {};
  unsigned source[32] = {};
  void* argument[32] = {};
  WarpOperation operations[32];  // by the lowest lane of the mask: pending masks are disjoint
  std::vector<Product> started;  // products so far; `sums` and `left` are not valid
};

/// The last write to 16 bytes of shared memory by an access that the emulator checks.
struct Written {
  uint64_t serial = 0;  // the block's serial
  int thread = 0;
  uint32_t proxy_fences = 0;  // the thread's count at that time
};

struct Barrier {
  int arrivals = 0, votes = 0;
  int result = 0;  // of the previous generation
  BarrierKind kind = BarrierKind::kPlain;
  unsigned generation = 0;
  // Keys for ThreadSanitizer, two in turn: a fast thread at the next barrier must not pass its clock to a slow thread
  // at this one.
  uint64_t keys[2] = {};
  Location where;
};

bool same_place(const Location& a, const Location& b);
/// Writes the form "norm.cu:12".
std::ostream& operator<<(std::ostream& out, const Location& where);

template <class... Parts>
std::string concatenate(const Parts&... parts) {
  const sanitizer::Unchecked unchecked;
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

class Scheduler {
 public:
  /// The Scheduler of the calling host thread.
  static Scheduler& current();
  Scheduler();
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;

  void run_grid(dim3 grid, dim3 block, size_t dynamic_bytes, void (*thread_function)(void*), void* context);

  bool in_grid() const { return in_grid_; }

  // Called by the running thread.
  Thread& thread() { return threads_[running_]; }
  Warp& warp() { return warps_[running_ / 32]; }
  unsigned lane() const { return static_cast<unsigned>(running_) % 32; }
  /// Ends the launch. The parts (text, numbers, locations) are streamed in order. The thread's stack is discarded, so
  /// no object on it may own memory.
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) {
    set_error(concatenate(parts...));
    leave();
  }
  void yield();
  int block_barrier(BarrierKind kind, bool predicate, Location where);
  void warp_barrier(unsigned mask, Location where);
  /// Returns when every live lane of the mask has arrived and the results are available.
  void arrive(unsigned mask, WarpKind kind, Vote vote, Combine combine, Location where);
  void* dynamic_shared() { return arena_; }
  void* allocate_shared(size_t bytes, size_t alignment);
  bool is_shared(const void* pointer, size_t bytes) const;
  /// Whether an asynchronous copy or a product takes effect as soon as it is issued (see Order).
  bool happens_early();

  // products.cpp
  void start_product(const Product& product, Location where);
  void wait_for_products(int newest, Location where);
  void note_written(const void* shared, size_t bytes);
  const void* read_by_product(uint32_t address);

  Order order;
  Stats stats;
  uint64_t serial = 0;  // the block's serial

 private:
  static void fiber_entry();
  void run_threads_on_fiber();
  void run_block(dim3 index);
  void prepare_shared();
  void prepare_threads();
  void check_red_zones();
  void check_products();
  void start_in_warp(int warp_index);
  void compute_products(int warp_index, int newest);
  bool run_some_of(int warp);
  void resume(int thread, bool fresh);
  void thread_done();
  bool take_fresh();
  void set_running(int thread);
  unsigned pick(unsigned lanes);
  uint64_t random();
  void wait_in(State state, Location where);
  void open_barrier();
  void finish(Warp& warp, WarpOperation& operation, int warp_index);
  void set_error(std::string message);
  [[noreturn]] void leave();
  [[noreturn]] void abort_launch(const std::string& message);
  std::string deadlock() const;

  char* stacks_ = nullptr;
  char* arena_ = nullptr;
  size_t dynamic_bytes_ = 0, static_bytes_ = 0;
  size_t arena_used_ = 0;
  std::vector<size_t> red_zones_;  // offsets; filled with 0xff unless overwritten
  std::unique_ptr<Fiber[]> fibers_;
  int fiber_count_ = 0;
  std::vector<int> free_fibers_;
  Fiber host_;
  Thread threads_[kMaxThreads];
  Warp warps_[kMaxWarps];
  Barrier barrier_;
  std::unique_ptr<Written[]> written_;  // for each 16 bytes of the arena
  int thread_count_ = 0, warp_count_ = 0, live_ = 0, running_ = -1;
  uint64_t random_state_ = 1;
  std::string error_;
  bool in_grid_ = false;
  bool last_blocks_ = false;  // the grid's last two blocks: no later block reuses their fibers
  void (*thread_function_)(void*) = nullptr;
  void* context_ = nullptr;
  char host_to_threads_ = 0, threads_to_host_ = 0;  // keys for ThreadSanitizer
};

}  // namespace simt
