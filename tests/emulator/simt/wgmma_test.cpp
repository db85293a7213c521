// wgmma in the emulator: layouts against the PTX manual's, and errors of programs while a product is incomplete.

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "tern/kernels/cuda/support/wgmma.h"
#include "tern/tests/emulator/messages.h"
#include "tern/tests/emulator/simt/schedules.h"

namespace tern::kernels::cuda {
namespace {

std::mt19937_64 random_bits = fresh_random();
float normal() { return std::normal_distribution<float>()(random_bits); }

/// The manual's 128-byte swizzle: address bits 4 to 6, above the 16 bytes of a piece, are XORed with bits 7 to 9. Rows
/// of 128 bytes; panels of 64 columns.
size_t swizzled(int row, int col, int rows) {
  const size_t address = static_cast<size_t>(col / 64 * rows + row) * 128 + static_cast<size_t>(col % 64) * 2;
  return (address ^ (address >> 3 & 0x70)) / 2;
}

/// c [64 groups, columns] (+)= a b: a [64 groups, K] in shared memory or in registers; b is read from a tile of
/// [columns, K] or of [K, columns].
template <class T, int kTiles, int kDepth, bool kRegisters>
__global__ void product_kernel(const T* a, const T* b, float* c, int lead, bool accumulate) {
  constexpr int kColumns = kTiles * 8, kGroups = 2;
  using Left = SwizzledRows<kRegisters ? 64 : kDepth, 64 * kGroups>;
  using Right = SwizzledRows<kRegisters ? kColumns : kDepth, kRegisters ? kDepth : kColumns>;
  TERN_DYNAMIC_SHARED(T, shared);
  T *left = shared, *right = shared + Left::kElements;
  const int t = static_cast<int>(threadIdx.x), lane = t % 32, group = t / 128, row = t / 32 * 16;
  const auto copy = [&](const T* from, T* to, int rows, int cols) {
    for (int i = t; i < rows * cols / 8; i += static_cast<int>(blockDim.x))
      cp_async16(to + swizzled(i / (cols / 8), i % (cols / 8) * 8, rows), from + i * 8);
  };
  if constexpr (!kRegisters) copy(a, left, 64 * kGroups, kDepth);
  copy(b, right, Right::kRows, Right::kDim);
  cp_async_commit();
  cp_async_wait<0>();
  async_proxy_fence();
  block_barrier();
  FragmentC sums[kTiles];
  for (int n = 0; n < kTiles; ++n)
    for (int i = 0; i < 4; ++i)
      sums[n].r[i] = c[(row + fragment_row(lane, i)) * kColumns + n * 8 + fragment_col(lane, i)];
  FragmentA fragments[kDepth / 16];
  for (int k = 0; k < kDepth; k += 16)
    for (int i = 0; i < 8; ++i) {
      const int r = row + lane / 4 + (i / 2 % 2) * 8, col = k + lane % 4 * 2 + i % 2 + i / 4 * 8;
      const uint32_t bits = a[r * kDepth + col].bits;
      uint32_t& at = fragments[k / 16].r[i / 2];
      at = i % 2 == 0 ? bits : at | bits << 16;
    }
  wgmma_fence();
  for (int k = 0; k < kDepth; k += 16) {
    if (k == lead) wgmma_commit();
    if constexpr (kRegisters)
      wgmma<T>(sums, fragments[k / 16], columns_operand<Right>(right, k), accumulate || k > 0);
    else
      wgmma<T>(sums, rows_operand<Left>(left, group * 64, k), rows_operand<Right>(right, 0, k), accumulate || k > 0);
  }
  wgmma_commit();
  wgmma_wait<0>(sums);
  for (int n = 0; n < kTiles; ++n)
    for (int i = 0; i < 4; ++i)
      c[(row + fragment_row(lane, i)) * kColumns + n * 8 + fragment_col(lane, i)] = sums[n].r[i];
}

template <class T, int kTiles, int kDepth, bool kRegisters>
void test_product() {
  constexpr int kRows = 128, kColumns = kTiles * 8;
  std::vector<T> a(kRows * kDepth), b(kDepth * kColumns);
  for (auto* values : {&a, &b})
    for (T& x : *values) x = T(normal());
  std::vector<float> before(kRows * kColumns);
  for (float& x : before) x = normal();
  for (const bool accumulate : {false, true}) {
    std::vector<float> first;
    for_each_schedule([&] {
      std::vector<float> c = before;
      const size_t bytes = (kRows * std::max(kDepth, 64) + b.size()) * sizeof(T);
      const int lead = static_cast<int>(random_bits() % 8) * 16;
      launch(product_kernel<T, kTiles, kDepth, kRegisters>, 1, 256, bytes, kCuda, a.data(), b.data(), c.data(), lead,
             accumulate);
      if (first.empty()) first = c;
      ASSERT_EQ(std::memcmp(first.data(), c.data(), c.size() * 4), 0);
    });
    for (int i = 0; i < kRows; ++i)
      for (int j = 0; j < kColumns; ++j) {
        double exact = accumulate ? before[i * kColumns + j] : 0, scale = std::abs(exact);
        for (int k = 0; k < kDepth; ++k) {
          const double x = static_cast<float>(a[i * kDepth + k]),
                       y = static_cast<float>(kRegisters ? b[k * kColumns + j] : b[j * kDepth + k]);
          exact += x * y;
          scale += std::abs(x * y);
        }
        ASSERT_LE(std::abs(first[i * kColumns + j] - exact), 1e-6 * scale) << i << ", " << j;
      }
  }
}

TEST(EmulatorWgmma, ProductsMatchReference) {
  test_product<BFloat16, 8, 64, false>();
  test_product<Float16, 8, 128, false>();
  test_product<BFloat16, 4, 128, false>();
  test_product<Float16, 4, 64, false>();
  test_product<BFloat16, 8, 64, true>();
  test_product<Float16, 8, 32, true>();
  test_product<Float16, 16, 64, true>();
  test_product<BFloat16, 16, 32, true>();
}

TEST(EmulatorWgmma, SwizzledRowsAreTheManuals) {
  for (int row = 0; row < 64; ++row)
    for (int col = 0; col < 128; ++col)
      ASSERT_EQ((SwizzledRows<128, 64>::at(row, col)), static_cast<int>(swizzled(row, col, 64)));
}

/// The mistakes of a kernel that multiplies a tile of ones by itself.
enum class Mistake {
  kNone,
  kNoProxyFence,
  kNoProxyFenceAfterStore,
  kNoFence,
  kNoFenceAfterWait,
  kSumsRead,
  kSumsWritten,
  kLeftChanged,
  kTileChanged,
  kNoWait,
  kLaneDiffers,
  kWarpDiffers,
  kWarpAbsent,
  kOverlap,
  kWaitTooWeak,
  kOtherSwizzle,
  kBaseOffset,
};

template <class T>
__global__ void mistaken_kernel(const T* ones, float* out, Mistake mistake) {
  using Tile = SwizzledRows<64, 64>;
  TERN_DYNAMIC_SHARED(T, tile);
  const int t = static_cast<int>(threadIdx.x);
  for (int i = t; i < 64 * 8; i += 128) {
    if (mistake == Mistake::kNoProxyFenceAfterStore)
      store_vector(tile + Tile::at(i / 8, i % 8 * 8), load_vector<8>(ones));
    else
      cp_async16(tile + Tile::at(i / 8, i % 8 * 8), ones);
  }
  cp_async_commit();
  cp_async_wait<0>();
  const bool skips = mistake == Mistake::kNoProxyFence || mistake == Mistake::kNoProxyFenceAfterStore;
  if (!skips || t != 77) async_proxy_fence();
  block_barrier();
  FragmentC sums[9];
  auto& first = reinterpret_cast<FragmentC(&)[8]>(sums[0]);
  auto& second = reinterpret_cast<FragmentC(&)[8]>(sums[1]);
  FragmentC other[8];
  FragmentA left;
  for (uint32_t& r : left.r) r = T(1.0f).bits * 0x10001u;
  if (mistake != Mistake::kNoFence) wgmma_fence();
  const bool odd = (mistake == Mistake::kLaneDiffers && t == 5) || (mistake == Mistake::kWarpDiffers && t / 32 == 2);
  if (mistake != Mistake::kWarpAbsent || t / 32 != 3) {
    RowsOperand right = rows_operand<Tile>(tile, 0, 0);
    if (mistake == Mistake::kOtherSwizzle) right.descriptor ^= uint64_t{3} << 62;  // 64 bytes
    if (mistake == Mistake::kBaseOffset) right.descriptor ^= uint64_t{1} << 49;
    wgmma<T>(first, rows_operand<Tile>(tile, 0, odd ? 16 : 0), right, false);
    if (mistake == Mistake::kOverlap)
      wgmma<T>(second, rows_operand<Tile>(tile, 0, 0), rows_operand<Tile>(tile, 0, 0), false);
    wgmma_commit();
    wgmma<T>(other, left, columns_operand<Tile>(tile, 0), false);
    wgmma_commit();
    if (mistake == Mistake::kSumsRead) {
      out[t] = first[0].r[0];
      wgmma_wait<0>(first, other);
      return;
    }
    if (mistake == Mistake::kSumsWritten) first[3].r[1] = 0;
    if (mistake == Mistake::kLeftChanged) left.r[2] = 0;
    if (mistake == Mistake::kTileChanged && t < 64) tile[Tile::at(t, 3)] = T(0.0f);
    if (mistake == Mistake::kNoWait) return;
    if (mistake == Mistake::kWaitTooWeak) {
      wgmma_wait<1>(first);
      out[t] = first[0].r[0] + other[0].r[0];
      wgmma_wait<0>(other);
      return;
    }
    wgmma_wait<0>(first, other);
    if (mistake == Mistake::kNoFenceAfterWait) {
      wgmma<T>(other, left, columns_operand<Tile>(tile, 16), true);
      wgmma_commit();
      wgmma_wait<0>(other);
    }
  }
  out[t] = 0;
  for (const auto* sums : {&first, &other})
    for (const FragmentC& c : *sums)
      for (const float x : c.r) out[t] += x;
}

/// Returns the message of the error, or "no error" with the results in out.
std::string run_mistaken(Mistake mistake, std::vector<float>& out, unsigned threads = 128) {
  const std::vector<BFloat16> ones(8, BFloat16(1.0f));
  out.assign(threads, -1);
  return error_of(
      [&] { launch(mistaken_kernel<BFloat16>, 1, threads, 64 * 128, kCuda, ones.data(), out.data(), mistake); });
}

TEST(EmulatorWgmma, MistakesAreErrors) {
  const struct {
    Mistake mistake;
    const char* message;
  } cases[] = {
      {Mistake::kNoProxyFence, "that thread 77 wrote without fence.proxy.async"},
      {Mistake::kNoProxyFenceAfterStore, "that thread 77 wrote without fence.proxy.async"},
      {Mistake::kNoFence, "wgmma without wgmma.fence"},
      {Mistake::kNoFenceAfterWait, "wgmma without wgmma.fence"},
      {Mistake::kSumsWritten, "the sums of a wgmma were written before it was waited for"},
      {Mistake::kNoWait, "exits the kernel before waiting for its product"},
      {Mistake::kLaneDiffers, "lanes of one warp give different operands to wgmma"},
      {Mistake::kWarpDiffers, "warps of one warpgroup give different operands to wgmma"},
      {Mistake::kWarpAbsent, "warp 0 took part in 2 products (wgmma), warp 3 of the same warpgroup in 0"},
      {Mistake::kOverlap, "wgmma's sums are part of another product's"},
      {Mistake::kOtherSwizzle, "not stored with 128-byte swizzle"},
      {Mistake::kBaseOffset, "not stored with 128-byte swizzle"},
  };
  for_each_schedule([&] {
    std::vector<float> out;
    EXPECT_EQ(run_mistaken(Mistake::kNone, out), "no error");
    for (const float x : out) EXPECT_EQ(x, 2 * 32 * 16);
    for (const auto& [mistake, message] : cases) EXPECT_TRUE(has(run_mistaken(mistake, out), message));
    for (const Mistake mistake : {Mistake::kSumsRead, Mistake::kWaitTooWeak}) {
      EXPECT_EQ(run_mistaken(mistake, out), "no error");
      for (const float x : out) EXPECT_TRUE(std::isnan(x));
    }
  });
}

/// A change of operands before the product has completed gives a wrong result under some schedule.
TEST(EmulatorWgmma, ChangedOperandsShow) {
  if (kFewCases) GTEST_SKIP() << "sanitizer: ThreadSanitizer reports these as races";
  for (const Mistake mistake : {Mistake::kLeftChanged, Mistake::kTileChanged}) {
    int wrong = 0;
    for_each_schedule([&] {
      std::vector<float> out;
      ASSERT_EQ(run_mistaken(mistake, out), "no error");
      wrong += std::any_of(out.begin(), out.end(), [](float x) { return x != 2 * 32 * 16; });
    });
    EXPECT_GT(wrong, 0);
  }
}

TEST(EmulatorWgmma, OtherDevicesLackIt) {
  EXPECT_TRUE(has_wgmma(kCuda));
  simt::set_compute_capability(80);
  EXPECT_FALSE(has_wgmma(kCuda));
  std::vector<float> out;
  const std::string message = run_mistaken(Mistake::kNone, out);
  simt::set_compute_capability(90);
  EXPECT_TRUE(has(message, "wgmma on a device of compute capability 8.0"));
}

TEST(EmulatorWgmma, AWarpgroupIsWhole) {
  std::vector<float> out;
  EXPECT_TRUE(has(run_mistaken(Mistake::kNone, out, 96), "a warpgroup that lacks warps"));
}

}  // namespace
}  // namespace tern::kernels::cuda
