#pragma once
// Tensor-core instructions of sm_80 and later: mma m16n8k16, ldmatrix and asynchronous copies, each in PTX and in an
// emulated version. Layouts: PTX ISA, "Matrix multiply-accumulate operation using mma instruction", m16n8k16 with
// 16-bit floating-point operands, and "ldmatrix".

#include "tern/kernels/cuda/support/convert.h"

namespace tern::kernels::cuda {

/// One warp's operands of c += a b, distributed over its lanes. With g = lane / 4 and q = 2 * (lane % 4), each register
/// of a and b holds two 16-bit values (lower half first):
///   a [16, 16]: r[0] (g, q..q+1)  r[1] (g + 8, q..)  r[2] (g, q + 8..)  r[3] (g + 8, q + 8..)
///   b [16, 8]:  r[0] (q..q+1, g)  r[1] (q + 8.., g)
///   c [16, 8]:  r[0], r[1] (g, q..q+1)  r[2], r[3] (g + 8, q..q+1)
struct FragmentA {
  uint32_t r[4];
};
struct FragmentB {
  uint32_t r[2];
};
struct FragmentC {
  float r[4];
};

/// Row and column within the 16 x 8 tile of element i (0..3) of a lane's FragmentC.
__device__ inline int fragment_row(int lane, int i) { return lane / 4 + i / 2 * 8; }
__device__ inline int fragment_col(int lane, int i) { return lane % 4 * 2 + i % 2; }

#ifdef TERN_SIMT
namespace detail {
struct MmaLane {
  FragmentC c;
  FragmentA a;
  FragmentB b;
};

/// The whole warp's product, which the emulator computes once when all lanes have arrived. Products of 16-bit values
/// are exact in float; the sum is in ascending order of k.
template <class T>
SIMT_INTERNAL void multiply_fragments(void* const* lanes, unsigned) {
  const auto value = [](uint32_t pair, int half) SIMT_INTERNAL {
    T x;
    x.bits = static_cast<uint16_t>(pair >> (16 * half));
    return static_cast<float>(x);
  };
  using Row = float __attribute__((vector_size(32)));  // 8 columns at a time
  float a[16][16];
  Row b[16], c[16];
  for (int lane = 0; lane < 32; ++lane) {
    const MmaLane& from = *static_cast<const MmaLane*>(lanes[lane]);
    const int g = lane / 4, q = lane % 4 * 2;
    for (int half = 0; half < 2; ++half) {
      for (int r = 0; r < 4; ++r) a[g + r % 2 * 8][q + r / 2 * 8 + half] = value(from.a.r[r], half);
      for (int r = 0; r < 2; ++r) b[q + r * 8 + half][g] = value(from.b.r[r], half);
    }
    for (int i = 0; i < 4; ++i) c[fragment_row(lane, i)][fragment_col(lane, i)] = from.c.r[i];
  }
  for (int row = 0; row < 16; ++row)
    for (int k = 0; k < 16; ++k) c[row] += a[row][k] * b[k];
  for (int lane = 0; lane < 32; ++lane) {
    FragmentC& to = static_cast<MmaLane*>(lanes[lane])->c;
    for (int i = 0; i < 4; ++i) to.r[i] = c[fragment_row(lane, i)][fragment_col(lane, i)];
  }
}
}  // namespace detail
#endif

/// c += a b with 16-bit inputs of type T (Float16 or BFloat16) and fp32 sums. The whole warp calls it.
template <class T>
__device__ inline void mma(FragmentC& c, const FragmentA& a, const FragmentB& b,
                           [[maybe_unused]] CallSite where = CallSite::current()) {
  static_assert(std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>, "mma: a 16-bit floating type");
#ifdef TERN_SIMT
  detail::MmaLane lane{c, a, b};
  simt::warp_operation(kFullWarp, &lane, &detail::multiply_fragments<T>, where);
  c = lane.c;
#else
  if constexpr (std::is_same_v<T, Float16>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c.r[0]), "+f"(c.r[1]), "+f"(c.r[2]), "+f"(c.r[3])
        : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b.r[0]), "r"(b.r[1]));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c.r[0]), "+f"(c.r[1]), "+f"(c.r[2]), "+f"(c.r[3])
        : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b.r[0]), "r"(b.r[1]));
#endif
}

#ifdef TERN_SIMT
namespace detail {
struct LdmatrixLane {
  uint16_t row[8];
  uint16_t out[8];
};
template <int kCount, bool kTranspose>
SIMT_INTERNAL void distribute_matrices(void* const* lanes, unsigned) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int matrix = 0; matrix < kCount; ++matrix) {
      for (int half = 0; half < 2; ++half) {
        const int g = lane / 4, q = lane % 4 * 2 + half;
        const auto& source = *static_cast<const LdmatrixLane*>(lanes[matrix * 8 + (kTranspose ? q : g)]);
        static_cast<LdmatrixLane*>(lanes[lane])->out[matrix * 2 + half] = source.row[kTranspose ? g : q];
      }
    }
  }
}
}  // namespace detail
#endif

/// Loads kCount (1, 2 or 4) matrices of 8 x 8 16-bit values from shared memory. Lane i gives the address of row i % 8
/// of matrix i / 8 (16 bytes, aligned; addresses of lanes from 8 * kCount on are ignored) and receives values (g,
/// q..q+1) of each matrix, with g = lane / 4, q = 2 * (lane % 4); transposed: (q..q+1, g).
template <int kCount, bool kTranspose = false>
__device__ inline void ldmatrix(uint32_t (&r)[kCount], const void* row,
                                [[maybe_unused]] CallSite where = CallSite::current()) {
  static_assert(kCount == 1 || kCount == 2 || kCount == 4, "ldmatrix: 1, 2 or 4 matrices");
#ifdef TERN_SIMT
  detail::LdmatrixLane lane{};
  if (simt::lane() <
      8 * kCount) {  // each lane reads one row, so that sanitizers attribute the access to the right thread
    simt::check_access(row, 16, simt::Access::kShared, where);
    std::memcpy(lane.row, row, 16);
  }
  simt::warp_operation(kFullWarp, &lane, &detail::distribute_matrices<kCount, kTranspose>, where);
  std::memcpy(r, lane.out, sizeof r);
#else
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (kCount == 1 && !kTranspose)
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(address) : "memory");
  else if constexpr (kCount == 1)
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(address) : "memory");
  else if constexpr (kCount == 2 && !kTranspose)
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(address)
                 : "memory");
  else if constexpr (kCount == 2)
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(address)
                 : "memory");
  else if constexpr (!kTranspose)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
#endif
}

/// Starts copying 16 bytes (both addresses aligned) from global to shared memory, or 16 zero bytes when `on` is false
/// (the source is then not read). The bytes are visible to the same thread after cp_async_wait, and to the others after
/// a subsequent barrier.
__device__ inline void cp_async16(void* to_shared, const void* from_global, bool on = true,
                                  [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef TERN_SIMT
  simt::copy_async(to_shared, from_global, on, where);
#else
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(to_shared));
  const int bytes = on ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from_global), "r"(bytes) : "memory");
#endif
}
/// Ends a group of this thread's copies.
__device__ inline void cp_async_commit() {
#ifdef TERN_SIMT
  simt::copy_async_commit();
#else
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/// Waits until at most the kNewest latest groups of this thread are incomplete.
template <int kNewest>
__device__ inline void cp_async_wait() {
#ifdef TERN_SIMT
  simt::copy_async_wait(kNewest);
#else
  asm volatile("cp.async.wait_group %0;" ::"n"(kNewest) : "memory");
#endif
}

}  // namespace tern::kernels::cuda
