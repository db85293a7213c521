// kernels/cuda/support in the emulator: tensor-core fragments, asynchronous copies, vectors, conversions, reductions.

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "tern/kernels/cuda/support/mma.h"
#include "tern/kernels/cuda/support/reduce.h"
#include "tern/tests/emulator/messages.h"
#include "tern/tests/emulator/simt/schedules.h"

namespace tern::kernels::cuda {
namespace {

std::mt19937_64 random_bits = fresh_random();
float normal() { return std::normal_distribution<float>()(random_bits); }

// --- mma ---

/// c[16, 8] += a[16, 16] b[16, 8], all row-major; fragments are filled element by element by the PTX manual's table.
template <class T>
__global__ void mma_kernel(const T* a, const T* b, float* c) {
  const int lane = static_cast<int>(threadIdx.x), group = lane >> 2, in_group = lane & 3;
  FragmentA fa;
  FragmentB fb;
  FragmentC fc;
  for (int i = 0; i < 8; ++i) {
    const int row = i == 0 || i == 1 || i == 4 || i == 5 ? group : group + 8;
    const int col = in_group * 2 + (i & 1) + (i < 4 ? 0 : 8);
    const uint32_t bits = a[row * 16 + col].bits;
    fa.r[i / 2] = i % 2 == 0 ? bits : fa.r[i / 2] | bits << 16;
  }
  for (int i = 0; i < 4; ++i) {
    const int row = in_group * 2 + (i & 1) + (i < 2 ? 0 : 8);
    const uint32_t bits = b[row * 8 + group].bits;
    fb.r[i / 2] = i % 2 == 0 ? bits : fb.r[i / 2] | bits << 16;
  }
  for (int i = 0; i < 4; ++i) fc.r[i] = c[fragment_row(lane, i) * 8 + fragment_col(lane, i)];
  mma<T>(fc, fa, fb);
  for (int i = 0; i < 4; ++i) {
    const int row = i < 2 ? group : group + 8, col = in_group * 2 + (i & 1);
    c[row * 8 + col] = fc.r[i];
  }
}

template <class T>
std::vector<T> random_matrix(int size) {
  std::vector<T> values(size);
  for (T& v : values) v = T(normal());
  return values;
}

template <class T>
void test_mma() {
  const std::vector<T> a = random_matrix<T>(256), b = random_matrix<T>(128);
  const std::vector<float> before = random_matrix<float>(128);
  std::vector<float> c = before;
  launch(mma_kernel<T>, 1, 32, 0, kCuda, a.data(), b.data(), c.data());
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 8; ++j) {
      double sum = before[i * 8 + j], scale = std::abs(sum);
      for (int k = 0; k < 16; ++k) {
        const double term = double{static_cast<float>(a[i * 16 + k])} * static_cast<float>(b[k * 8 + j]);
        sum += term;
        scale += std::abs(term);
      }
      EXPECT_LE(std::abs(sum - c[i * 8 + j]), 1e-6 * scale) << i << ", " << j;
    }
}

TEST(EmulatorTensor, MmaIsTheProduct) {
  for_each_schedule([] {
    test_mma<Float16>();
    test_mma<BFloat16>();
  });
}

constexpr int kHalfMmaLine = __LINE__ + 5;
__global__ void half_mma_kernel() {
  FragmentA a{};
  FragmentB b{};
  FragmentC c{};
  if (threadIdx.x < 16) mma<Float16>(c, a, b);
}

TEST(EmulatorTensor, MmaNeedsTheWholeWarp) {
  for_each_schedule([] {
    expect_error([] { launch(half_mma_kernel, 1, 32, 0, kCuda); },
                 {"lacks lanes that left the kernel, " + place(kHalfMmaLine)});
  });
}

// --- ldmatrix ---

template <int kCount, bool kTranspose>
__global__ void ldmatrix_kernel(uint32_t* out) {
  TERN_SHARED(uint16_t, tile, [kCount * 8][24]);  // a gap after each row, as with padding
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < kCount * 64; i += 32) tile[i / 8][i % 8] = static_cast<uint16_t>(i);
  __syncwarp();
  uint32_t r[kCount];
  // The other lanes' addresses must not be used.
  ldmatrix<kCount, kTranspose>(r, lane < 8 * kCount ? &tile[lane][0] : nullptr);
  for (int i = 0; i < kCount; ++i) out[lane * kCount + i] = r[i];
}

