#pragma once
// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
// A number is a pure function of (seed, offset, row, lane, index), so a mask does not depend on the device, the number
// of threads or the way a batch is laid out.

#include "tern/kernels/types.h"

namespace tern::kernels {

/// One draw of a Generator: `offset` is the number of earlier draws. Every op that needs randomness takes one. With a
/// base, a number in device memory, the draw's number is offset + *base, so that each replay of a captured step draws
/// different numbers.
struct RandomKey {
  uint64_t seed = 0;
  uint64_t offset = 0;
  const uint64_t* base = nullptr;
};

struct Philox4 {
  uint32_t word[4];
};

/// The 64-bit Philox key of a draw: SplitMix64's finaliser of seed and offset, so that draws are unrelated. Only
/// kernels may call it, since it reads the base.
TERN_HD inline uint64_t philox_key(RandomKey key) {
  const uint64_t offset = key.offset + (key.base ? *key.base : 0);
  uint64_t z = key.seed + 0x9e3779b97f4a7c15ull * (offset + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

/// Four words at counter (block, lane, row), with the published constants; tested against the paper's known answers.
TERN_HD inline Philox4 philox(uint64_t key, uint64_t row, uint32_t lane, uint32_t block) {
  uint32_t c0 = block, c1 = lane, c2 = static_cast<uint32_t>(row), c3 = static_cast<uint32_t>(row >> 32);
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = 0xd2511f53ull * c0;
    const uint64_t p1 = 0xcd9e8d57ull * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(p1);
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(p0);
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
  return {{c0, c1, c2, c3}};
}

/// Uniform in [0, 1) from the upper 24 bits of a word: the same bits on every device.
TERN_HD inline float uniform(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

// Dropout. Element (row, lane, column) is kept when its 16-bit random number is at least dropout_threshold(p). The
// numbers of columns 8b .. 8b+7 are the eight halves of philox(key, row, lane, b): column 8b + j uses word j / 2, the
// low half when j is even. `row` is the row's index or its entry in a row-key tensor (data set index and position, so
// that a packed batch has the masks of the padded one). `lane` is the head in attention and 0 elsewhere; `column` is
// the feature or, in attention, the key's position within its sequence.

/// p = 0.1 gives 6554 / 65536. Callers handle p = 1: no 16-bit threshold drops everything.
TERN_HD inline uint32_t dropout_threshold(double p) { return static_cast<uint32_t>(p * 65536.0 + 0.5); }
TERN_HD inline bool dropout_keeps(uint64_t key, uint64_t row, uint32_t lane, uint32_t column, uint32_t threshold) {
  const Philox4 words = philox(key, row, lane, column / 8);
  const uint32_t word = words.word[(column % 8) / 2];
  return ((column % 2 == 0 ? word : word >> 16) & 0xffffu) >= threshold;
}

/// The dropout arguments of a kernel. p == 0: no dropout; kept values are scaled by 1 / (1 - p).
struct Dropout {
  double p = 0;
  RandomKey key;
};

}  // namespace tern::kernels
