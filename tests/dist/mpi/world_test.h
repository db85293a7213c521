#pragma once
// Shared by the tests that run in several processes. Every process runs every test.

#include <cstring>

#include "tern/dist/loop/world.h"
#include "tern/nn/module.h"
#include "tern/tests/core/core_test.h"
#include "tern/tests/dist/support.h"

namespace tern::dist {

inline World* world = nullptr;  // main() of world.cpp makes it
inline Communicator& group() { return *world->group(); }
inline int rank() { return group().rank(); }
inline int size() { return group().size(); }

/// The same number on all ranks, new in every run; TERN_TEST_SEED repeats one.
inline uint64_t shared_seed() { return fresh_seed(); }

/// For modules that are equal on all ranks.
inline nn::Scope equal_scope() { return nn::Scope({.generator = Generator(shared_seed() + 1)}); }

/// The values of rank r in test number `test`, which every rank can compute. Integers have whole numbers, bool 0 and 1.
inline Tensor values_of(int r, uint64_t test, const Shape& shape, DType dtype) {
  Generator generator(shared_seed() + 1000 * test + static_cast<uint64_t>(r));
  if (is_floating(dtype)) return randn(shape, generator).to(dtype);
  std::vector<double> values = rand(shape, generator, {.dtype = float64}).to_vector<double>();
  for (double& v : values) v = dtype == DType::kBool ? v < 0.7 : std::floor(v * 100);
  return from_vector(values, shape).to(dtype);
}

inline const Tensor& of_this_rank(const std::vector<Tensor>& of_ranks) { return of_ranks[static_cast<size_t>(rank())]; }

inline std::vector<Tensor> all_values(uint64_t test, const Shape& shape, DType dtype) {
  std::vector<Tensor> all;
  for (int r = 0; r < size(); ++r) all.push_back(values_of(r, test, shape, dtype));
  return all;
}

inline void expect_bits(const Tensor& got, const Tensor& expected, const std::string& what) {
  ASSERT_EQ(got.shape(), expected.shape()) << what;
  ASSERT_EQ(got.dtype(), expected.dtype()) << what;
  const Tensor a = got.contiguous(), b = expected.contiguous();
  ASSERT_TRUE(a.nbytes() == 0 || std::memcmp(a.raw_data(), b.raw_data(), static_cast<size_t>(a.nbytes())) == 0) << what;
}

inline void expect_equal(const StateView& got, const StateView& want, const std::string& what = "") {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].name, want[i].name) << what;
    expect_bits(got[i].tensor.detach(), want[i].tensor.detach(), what + " " + got[i].name);
  }
}

inline void expect_near(const StateView& got, const StateView& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE(got[i].name);
    test::expect_near(got[i].tensor, want[i].tensor, tolerance);
  }
}

inline StateView copy_of(const StateView& state) {
  StateView copy;
  for (const NamedTensor& entry : state) copy.push_back({entry.name, entry.tensor.detach().clone()});
  return copy;
}

inline void expect_equal_on_all_ranks(const StateView& state) {
  for (const NamedTensor& entry : state)
    for (const Tensor& other : group().all_gather(entry.tensor.detach()))
      expect_bits(other, entry.tensor.detach(), entry.name);
}

}  // namespace tern::dist