template <int kCount, bool kTranspose>
void test_ldmatrix() {
  std::vector<uint32_t> out(32 * kCount);
  launch(ldmatrix_kernel<kCount, kTranspose>, 1, 32, 0, kCuda, out.data());
  for (int lane = 0; lane < 32; ++lane)
    for (int matrix = 0; matrix < kCount; ++matrix)
      for (int half = 0; half < 2; ++half) {
        const int major = lane / 4, minor = lane % 4 * 2 + half;
        const int element = kTranspose ? minor * 8 + major : major * 8 + minor;
        EXPECT_EQ(out[lane * kCount + matrix] >> (16 * half) & 0xffffu, static_cast<unsigned>(matrix * 64 + element));
      }
}

TEST(EmulatorTensor, LdmatrixDistributesRowsAndColumns) {
  for_each_schedule([] {
    test_ldmatrix<1, false>();
    test_ldmatrix<2, false>();
    test_ldmatrix<4, false>();
    test_ldmatrix<1, true>();
    test_ldmatrix<2, true>();
    test_ldmatrix<4, true>();
  });
}

__global__ void ldmatrix_address_kernel(const uint16_t* global, int shift) {
  TERN_SHARED(uint16_t, tile, [33][8]);
  for (int i = static_cast<int>(threadIdx.x); i < 33 * 8; i += 32) tile[i / 8][i % 8] = 0;
  __syncwarp();
  uint32_t r[4];
  ldmatrix(r, global != nullptr ? global : &tile[threadIdx.x][0] + shift);
}

TEST(EmulatorTensor, LdmatrixChecksItsAddresses) {
  alignas(16) uint16_t global[8] = {};
  launch(ldmatrix_address_kernel, 1, 32, 0, kCuda, nullptr, 8);
  expect_error([] { launch(ldmatrix_address_kernel, 1, 32, 0, kCuda, nullptr, 4); }, {"misaligned"});
  expect_error([&] { launch(ldmatrix_address_kernel, 1, 32, 0, kCuda, global, 0); }, {"outside shared memory"});
}

// --- asynchronous copies ---

/// Each thread copies 16 bytes and reads their first word after every step.
__global__ void copy_steps_kernel(const float* in, float* out) {
  TERN_SHARED(float, tile, [2][32][4]);
  const int t = static_cast<int>(threadIdx.x);
  tile[0][t][0] = tile[1][t][0] = -1;
  cp_async16(tile[0][t], in + 4 * t);
  cp_async_commit();
  cp_async16(tile[1][t], in + 128 + 4 * t);
  cp_async_commit();
  out[t] = tile[0][t][0];
  cp_async_wait<1>();
  out[32 + t] = tile[0][t][0];
  out[64 + t] = tile[1][t][0];
  cp_async_wait<0>();
  out[96 + t] = tile[1][t][3];
}

TEST(EmulatorTensor, AsyncCopiesLandAtTheirWait) {
  const std::vector<float> in = random_matrix<float>(256);
  for_each_schedule([&] {
    std::vector<float> out(128);
    launch(copy_steps_kernel, 1, 32, 0, kCuda, in.data(), out.data());
    for (int t = 0; t < 32; ++t) {
      EXPECT_TRUE(out[t] == -1 || out[t] == in[4 * t]);
      EXPECT_EQ(out[32 + t], in[4 * t]);
      EXPECT_TRUE(out[64 + t] == -1 || out[64 + t] == in[128 + 4 * t]);
      EXPECT_EQ(out[96 + t], in[128 + 4 * t + 3]);
    }
  });
  for (const simt::Order::Kind kind : {simt::Order::kForward, simt::Order::kReverse}) {
    const bool early = kind == simt::Order::kReverse;
    std::vector<float> out(128);
    simt::set_order({kind, 0});
    launch(copy_steps_kernel, 1, 32, 0, kCuda, in.data(), out.data());
    simt::set_order({});
    for (int t = 0; t < 32; ++t) {
      EXPECT_EQ(out[t], early ? in[4 * t] : -1);
      EXPECT_EQ(out[64 + t], early ? in[128 + 4 * t] : -1);
    }
  }
}

__global__ void masked_copy_kernel(const float* in, float* out, int n) {
  TERN_SHARED(float, tile, [32][4]);
  const int t = static_cast<int>(threadIdx.x);
  cp_async16(tile[t], t < n ? in + 4 * t : nullptr, t < n);
  cp_async_commit();
  cp_async_wait<0>();
  for (int i = 0; i < 4; ++i) out[4 * t + i] = tile[t][i];
}

