#pragma once
// The source of random numbers in tests: one seed for each run of a program, different in every run.

#include <cstdint>
#include <random>

namespace tern {

/// Drawn once for this process, or TERN_TEST_SEED of the environment. tests/support/results.h prints it when the
/// program starts and with each failure; with it in TERN_TEST_SEED (--gtest_filter may be used too) a case draws the
/// same numbers. An environment variable that is not a whole number ends the program.
uint64_t fresh_seed();

/// Sets the seed of this process, for processes that share one. Call it before the first fresh_seed().
void set_test_seed(uint64_t seed);

/// A generator for one case. Use different salts for cases, or parts of one, that need different numbers.
inline std::mt19937_64 fresh_random(uint64_t salt = 0) {
  std::seed_seq words{static_cast<uint32_t>(fresh_seed()), static_cast<uint32_t>(fresh_seed() >> 32),
                      static_cast<uint32_t>(salt), static_cast<uint32_t>(salt >> 32)};
  return std::mt19937_64(words);
}

}  // namespace tern
