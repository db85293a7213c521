#pragma once
// Products of a warpgroup (four warps) on the tensor cores of sm_90a: wgmma reads shared memory asynchronously to the
// threads. Each instruction is given in PTX and in an emulated version. Layouts: PTX ISA, "Asynchronous warpgroup-level
// matrix multiply-accumulate instructions", m64nNk16 with 16-bit operands.
//
// Order of a product: write operands to shared memory, async_proxy_fence() by the writing threads, a barrier,
// wgmma_fence(), any number of wgmma(), wgmma_commit(), wgmma_wait(). From wgmma() to wgmma_wait() no thread may access
// its sums, its left operand in registers (which must remain unchanged) or the shared memory that it reads.

#include "tern/kernels/cuda/support/mma.h"

namespace tern::kernels::cuda {

inline constexpr int kWarpgroupSize = 4 * kWarpSize;

/// True when a kernel with wgmma can run on the stream's device: it has compute capability 9.0 and this build contains
/// code for sm_90a, not only for sm_90, which later devices also run.
inline bool has_wgmma([[maybe_unused]] Stream stream) {
#ifdef TERN_SIMT
  return simt::compute_capability() == 90;
#elif defined(TERN_CUDA_SM90A)
  int major = 0, minor = 0;
  TERN_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, stream.index));
  TERN_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, stream.index));
  return major == 9 && minor == 0;
#else
  return false;
#endif
}

/// kRows rows of kDim 16-bit values in shared memory, in wgmma's layout with 128-byte swizzle: consecutive panels of 64
/// columns; in a panel a row has 128 bytes, and its eight 16-byte pieces are permuted depending on the row's number.
/// The first row's address is a multiple of kAlignment.
template <int kDim_, int kRows_>
struct SwizzledRows {
  static_assert(kDim_ % 64 == 0 && kRows_ % 8 == 0);
  static constexpr int kDim = kDim_, kRows = kRows_;
  static constexpr int kElements = kDim * kRows;
  static constexpr int kAlignment = 1024;
  static constexpr int kPanel = kRows * 64;
  /// Index of an element, in elements.
  __device__ static constexpr int at(int row, int col) {
    return col / 64 * kPanel + row * 64 + ((col / 8 ^ row) % 8) * 8 + col % 8;
  }
};

/// An operand in shared memory as PTX's matrix descriptor, for a product c = a b over 16 values of k.
/// rows_operand: the tile's rows are rows of a, or columns of b; k runs along the tile's columns.
struct RowsOperand {
  uint64_t descriptor;
};
/// columns_operand: the tile's columns, from the first one on, are columns of b; k runs along its rows.
struct ColumnsOperand {
  uint64_t descriptor;
};

namespace detail {
/// Bits 0-13 the address, 16-29 and 32-45 two distances, all in units of 16 bytes; 62-63 the swizzle (1: 128 bytes).
__device__ inline uint64_t wgmma_descriptor(const void* at, int leading_bytes, int stride_bytes) {
#ifdef TERN_SIMT
  const uint32_t address = simt::shared_address(at);
#else
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(at));
#endif
  return static_cast<uint64_t>((address & 0x3ffff) >> 4) | static_cast<uint64_t>(leading_bytes >> 4) << 16 |
         static_cast<uint64_t>(stride_bytes >> 4) << 32 | uint64_t{1} << 62;
}
}  // namespace detail

/// The operand of rows from `row` (a multiple of 8) on, columns col .. col + 15 (col a multiple of 16).
template <class Tile, class T>
__device__ inline RowsOperand rows_operand(const T* tile, int row, int col) {
  static_assert(sizeof(T) == 2, "wgmma: 16-bit values");
  // Hardware swizzles addresses: within a row, k advances by 32 bytes as in an unswizzled layout.
  const T* at = tile + col / 64 * Tile::kPanel + row * 64 + col % 64;
  return {detail::wgmma_descriptor(at, 16, 1024)};
}
/// The operand of rows row .. row + 15 (row a multiple of 8), all columns.
template <class Tile, class T>
__device__ inline ColumnsOperand columns_operand(const T* tile, int row) {
  static_assert(sizeof(T) == 2, "wgmma: 16-bit values");
  return {detail::wgmma_descriptor(tile + row * 64, Tile::kPanel * 2, 1024)};
}

/// Makes this thread's writes to shared memory (also completed cp_async16) visible to later wgmma. To be called before
/// the barrier that publishes them.
__device__ inline void async_proxy_fence() {
#ifdef TERN_SIMT
  simt::async_proxy_fence();
#else
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/// To be called before the first wgmma() and the first after each wgmma_wait(): makes earlier writes of its registers
/// visible to it.
__device__ inline void wgmma_fence() {
#ifdef TERN_SIMT
  simt::fence_products();
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
/// Ends a group of products.
__device__ inline void wgmma_commit() {
#ifdef TERN_SIMT
  simt::commit_products();
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}

namespace detail {
/// Marks the registers as changed here for the compiler, so that no use of them moves before the wait.
template <int kTiles>
__device__ void pin(FragmentC (&sums)[kTiles]) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (float& x : sums[n].r) asm volatile("" : "+f"(x)::"memory");
  }
}
}  // namespace detail