TEST(EmulatorTensor, AsyncCopyThatIsOffWritesZeros) {
  const std::vector<float> in = random_matrix<float>(4 * 11);
  for_each_schedule([&] {
    std::vector<float> out(128);
    simt::reset_stats();
    launch(masked_copy_kernel, 1, 32, 0, kCuda, in.data(), out.data(), 11);
    for (int i = 0; i < 128; ++i) EXPECT_EQ(out[i], i < 44 ? in[i] : 0.0f);
    EXPECT_EQ(simt::stats().loaded_bytes, 4 * in.size());
  });
}

__global__ void copy_address_kernel(const float* in, int to_shift, int from_shift, bool swap) {
  TERN_SHARED(float, tile, [2][8]);
  cp_async16(swap ? const_cast<float*>(in) : tile[0] + to_shift, swap ? tile[1] : in + from_shift);
  cp_async_wait<0>();
}

TEST(EmulatorTensor, AsyncCopyChecksItsAddresses) {
  alignas(16) float in[8] = {};
  launch(copy_address_kernel, 1, 1, 0, kCuda, in, 4, 4, false);
  expect_error([&] { launch(copy_address_kernel, 1, 1, 0, kCuda, in, 1, 0, false); }, {"misaligned"});
  expect_error([&] { launch(copy_address_kernel, 1, 1, 0, kCuda, in, 0, 2, false); }, {"misaligned"});
  expect_error([&] { launch(copy_address_kernel, 1, 1, 0, kCuda, in, 0, 0, true); }, {"outside shared memory"});
}

// --- vectors and conversions ---

template <class T, int N>
__global__ void vector_copy_kernel(const T* in, T* out) {
  const unsigned i = N * threadIdx.x;
  store_vector(out + i, threadIdx.x % 2 == 0 ? load_vector<N>(in + i) : load_readonly<N>(in + i));
}

template <class T, int N>
void test_vectors() {
  static_assert(sizeof(Vector<T, N>) == N * sizeof(T) && alignof(Vector<T, N>) == N * sizeof(T));
  alignas(16) T in[N * 32], out[N * 32];
  for (T& v : in) v = T(normal());
  launch(vector_copy_kernel<T, N>, 1, 32, 0, kCuda, in, out);
  EXPECT_EQ(std::memcmp(in, out, sizeof in), 0);
}

TEST(EmulatorTensor, VectorsCopyBits) {
  test_vectors<double, 1>();
  test_vectors<double, 2>();
  test_vectors<float, 1>();
  test_vectors<float, 2>();
  test_vectors<float, 4>();
  test_vectors<BFloat16, 1>();
  test_vectors<BFloat16, 4>();
  test_vectors<Float16, 2>();
  test_vectors<Float16, 8>();
  static_assert(vector_width<double> == 2 && vector_width<float> == 4 && vector_width<BFloat16> == 8 &&
                vector_width<uint8_t> == 16);
  static_assert(alignof(Vector<float, 8>) == 16);
  alignas(16) char bytes[32];
  EXPECT_TRUE(aligned16(bytes));
  for (int shift = 1; shift < 16; ++shift) EXPECT_FALSE(aligned16(bytes + shift));
}

template <class T>
__global__ void convert_kernel(const float* in, T* out, float* back) {
  const unsigned t = threadIdx.x;
  Vector<ComputeType<T>, 4> values;
  for (int i = 0; i < 4; ++i) values.v[i] = static_cast<ComputeType<T>>(in[4 * t + i]);
  const Vector<T, 4> stored = from_compute<T>(values);
  const Vector<ComputeType<T>, 4> again = to_compute(stored);
  for (int i = 0; i < 4; ++i) {
    out[4 * t + i] = i % 2 == 0 ? stored.v[i] : from_compute<T>(values.v[i]);
    back[4 * t + i] = static_cast<float>(i % 2 == 0 ? again.v[i] : to_compute(stored.v[i]));
  }
}

template <class T>
void test_conversions() {
  std::vector<float> in(128), back(128);
  std::vector<T> out(128);
  for (float& v : in) v = normal() * std::exp2(static_cast<float>(static_cast<int>(random_bits() % 60) - 30));
  in[0] = INFINITY;
  in[1] = -0.0f;
  in[2] = 65520.0f;
  launch(convert_kernel<T>, 1, 32, 0, kCuda, in.data(), out.data(), back.data());
  for (int i = 0; i < 128; ++i) {
    const T expected = T(in[i]);
    EXPECT_EQ(std::memcmp(&out[i], &expected, sizeof(T)), 0);
    EXPECT_EQ(back[i], static_cast<float>(expected));
  }
}

TEST(EmulatorTensor, Conversions) {
  test_conversions<double>();
  test_conversions<float>();
  test_conversions<BFloat16>();
  test_conversions<Float16>();
  EXPECT_EQ(pack2<BFloat16>(1.0f, -2.0f), 0xc0003f80u);
  EXPECT_EQ(pack2<Float16>(1.0f, -2.0f), 0xc0003c00u);
}

