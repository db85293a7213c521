// The contract of kernels/cuda/cub.h, against the standard library: of CUB, and of the emulated build's version.

#include "tern/kernels/cuda/cub.h"

#include <numeric>

#include "tern/tests/kernels/contracts/target.h"

namespace tern::kernels {
namespace {

class Cub : public OnTarget {};
INSTANTIATE_TEST_SUITE_P(, Cub, testing::ValuesIn(cuda_targets()), name_of_target);

template <class Key>
void check_sort(int64_t n, int bits, std::mt19937_64& random) {
  SCOPED_TRACE(testing::Message() << n << " pairs, " << bits << " bits of " << sizeof(Key) * 8);
  constexpr Key kMark = 0xdeadbeef;
  std::vector<Key> keys[2];
  std::vector<uint32_t> values[2];
  for (int b = 0; b < 2; ++b) {
    keys[b].assign(n + 1, kMark);
    values[b].assign(n + 1, 0xdeadbeef);
  }
  const Key used = bits == 0 ? Key(0) : static_cast<Key>(~Key(0)) >> (sizeof(Key) * 8 - bits);
  for (int64_t i = 0; i < n; ++i) {
    // Half of the keys are frequent; bits above the used ones must have no effect.
    keys[0][i] = static_cast<Key>(random() % 2 ? random() : (random() % 5) * 0x0101010101010101);
    values[0][i] = static_cast<uint32_t>(i);
  }
  const std::vector<Key> before = keys[0];
  std::vector<uint32_t> expected(n);
  std::iota(expected.begin(), expected.end(), 0u);
  std::stable_sort(expected.begin(), expected.end(),
                   [&](uint32_t a, uint32_t b) { return (before[a] & used) < (before[b] & used); });
  int where = -1;
  run_kernel([&](Call& on) {
    cuda::SortBuffers<Key> buffers;
    for (int b = 0; b < 2; ++b) {
      buffers.keys[b] = on.memory(keys[b].data(), n + 1);
      buffers.values[b] = on.memory(values[b].data(), n + 1);
    }
    void* const workspace = on.workspace(cuda::sort_pairs_workspace<Key>(on.stream(), n));
    where = cuda::sort_pairs(on.stream(), buffers, n, bits, workspace);
  });
  for (int64_t i = 0; i < n; ++i) {
    ASSERT_EQ(values[where][i], expected[i]) << "place " << i;
    ASSERT_EQ(keys[where][i], before[expected[i]]) << "place " << i;
  }
  for (int b = 0; b < 2; ++b) {
    EXPECT_EQ(keys[b][n], kMark);
    EXPECT_EQ(values[b][n], 0xdeadbeef);
  }
}

TEST_P(Cub, SortPairsIsStable) {
  for (const int64_t n : {0, 1, 2, 31, 257, 5000})
    for (const int bits : {0, 1, 7, 8, 9, 17, 32}) {
      check_sort<uint32_t>(n, bits, random);
      check_sort<uint64_t>(n, 2 * bits, random);
    }
}

TEST_P(Cub, ScanRowsWrapsAround) {
  for (const auto& [rows, cols] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 3}, {3, 0}, {1, 1}, {1, 3001}, {57, 7}}) {
    std::vector<int64_t> values(rows * cols + 1), expected;
    for (int64_t& v : values) v = static_cast<int64_t>(random());
    for (int64_t i = 0; i < rows * cols; ++i) {
      const uint64_t before = i % cols == 0 ? 0 : static_cast<uint64_t>(expected.back());
      expected.push_back(static_cast<int64_t>(before + static_cast<uint64_t>(values[i])));
    }
    expected.push_back(values.back());
    run_kernel([&, rows = rows, cols = cols](Call& on) {
      void* const workspace = on.workspace(cuda::scan_rows_workspace(on.stream(), rows, cols));
      cuda::scan_rows(on.stream(), on.memory(values.data(), rows * cols + 1), rows, cols, workspace);
    });
    EXPECT_EQ(values, expected) << rows << " x " << cols;
  }
}

TEST_P(Cub, SelectFlagged) {
  for (const int64_t n : {0, 1, 7, 1000})
    for (const unsigned one_in : {1u, 2u, 50u, 1u << 30}) {
      std::vector<uint8_t> flags(n);
      std::vector<int64_t> expected;
      for (int64_t i = 0; i < n; ++i) {
        flags[i] = random() % one_in == 0 ? static_cast<uint8_t>(1 + random() % 255) : 0;
        if (flags[i] != 0) expected.push_back(i);
      }
      expected.push_back(-7);
      const auto count = static_cast<int64_t>(expected.size());
      std::vector<int64_t> positions(expected.size(), -7);
      run_kernel([&](Call& on) {
        void* const workspace = on.workspace(cuda::select_flagged_workspace(on.stream(), n));
        const uint8_t* const set = on.memory(std::as_const(flags).data(), n);
        cuda::select_flagged(on.stream(), set, n, on.memory(positions.data(), count), workspace);
      });
      EXPECT_EQ(positions, expected) << n;
    }
}

}  // namespace
}  // namespace tern::kernels
