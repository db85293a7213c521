// Batch norms whose statistics are those of all ranks' batches, against one process with the whole batch.

#include "tern/dist/gradients/batch_norm.h"

#include "tern/dist/gradients/data_parallel.h"
#include "tern/nn/nn.h"
#include "tern/tests/dist/mpi/world_test.h"

namespace tern::dist {
namespace {

class Net final : public nn::Module {
 public:
  explicit Net(const nn::Scope& s)
      : Module(s),
        conv_(sub("conv"), 2, 5, 3, {.bias = false}),
        first_(sub("first"), 5),
        second_(sub("second"), 5),
        head_(sub("head"), 5, 3) {}
  Tensor forward(const Tensor& x) const {
    const Tensor y = first_.forward(conv_.forward(x), ImageActivation::kRelu);
    return head_.forward(mean(second_.forward(sin(y), ImageActivation::kNone, y), {2, 3}));
  }

 private:
  nn::Conv2d conv_;
  nn::BatchNorm2d first_, second_;
  nn::Linear head_;
};

/// Rank r has r + 1 items, but rank 1 none where there are more than two.
int64_t items_of(int r) { return size() > 2 && r == 1 ? 0 : r + 1; }

TEST(SynchronizedBatchNorm, StepsAreThoseOfTheWholeBatch) {
  Net parts(equal_scope()), whole(equal_scope());
  EXPECT_EQ(synchronize_batch_norms(parts, world->group()), 2);
  // Each rank's sum of losses, so that the mean over ranks is a sum of all items divided by their number.
  DataParallel parallel(parts, world->group());
  for (uint64_t step = 0; step < 3; ++step) {
    std::vector<Tensor> batches;
    int64_t count = 0;
    for (int r = 0; r < size(); ++r) {
      batches.push_back(values_of(r, step, {items_of(r), 2, 6, 5}, float32));
      count += items_of(r);
    }
    sum(square(whole.forward(cat(batches, 0)))).backward();
    (sum(square(parts.forward(of_this_rank(batches)))) * static_cast<double>(size())).backward();
    NoGrad off;
    for (Net* net : {&parts, &whole})
      for (const NamedTensor& p : net->parameters()) {
        Tensor value = p.tensor;
        value.sub_(p.tensor.grad() * (0.01 / static_cast<double>(count)));
      }
    parts.zero_grad();
    whole.zero_grad();
  }
  expect_near(parts.state_dict(), whole.state_dict(), 2e-5);
}

TEST(SynchronizedBatchNorm, OneValuePerChannelOnAllRanksTogether) {
  nn::BatchNorm1d norm(equal_scope(), 4);
  synchronize_batch_norms(norm, world->group());
  const Tensor x = ones({rank() == 0 ? 1 : 0, 4});
  test::expect_error([&] { norm.forward(x); }, {"one value for each channel"});
}

TEST(SynchronizedBatchNorm, EvaluationExchangesNothing) {
  nn::BatchNorm1d norm(equal_scope(), 4);
  synchronize_batch_norms(norm, world->group());
  norm.eval();
  if (rank() == 0) {
    EXPECT_EQ(norm.forward(ones({1, 4})).shape(), (Shape{1, 4}));
  }
  group().barrier();
}

}  // namespace
}  // namespace tern::dist