// --- reductions ---

constexpr int kReduceLine = __LINE__ + 4;
template <int kThreads, class T>
__global__ void reduce_kernel(const T* in, T* out) {
  const T value = in[blockIdx.x * kThreads + threadIdx.x];
  const T results[] = {block_sum<kThreads>(value),
                       block_reduce<kThreads>(value, Maximum{}, std::numeric_limits<T>::lowest()),
                       block_reduce<kThreads>(value, Minimum{}, std::numeric_limits<T>::max()),
                       warp_sum(value),
                       warp_reduce(value, Maximum{}),
                       warp_reduce(value, Minimum{}),
                       warp_sum<8>(value),
                       warp_reduce<2>(value, Maximum{}),
                       warp_reduce<1>(value, Minimum{})};
  for (int i = 0; i < 9; ++i) out[(blockIdx.x * 9 + i) * kThreads + threadIdx.x] = results[i];
}

/// `sum` is that of n numbers up to `units` units of rounding of their magnitudes; of integers exactly.
template <class T>
void expect_sum(T sum, const T* in, int n, double units) {
  double exact = 0, scale = 0;
  for (int i = 0; i < n; ++i) {
    exact += static_cast<double>(in[i]);
    scale += std::abs(static_cast<double>(in[i]));
  }
  const double bound = std::is_floating_point_v<T> ? units * std::numeric_limits<T>::epsilon() * scale : 0;
  EXPECT_LE(std::abs(static_cast<double>(sum) - exact), bound);
}

template <class T>
void expect_reduced(const T* in, int n, const T* sum, const T* max, const T* min) {
  const auto [smallest, largest] = std::minmax_element(in, in + n);
  expect_sum(sum[0], in, n, 12);
  for (int i = 0; i < n; ++i) {
    EXPECT_EQ(sum[i], sum[0]);  // same bits in all threads
    EXPECT_EQ(max[i], *largest);
    EXPECT_EQ(min[i], *smallest);
  }
}

template <int kThreads, class T>
void test_reductions() {
  constexpr int kBlocks = 2;
  std::vector<T> in(kBlocks * kThreads), first;
  for (T& v : in)
    v = static_cast<T>(std::is_integral_v<T> ? static_cast<float>(random_bits() % 2001) - 1000 : normal());
  for_each_schedule([&] {
    std::vector<T> out(9 * in.size());
    launch(reduce_kernel<kThreads, T>, kBlocks, kThreads, 0, kCuda, in.data(), out.data());
    if (first.empty()) first = out;
    EXPECT_EQ(out, first);
  });
  for (int block = 0; block < kBlocks; ++block) {
    const T* values = in.data() + block * kThreads;
    const auto result = [&](int i) { return first.data() + (block * 9 + i) * kThreads; };
    expect_reduced(values, kThreads, result(0), result(1), result(2));
    for (int t = 0; t < kThreads; t += 32) expect_reduced(values + t, 32, result(3) + t, result(4) + t, result(5) + t);
    for (int t = 0; t < kThreads; ++t) {
      expect_sum(result(6)[t], values + t / 8 * 8, 8, 2);  // each term takes part in three additions that round
      EXPECT_EQ(result(7)[t], std::max(values[t], values[t ^ 1]));
      EXPECT_EQ(result(8)[t], values[t]);
    }
  }
}

TEST(EmulatorTensor, Reductions) {
  test_reductions<32, float>();
  test_reductions<96, float>();
  test_reductions<128, double>();
  test_reductions<256, int>();
  test_reductions<160, int64_t>();
  test_reductions<1024, float>();
}

TEST(EmulatorTensor, MaximumOfNaNIsNaN) {
  for_each_schedule([] {
    std::vector<float> in(128, -1), out(9 * 128);
    in[random_bits() % 128] = NAN;
    launch(reduce_kernel<128, float>, 1, 128, 0, kCuda, in.data(), out.data());
    for (int t = 0; t < 3 * 128; ++t) EXPECT_TRUE(std::isnan(out[t]));
  });
}

TEST(EmulatorTensor, BlockReductionChecksTheBlock) {
  std::vector<float> in(160), out(9 * 160);
  for (dim3 block : {dim3(64), dim3(160), dim3(64, 2)})
    expect_error([&] { launch(reduce_kernel<128, float>, 1, block, 0, kCuda, in.data(), out.data()); },
                 {"another number of threads than kThreads, " + place(kReduceLine)});
}

}  // namespace
}  // namespace tern::kernels::cuda