/// Waits until at most the kNewest latest groups are incomplete. `sums` and `more`: the sums of completed groups that
/// the program uses next.
template <int kNewest, int kTiles, int kMore>
__device__ inline void wgmma_wait(FragmentC (&sums)[kTiles], FragmentC (&more)[kMore],
                                  [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef TERN_SIMT
  simt::wait_for_products(kNewest, where);
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kNewest) : "memory");
  detail::pin(sums);
  detail::pin(more);
#endif
}
template <int kNewest, int kTiles>
__device__ inline void wgmma_wait(FragmentC (&sums)[kTiles], [[maybe_unused]] CallSite where = CallSite::current()) {
  FragmentC none[1] = {};
  wgmma_wait<kNewest>(sums, none, where);
}

#ifdef TERN_SIMT
namespace detail {
/// Copies 16 bytes of an operand, 8 values, to `to`.
template <class T>
SIMT_INTERNAL void read_piece(uint32_t address, float* to) {
  uint16_t bits[8];
  std::memcpy(bits, simt::read_by_product(address ^ (address >> 7 & 7) << 4), sizeof bits);
  for (int i = 0; i < 8; ++i) {
    T x;
    x.bits = bits[i];
    to[i] = static_cast<float>(x);
  }
}
struct OperandPlace {
  uint32_t start, leading, stride;
  explicit OperandPlace(uint64_t descriptor)
      : start(static_cast<uint32_t>(descriptor & 0x3fff) << 4),
        leading(static_cast<uint32_t>(descriptor >> 16 & 0x3fff) << 4),
        stride(static_cast<uint32_t>(descriptor >> 32 & 0x3fff) << 4) {}
  /// Byte address of values 8 * half .. of k in row `row`.
  uint32_t along_rows(int row, int half) const {
    return start + static_cast<uint32_t>(row) / 8 * stride + static_cast<uint32_t>(row) % 8 * 128 +
           static_cast<uint32_t>(half) * 16;
  }
  /// Byte address of columns 8 * piece .. of value k.
  uint32_t along_columns(int k, int piece) const {
    return start + static_cast<uint32_t>(piece) / 8 * leading + static_cast<uint32_t>(k) / 8 * stride +
           static_cast<uint32_t>(k) % 8 * 128 + static_cast<uint32_t>(piece) % 8 * 16;
  }
};

/// One warp's 16 rows of sums += a b. Products of 16-bit values are exact in float; sums are in ascending order of k.
template <class T, int kTiles, bool kColumns>
SIMT_INTERNAL void multiply_warpgroup(const simt::WarpProduct& p) {
  float a[16][16], b[16][kTiles * 8];
  if (p.left[0] != nullptr) {
    for (int lane = 0; lane < kWarpSize; ++lane) {
      for (int i = 0; i < 8; ++i) {
        T x;
        x.bits = static_cast<uint16_t>(p.left[lane][i / 2] >> (16 * (i % 2)));
        a[lane / 4 + i / 2 % 2 * 8][lane % 4 * 2 + i % 2 + i / 4 * 8] = static_cast<float>(x);
      }
    }
  } else {
    const OperandPlace place(p.left_operand);
    for (int row = 0; row < 16; ++row)
      for (int half = 0; half < 2; ++half) read_piece<T>(place.along_rows(p.warp * 16 + row, half), &a[row][half * 8]);
  }
  const OperandPlace place(p.right_operand);
  if constexpr (kColumns) {
    for (int k = 0; k < 16; ++k)
      for (int piece = 0; piece < kTiles; ++piece) read_piece<T>(place.along_columns(k, piece), &b[k][piece * 8]);
  } else {
    for (int col = 0; col < kTiles * 8; ++col) {
      float values[16];
      for (int half = 0; half < 2; ++half) read_piece<T>(place.along_rows(col, half), &values[half * 8]);
      for (int k = 0; k < 16; ++k) b[k][col] = values[k];
    }
  }
  float c[16][kTiles * 8];
  const auto exchange = [&](bool out) SIMT_INTERNAL {
    for (int lane = 0; lane < kWarpSize; ++lane) {
      for (int i = 0; i < kTiles * 4; ++i) {
        float& at = c[lane / 4 + i / 2 % 2 * 8][i / 4 * 8 + lane % 4 * 2 + i % 2];
        (out ? p.sums[lane][i] : at) = out ? at : p.sums[lane][i];
      }
    }
  };
  exchange(false);
  for (int row = 0; row < 16; ++row)
    for (int k = 0; k < 16; ++k)
      for (int col = 0; col < kTiles * 8; ++col) c[row][col] += a[row][k] * b[k][col];
  exchange(true);
}

template <class T, int kTiles, bool kColumns>
void start_product(FragmentC (&sums)[kTiles], const FragmentA* a, uint64_t left, uint64_t right, bool accumulate,
                   CallSite where) {
  static_assert(sizeof sums == sizeof(float[kTiles * 4]));
  simt::start_product({&sums[0].r[0], kTiles * 4, a ? a->r : nullptr, left, right, accumulate,
                       &multiply_warpgroup<T, kTiles, kColumns>},
                      where);
}
}  // namespace detail
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
// The instruction for both types. Macros, because registers are listed one by one. `operands` and `scale`: the operand
// numbers of the inputs (...), which follow the outputs.
#define TERN_WGMMA_TEXT(type, shape, registers, operands, scale, options)                                  \
  "{ .reg .pred p; setp.ne.b32 p, " scale ", 0; wgmma.mma_async.sync.aligned." shape ".f32." type "." type \
  " {" registers "}, " operands ", p, 1, 1, " options "; }"
