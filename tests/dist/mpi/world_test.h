#pragma once
// What the tests that run in several processes share. Every process runs every test.

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tern/core/autograd/grad_mode.h"
#include "tern/dist/world.h"

namespace tern::dist {

inline World* world = nullptr;
inline Communicator& group() { return *world->group(); }
inline int rank() { return group().rank(); }
inline int size() { return group().size(); }

/// The same number on all ranks, fresh for every run; TERN_TEST_SEED repeats one.
inline uint64_t shared_seed() {
  static const uint64_t seed = [] {
    const char* given = std::getenv("TERN_TEST_SEED");
    Tensor value = from_vector<int64_t>({given ? std::atoll(given) : int64_t{std::random_device()()}}, {1});
    group().broadcast(value);
    if (rank() == 0) printf("TERN_TEST_SEED=%lld\n", static_cast<long long>(value.item<int64_t>()));
    return static_cast<uint64_t>(value.item<int64_t>());
  }();
  return seed;
}

/// What rank r has in test number `test`: every rank can tell. Whole numbers for integers, 0 and 1 for bool.
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

/// The exit status: 0 when no test of this rank failed.
inline int run_tests(int argc, char** argv, const WorldOptions& options) {
  testing::InitGoogleTest(&argc, argv);
  const Launch launch = detect_launch();
  if (launch.rank != 0) {  // one of them tells what goes well
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
  const int status = RUN_ALL_TESTS();
  all.finish();
  return status;
}

}  // namespace tern::dist
