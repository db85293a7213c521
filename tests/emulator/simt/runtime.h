#pragma once
// The emulator's interface for kernels (through simt.h and kernels/cuda/support) and for tests. There is one fiber per
// CUDA thread; the blocks of a grid run one after another in the launching host thread. The runtime is compiled without
// sanitizers and detects them at run time, so that one object file serves every build. ThreadSanitizer treats fibers as
// threads that only barriers and atomics order, and so finds races between CUDA threads.

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <stdexcept>

#include "tern/tests/emulator/simt/launcher.h"

/// For functions of the emulator that access the memory of several CUDA threads.
#define SIMT_INTERNAL __attribute__((no_sanitize("thread")))

/// Like CUDA's: unset dimensions are 1. Tests of host code also include CUDA's headers, which define the same type.
#ifdef SIMT_WITH_CUDA_HEADERS
#include <vector_types.h>
#else
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}  // NOLINT: as CUDA's
};
#endif

namespace simt {

using Location = std::source_location;

/// A kernel broke a rule of CUDA. The message gives the rule, file and line of the kernel, block and thread.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// --- for tests ---

/// The rule that selects the next thread, warp or block to run. Asynchronous copies complete at their wait (kForward),
/// when they are issued (kReverse), or at either (kRandom). Correct kernels give the same bits under all.
struct Order {
  enum Kind { kForward, kReverse, kRandom } kind = kForward;
  uint64_t seed = 0;
};
inline constexpr Order kSchedules[] = {{Order::kForward, 0}, {Order::kReverse, 0}, {Order::kRandom, 1}};

/// Applies to later launches of the calling host thread.
void set_order(Order order);

/// Totals of the calling host thread. Products: per warp, by wgmma. Bytes: of global memory, accessed by
/// support/vector.h and cp.async.
struct Stats {
  uint64_t launches = 0, blocks = 0, threads = 0, switches = 0, products = 0;
  uint64_t loaded_bytes = 0, stored_bytes = 0;
};
Stats stats();
void reset_stats();

// --- for launch() ---

/// Runs thread_function(context) once per CUDA thread. Throws Error.
void run_grid(dim3 grid, dim3 block, size_t dynamic_shared_bytes, void (*thread_function)(void*), void* context);

// --- for kernels ---

unsigned lane();
/// Lanes of the calling thread's warp that have not left the kernel.
unsigned alive_lanes();
/// Lets other threads run first.
void yield();
/// Ends the launch with an Error.
[[noreturn]] void fail(const char* message, Location where);
inline void require(bool condition, const char* message, Location where) {
  if (!condition) fail(message, where);
}

enum class BarrierKind : uint8_t { kPlain, kCount, kAnd, kOr };
/// __syncthreads and its variants. Returns 0, the number of threads with a true predicate, whether all have, or any.
int block_barrier(BarrierKind kind, bool predicate, Location where);
void warp_barrier(unsigned mask, Location where);

/// The value of lane `source`; all bits set when that lane does not take part (undefined in CUDA).
uint64_t shuffle(unsigned mask, uint64_t value, unsigned source, Location where);
enum class Vote : uint8_t { kBallot, kAdd, kMin, kMax, kUnsignedMin, kUnsignedMax, kAnd, kOr, kXor, kMatch };
uint64_t vote(unsigned mask, uint64_t value, Vote kind, Location where);
/// Every lane passes a pointer; the last lane to arrive runs combine(pointers of the 32 lanes, mask). Used for
/// tensor-core instructions.
using Combine = void (*)(void* const* lanes, unsigned mask);
void warp_operation(unsigned mask, void* argument, Combine combine, Location where);

enum class Access : uint8_t { kLoad, kStore, kShared };
/// Checks one access of `bytes` (1 to 16) bytes: it must be aligned to its size, and be in shared memory
/// if kShared. Counts accesses to global memory.
void check_access(const void* pointer, size_t bytes, Access access, Location where);

void copy_async(void* to_shared, const void* from_global, bool on, Location where);
void copy_async_commit();
void copy_async_wait(int newest);

// wgmma has two parts: kernels/cuda/support/wgmma.h implements the layouts, this part the order of operations. A
// product is computed when it starts or when the program waits for it (see Order); its result is NaN in between.

/// The rows of a product that one warp computes, as an argument of the function that computes them.
struct WarpProduct {
  int warp;                  // in its warpgroup
  float* sums[32];           // of each lane
  const uint32_t* left[32];  // the left operand's registers of each lane; null: left_operand
  uint64_t left_operand, right_operand;
};
/// One lane's part of a product.
struct Product {
  float* sums;
  int count;
  const uint32_t* left;
  uint64_t left_operand, right_operand;
  bool accumulate;
  void (*multiply)(const WarpProduct&);
};
void fence_products();
void start_product(const Product& product, Location where);
void commit_products();
void wait_for_products(int newest, Location where);
/// Makes this thread's writes to shared memory visible to products.
void async_proxy_fence();
/// Address of a pointer to shared memory, in bytes from its start.
uint32_t shared_address(const void* pointer);
/// 16 bytes of shared memory for a product: an error if a thread wrote them without async_proxy_fence().
const void* read_by_product(uint32_t address);

void* dynamic_shared();
void* allocate_shared(size_t bytes, size_t alignment);
/// Different for every block, never 0.
uint64_t block_serial();

/// A block's variable of type T, one per declaration: `tag` is a lambda, whose type identifies the declaration.
template <class T, class Tag>
SIMT_INTERNAL T& shared_variable(Tag) {
  static thread_local struct {
    uint64_t serial;
    void* address;
  } cached;
  if (cached.serial != block_serial()) {
    cached.address = allocate_shared(sizeof(T), alignof(T) < 16 ? 16 : alignof(T));
    cached.serial = block_serial();
  }
  return *static_cast<T*>(cached.address);
}

}  // namespace simt
