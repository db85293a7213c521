#pragma once
// Where the random numbers of the tests come from: one seed for each run of a program, other in every run.

#include <cstdint>
#include <random>

namespace tern {

/// Drawn once for this process, or TERN_TEST_SEED of the environment. tests/support/results.h prints it when the
/// program starts and beside each failure: with it in TERN_TEST_SEED, and with --gtest_filter too, a case draws the
/// same again. An environment variable that is no whole number ends the program.
uint64_t fresh_seed();

/// Uses `seed` from here on: what a process that several share the seed with was given. Before the first fresh_seed().
void set_test_seed(uint64_t seed);

/// A generator for one case. Cases, or parts of one, that need different numbers give different salts.
inline std::mt19937_64 fresh_random(uint64_t salt = 0) {
  std::seed_seq words{static_cast<uint32_t>(fresh_seed()), static_cast<uint32_t>(fresh_seed() >> 32),
                      static_cast<uint32_t>(salt), static_cast<uint32_t>(salt >> 32)};
  return std::mt19937_64(words);
}

}  // namespace tern
