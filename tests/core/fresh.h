#pragma once
// Random tensors for tests: other numbers in every run.

#include "tern/core/generator.h"
#include "tern/tests/support/seed.h"

namespace tern::test {

/// A generator seeded from the program's seed: the same salt gives the same numbers again, within one program. Parts of
/// a test that need different numbers give different salts.
inline Generator fresh_generator(uint64_t salt = 0) { return Generator(fresh_random(salt)()); }

}  // namespace tern::test
