#include "tern/dist/collectives/communicator.h"

#include <gtest/gtest.h>

#include "tern/core/autograd/grad_mode.h"

namespace tern::dist {
namespace {

const std::vector<double> kValues = {1.5, -2, 1e30, 0.25, -7, 3};

Tensor sample() { return from_vector(kValues, {2, 3}, {.dtype = float64}); }

TEST(SingleProcess, IsRankZeroOfOneAndKeepsEveryValue) {
  SingleProcess group;
  EXPECT_EQ(group.rank(), 0);
  EXPECT_EQ(group.size(), 1);
  group.barrier();
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMax, ReduceOp::kMin}) {
    Tensor x = sample();
    group.all_reduce(x, op);
    EXPECT_EQ(x.to_vector<double>(), kValues);
    group.broadcast(x);
    EXPECT_EQ(x.to_vector<double>(), kValues);
    // A non-contiguous view, and an empty one.
    Tensor view = x.t();
    group.all_reduce(view, op);
    EXPECT_EQ(x.to_vector<double>(), kValues);
    Tensor nothing = zeros({0, 3});
    group.all_reduce(nothing, op);
    EXPECT_EQ(nothing.shape(), Shape({0, 3}));
  }
}

TEST(SingleProcess, GatheringGivesOneCopy) {
  SingleProcess group;
  const Tensor x = sample();
  std::vector<Tensor> all = group.all_gather(x);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].to_vector<double>(), kValues);
  all[0].fill_(0);
  EXPECT_EQ(x.to_vector<double>(), kValues);
}

TEST(SingleProcess, BadArgumentsAreErrorsAndRecordedTensorsNeedNoGrad) {
  SingleProcess group;
  Tensor undefined, x = sample(), counts = zeros({3}, {.dtype = int64});
  EXPECT_THROW(group.all_reduce(undefined), Error);
  EXPECT_THROW(group.broadcast(undefined), Error);
  EXPECT_THROW(group.all_gather(undefined), Error);
  EXPECT_THROW(group.broadcast(x, 1), Error);
  EXPECT_THROW(group.broadcast(x, -1), Error);
  EXPECT_THROW(group.all_reduce(counts, ReduceOp::kMean), Error);
  group.all_reduce(counts, ReduceOp::kSum);
  Tensor weight = zeros({2}, {.requires_grad = true});
  EXPECT_THROW(group.all_reduce(weight), Error);
  EXPECT_THROW(group.broadcast(weight), Error);
  NoGrad off;
  group.broadcast(weight);
  group.all_reduce(weight);
}

}  // namespace
}  // namespace tern::dist
