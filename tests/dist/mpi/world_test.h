#pragma once
// Shared by the tests that run in several processes. Every process runs every test.

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <random>

#include "tern/core/autograd/grad_mode.h"
#include "tern/dist/world.h"
#include "tern/tests/support/results.h"
#include "tern/tests/support/seed.h"

namespace tern::dist {

inline World* world = nullptr;
inline Communicator& group() { return *world->group(); }
inline int rank() { return group().rank(); }
inline int size() { return group().size(); }

/// The same number on all ranks, new in every run; TERN_TEST_SEED repeats one.
inline uint64_t shared_seed() { return fresh_seed(); }

/// The values of rank r in test number `test`, which every rank can compute. Integers have whole numbers, bool 0 and 1.
inline Tensor values_of(int r, uint64_t test, const Shape& shape, DType dtype) {
  Generator generator(shared_seed() + 1000 * test + static_cast<uint64_t>(r));
  if (is_floating(dtype)) return randn(shape, generator).to(dtype);
  Tensor x = rand(shape, generator, {.dtype = float64});
  std::vector<double> values = x.to_vector<double>();
  for (double& v : values) v = dtype == DType::kBool ? v < 0.7 : std::floor(v * 100);
  return from_vector(values, shape).to(dtype);
}

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

/// The message of the Error that f throws.
template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// Returns the exit status: 0 if no test failed on this rank.
inline int run_tests(int argc, char** argv, const WorldOptions& options) {
  testing::InitGoogleTest(&argc, argv);
  const Launch launch = detect_launch();
  if (launch.rank != 0) {  // only rank 0 prints successes
    testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    struct Failures final : testing::EmptyTestEventListener {
      void OnTestPartResult(const testing::TestPartResult& result) override {
        if (result.failed())
          fprintf(stderr, "rank %d: %s:%d: %s\n", detect_launch().rank, result.file_name(), result.line_number(),
                  result.message());
      }
    };
    listeners.Append(new Failures);
  }
  World all(launch, cpu, options);
  world = &all;
  if (size() > 1) {  // all ranks use rank 0's seed
    Tensor seed = from_vector<int64_t>({rank() == 0 ? static_cast<int64_t>(fresh_seed()) : 0}, {1});
    group().broadcast(seed);
    if (rank() != 0) set_test_seed(static_cast<uint64_t>(seed.item<int64_t>()));
  }
  // Rank 0 counts the cases. A case that fails only on another rank makes the program fail.
  std::string name = program_invocation_short_name;  // dist_mpi_NAME_test; its ctest test is dist_mpi_NAME_PROCESSES
  name = name.substr(0, name.rfind("_test")) + "_" + std::to_string(size());
  const int status = rank() == 0 ? run_all_tests(name) : RUN_ALL_TESTS();
  all.finish();
  return status;
}

}  // namespace tern::dist
