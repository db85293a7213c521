#pragma once
// Random tensors for tests: different numbers in every run.

#include "tern/core/tensor.h"
#include "tern/core/tensor/generator.h"
#include "tern/tests/support/seed.h"

namespace tern::test {

/// A generator seeded from the program's seed: within one program equal salts give equal numbers. Use different salts
/// for parts of a test that need different numbers.
inline Generator fresh_generator(uint64_t salt = 0) { return Generator(fresh_random(salt)()); }

/// Normal numbers; equal salts give equal ones.
inline Tensor fresh_normal(const Shape& shape, uint64_t salt, DType dtype = float32) {
  Generator generator = fresh_generator(salt);
  return randn(shape, generator, {.dtype = dtype});
}

}  // namespace tern::test
