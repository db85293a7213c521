// Copies of weights in the layouts of kernels: each serves as long as its weight is unchanged.

#include "tern/core/ops/matmul/packed_weights.h"

#include <atomic>

#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

/// Counts what is packed. A copy is the weight's numbers.
class PackedWeights : public testing::Test {
 protected:
  Tensor find(int key, const Tensor& weight) {
    return copies_.find(key, weight, [&] {
      ++packed_;
      return weight.clone();
    });
  }
  /// Expects that the weight is packed, or not, and that the copy is of its numbers.
  void expect_found(int key, const Tensor& weight, bool packs) {
    const int before = packed_;
    expect_equal(find(key, weight), weight);
    EXPECT_EQ(packed_ - before, packs ? 1 : 0);
  }

  detail::PackedWeights<int, 2> copies_;
  std::atomic<int> packed_ = 0;
};

TEST_F(PackedWeights, InPlaceChangesArePackedAgain) {
  Tensor weight = fresh_normal({5, 3}, 1);
  expect_found(1, weight, true);
  expect_found(1, weight, false);
  weight.mul_(2);
  expect_found(1, weight, true);
  weight.slice(0, 1, 2).fill_(7);  // through a view
  expect_found(1, weight, true);
  weight.data<float>()[4] = 3;
  weight.bump_version();
  expect_found(1, weight, true);
  expect_found(1, weight, false);
}

TEST_F(PackedWeights, AnotherTensorOfTheSameMemory) {
  const Tensor weight = fresh_normal({4, 4}, 2);
  expect_found(1, weight, true);
  expect_found(1, weight.t(), true);
  expect_found(1, weight.slice(0, 0, 2), true);
  expect_found(1, weight.view(int32), true);
}

/// The allocator gives a freed weight's memory to the next tensor of its size, whose version is that of the first.
TEST_F(PackedWeights, AWeightThatIsGoneIsNotTaken) {
  const void* address = nullptr;
  bool reused = false;
  for (int i = 0; i < 8; ++i) {
    const Tensor weight = fresh_normal({64, 65}, 10 + i);
    reused |= weight.raw_data() == address;
    address = weight.raw_data();
    expect_found(1, weight, true);
  }
  EXPECT_TRUE(reused);
  std::weak_ptr<Storage> memory;
  {
    const Tensor weight = fresh_normal({3}, 3);
    memory = weight.storage();
    expect_found(1, weight, true);
  }
  EXPECT_TRUE(memory.expired());
}

TEST_F(PackedWeights, KeepsThoseThatWereUsedLast) {
  const Tensor weight = fresh_normal({3}, 4);
  expect_found(1, weight, true);
  expect_found(2, weight, true);
  expect_found(1, weight, false);
  expect_found(3, weight, true);  // in place of 2
  expect_found(1, weight, false);
  expect_found(2, weight, true);
}

/// A weight that changes at every step takes no place of another key's copy.
TEST_F(PackedWeights, AChangedWeightReplacesItsOwnCopy) {
  Tensor often = fresh_normal({3}, 5);
  const Tensor constant = fresh_normal({3}, 6);
  expect_found(1, constant, true);
  for (int i = 0; i < 4; ++i) {
    often.add_(1);
    expect_found(2, often, true);
  }
  expect_found(1, constant, false);
}

/// An undefined copy says that the kernel reads the weight itself; that is not asked again.
TEST_F(PackedWeights, NothingToPack) {
  const Tensor weight = fresh_normal({3}, 7);
  for (int i = 0; i < 3; ++i)
    EXPECT_FALSE(copies_
                     .find(1, weight,
                           [&] {
                             ++packed_;
                             return Tensor();
                           })
                     .defined());
  EXPECT_EQ(packed_, 1);
}

TEST_F(PackedWeights, EveryLevelHasItsLayout) {
  const kernels::CpuLevel level = kernels::cpu_level(), other = kernels::CpuLevel::kV2;
  if (level == other || !kernels::has_cpu_level(other)) GTEST_SKIP() << "cpu: one level";
  const Tensor weight = fresh_normal({3}, 8);
  expect_found(1, weight, true);
  kernels::set_cpu_level(other);
  expect_found(1, weight, true);
  kernels::set_cpu_level(level);
  expect_found(1, weight, false);
}

TEST_F(PackedWeights, ThreadsShareACopy) {
  const Tensor weight = fresh_normal({100}, 9);
  std::vector<Tensor> found(8);
  std::vector<std::thread> threads;
  for (Tensor& copy : found)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) copy = find(1, weight);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(packed_, 1);
  for (const Tensor& copy : found) EXPECT_EQ(copy.raw_data(), found[0].raw_data());
}

}  // namespace
}  // namespace tern::test