#define TERN_WGMMA(shape, registers, operands, scale, options, outputs, ...)                                           \
  if constexpr (std::is_same_v<T, Float16>)                                                                            \
    asm volatile(TERN_WGMMA_TEXT("f16", shape, registers, operands, scale, options) : outputs:__VA_ARGS__ : "memory"); \
  else                                                                                                                 \
    asm volatile(TERN_WGMMA_TEXT("bf16", shape, registers, operands, scale, options) : outputs:__VA_ARGS__ : "memory")
#define TERN_TILE(n) "+f"(sums[n].r[0]), "+f"(sums[n].r[1]), "+f"(sums[n].r[2]), "+f"(sums[n].r[3])
#define TERN_TILES_4(n) TERN_TILE(n), TERN_TILE(n + 1), TERN_TILE(n + 2), TERN_TILE(n + 3)
#define TERN_TILES_8(n) TERN_TILES_4(n), TERN_TILES_4(n + 4)
#define TERN_TILES_16(n) TERN_TILES_8(n), TERN_TILES_8(n + 8)
#define TERN_REGISTERS_16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define TERN_REGISTERS_32 TERN_REGISTERS_16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define TERN_REGISTERS_64                                                                                 \
  TERN_REGISTERS_32                                                                                       \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56," \
  "%57,%58,%59,%60,%61,%62,%63"
#endif

/// sums [64, 8 kTiles] = a b, or += a b if `accumulate`, over 16 values of k, with 16-bit inputs of type T (Float16 or
/// BFloat16) and fp32 sums. Warp w of the warpgroup has rows 16 w .. 16 w + 15 as FragmentC, and of a as FragmentA. All
/// four warps call it with the same operands.
template <class T, int kTiles>
__device__ inline void wgmma(FragmentC (&sums)[kTiles], RowsOperand a, RowsOperand b, bool accumulate,
                             [[maybe_unused]] CallSite where = CallSite::current()) {
  static_assert(kTiles == 4 || kTiles == 8, "wgmma of rows by rows: 32 or 64 columns");
#ifdef TERN_SIMT
  detail::start_product<T, kTiles, false>(sums, nullptr, a.descriptor, b.descriptor, accumulate, where);
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
  const int scale = accumulate;
  if constexpr (kTiles == 4) {
    TERN_WGMMA("m64n32k16", TERN_REGISTERS_16, "%16, %17", "%18", "0, 0", TERN_TILES_4(0), "l"(a.descriptor),
               "l"(b.descriptor), "r"(scale));
  } else {
    TERN_WGMMA("m64n64k16", TERN_REGISTERS_32, "%32, %33", "%34", "0, 0", TERN_TILES_8(0), "l"(a.descriptor),
               "l"(b.descriptor), "r"(scale));
  }
#endif
}
template <class T, int kTiles>
__device__ inline void wgmma(FragmentC (&sums)[kTiles], const FragmentA& a, ColumnsOperand b, bool accumulate,
                             [[maybe_unused]] CallSite where = CallSite::current()) {
  static_assert(kTiles == 8 || kTiles == 16, "wgmma of registers by columns: 64 or 128 columns");
#ifdef TERN_SIMT
  detail::start_product<T, kTiles, true>(sums, &a, 0, b.descriptor, accumulate, where);
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
  const int scale = accumulate;
  if constexpr (kTiles == 8) {
    TERN_WGMMA("m64n64k16", TERN_REGISTERS_32, "{%32,%33,%34,%35}, %36", "%37", "1", TERN_TILES_8(0), "r"(a.r[0]),
               "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "l"(b.descriptor), "r"(scale));
  } else {
    TERN_WGMMA("m64n128k16", TERN_REGISTERS_64, "{%64,%65,%66,%67}, %68", "%69", "1", TERN_TILES_16(0), "r"(a.r[0]),
               "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "l"(b.descriptor), "r"(scale));
  }
#endif
}

}  // namespace tern::kernels::cuda
