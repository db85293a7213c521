// Denormal numbers with and without set_flush_denormal(), on the threads of the pool too.

#include "tern/kernels/base/denormals.h"
#include <chrono>

#include "tern/core/device/compute_settings.h"
#include "tern/core/ops/ops.h"
#include "tern/kernels/parallel.h"
#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

class Denormals : public ::testing::Test {
 protected:
  Denormals() { kernels::set_num_threads(4); }
  ~Denormals() override {
    set_flush_denormal(false);
    kernels::set_num_threads(threads_);
  }

  /// Ops whose inputs or results are denormal, of so many elements that several threads share each; matmul is a
  /// library's.
  void expect_results(bool flushed) const {
    const std::vector<std::pair<const char*, std::function<Tensor()>>> ops = {
        {"mul", [&] { return small_ * 0x1p-13; }},
        {"mul by a column", [&] { return small_ * column_; }},
        {"exp", [&] { return exp(exponents_); }},
        {"sum", [&] { return sum(denormal_, {1}); }},
        {"add", [&] { return denormal_ + denormal_; }},
        {"matmul of denormal inputs", [&] { return matmul(denormal_, large_); }},
        {"matmul with denormal results", [&] { return matmul(small_, matrix_); }},
    };
    for (const auto& [name, op] : ops) {
      set_flush_denormal(flushed);
      const Tensor y = op();
      set_flush_denormal(false);  // reading would flush
      for (const double v : y.to_vector<double>()) ASSERT_EQ(v == 0, flushed) << name << ": " << v;
    }
    set_flush_denormal(flushed);
  }

 private:
  int threads_ = kernels::num_threads();
  Tensor denormal_ = full({400, 1000}, 0x1p-140), small_ = full({400, 1000}, 0x1p-120),
         column_ = full({400, 1}, 0x1p-13);
  Tensor exponents_ = full({400, 1000}, -95), large_ = full({1000, 80}, 0x1p60), matrix_ = full({1000, 80}, 0x1p-20);
};

TEST_F(Denormals, OpsOfEveryThreadFlushThem) {
  expect_results(false);
  EXPECT_TRUE(set_flush_denormal(true));
  expect_results(true);
  EXPECT_TRUE(set_flush_denormal(false));
  expect_results(false);
}

TEST_F(Denormals, AreASettingOfTheCallingThread) {
  set_flush_denormal(true);
  bool other = true;
  std::thread([&] {
    set_flush_denormal(false);
    expect_results(false);
    other = kernels::denormal_bits() != 0;
  }).join();
  EXPECT_FALSE(other);
  expect_results(true);
}

/// Blocks that run at the same time for two callers.
TEST_F(Denormals, CallersAtTheSameTime) {
  const auto blocks = [](bool flush) {
    set_flush_denormal(flush);
    for (int i = 0; i < 50; ++i)
      kernels::parallel_for(64, 1, [&](int64_t, int64_t) {
        std::this_thread::sleep_for(std::chrono::microseconds(50));  // so that workers take blocks too
        ASSERT_EQ(kernels::denormal_bits() != 0, flush);
      });
    set_flush_denormal(false);
  };
  std::thread other(blocks, true);
  blocks(false);
  other.join();
}

}  // namespace
}  // namespace tern::test
