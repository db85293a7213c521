// Data-parallel training against one process on the joined batch, and what all ranks must agree on.

#include "tern/dist/data_parallel.h"

#include "tern/core/autograd/checkpoint.h"
#include "tern/core/ops/ops.h"
#include "tern/nn/nn.h"
#include "tern/optim/optim.h"
#include "tern/tests/dist/mpi/world_test.h"

namespace tern::dist {
namespace {

/// Odd sizes; `spare` is used on demand only.
class Net final : public nn::Module {
 public:
  Net(const nn::Scope& s, bool has_spare)
      : Module(s), first_(sub("first"), 13, 37), norm_(sub("norm"), 37), second_(sub("second"), 37, 5) {
    if (has_spare) spare_.emplace(sub("spare"), 13, 5);
  }
  Tensor forward(const Tensor& x, bool use_spare = false, bool recompute = false) const {
    const auto body = [this](const Tensor& in) { return norm_.forward(gelu(first_.forward(in))); };
    Tensor y = second_.forward(recompute ? checkpoint(body, x) : body(x));
    return use_spare ? y + spare_->forward(x) : y;
  }

 private:
  nn::Linear first_;
  nn::LayerNorm norm_;
  nn::Linear second_;
  std::optional<nn::Linear> spare_;
};

struct Setting {
  DataParallelOptions options = {};
  bool recompute = false;
  int64_t steps = 100;
};

struct Batch {
  Tensor x, y;
};
Batch batch_of(uint64_t test, int64_t step, int r) {
  const uint64_t number = test * 1'000 + static_cast<uint64_t>(step);
  return {values_of(r, number, {3, 13}, float32), values_of(r, number + 500'000, {3, 5}, float32)};
}

StateView copy_of(const nn::Module& module) {
  StateView copy;
  for (const NamedTensor& entry : module.state_dict()) copy.push_back({entry.name, entry.tensor.detach().clone()});
  return copy;
}

void expect_equal_on_all_ranks(const nn::Module& module) {
  for (const NamedTensor& entry : module.state_dict())
    for (const Tensor& other : group().all_gather(entry.tensor.detach()))
      expect_bits(other, entry.tensor.detach(), entry.name);
}

/// Trains on this rank's batches; every rank begins with other weights, so that the broadcast counts.
StateView train(uint64_t test, const Setting& setting, bool adam) {
  Net net(nn::Scope({.generator = Generator(100 + static_cast<uint64_t>(rank()))}), false);
  DataParallel parallel(net, world->group(), setting.options);
  std::unique_ptr<optim::Optimizer> optimizer;
  if (adam)
    optimizer = std::make_unique<optim::AdamW>(net.parameters(), optim::AdamWOptions{.lr = 1e-3});
  else
    optimizer = std::make_unique<optim::SGD>(net.parameters(), optim::SGDOptions{.lr = 1e-2});
  for (int64_t step = 0; step < setting.steps; ++step) {
    const Batch batch = batch_of(test, step, rank());
    mse_loss(net.forward(batch.x, false, setting.recompute), batch.y).backward();
    optimizer->step({.max_norm = 1});
    optimizer->zero_grad();
  }
  expect_equal_on_all_ranks(net);
  return copy_of(net);
}

/// The same on all batches at once, in this process alone, from rank 0's weights.
StateView train_joined(uint64_t test, int64_t steps, bool adam) {
  Net net(nn::Scope({.generator = Generator(100)}), false);
  std::unique_ptr<optim::Optimizer> optimizer;
  if (adam)
    optimizer = std::make_unique<optim::AdamW>(net.parameters(), optim::AdamWOptions{.lr = 1e-3});
  else
    optimizer = std::make_unique<optim::SGD>(net.parameters(), optim::SGDOptions{.lr = 1e-2});
  for (int64_t step = 0; step < steps; ++step) {
    std::vector<Tensor> x, y;
    for (int r = 0; r < size(); ++r) {
      const Batch batch = batch_of(test, step, r);
      x.push_back(batch.x);
      y.push_back(batch.y);
    }
    mse_loss(net.forward(cat(x)), cat(y)).backward();
    optimizer->step({.max_norm = 1});
    optimizer->zero_grad();
  }
  return copy_of(net);
}

void expect_near(const StateView& got, const StateView& want, double tolerance) {
  for (size_t i = 0; i < got.size(); ++i) {
    const std::vector<double> a = got[i].tensor.to_vector<double>(), b = want[i].tensor.to_vector<double>();
    for (size_t k = 0; k < a.size(); ++k) ASSERT_NEAR(a[k], b[k], tolerance) << got[i].name << " " << k;
  }
}

TEST(DataParallel, AHundredStepsAsOnTheJoinedBatch) {
  expect_near(train(1, {}, false), train_joined(1, 100, false), 1e-5);
  expect_near(train(2, {}, true), train_joined(2, 100, true), 1e-4);
}

TEST(DataParallel, TheSizeOfBucketsAndRecomputationChangeNoBit) {
  const StateView expected = train(3, {.steps = 10}, true);
  for (const int64_t bytes : {1, 300, 2'000})
    for (const bool recompute : {false, true}) {
      const StateView got = train(
          3, {.options = {.bucket_bytes = bytes, .first_bucket_bytes = 1}, .recompute = recompute, .steps = 10}, true);
      for (size_t i = 0; i < got.size(); ++i) expect_bits(got[i].tensor, expected[i].tensor, got[i].name);
    }
}

TEST(DataParallel, BucketsFollowTheOrderOfBackward) {
  Net net(nn::Scope(), false);
  DataParallel parallel(net, world->group(), {.bucket_bytes = 1, .first_bucket_bytes = 1});
  if (size() == 1) return;
  const std::vector<int64_t> before = parallel.bucket_sizes();
  EXPECT_EQ(before.size(), 6u);
  const Batch batch = batch_of(4, 0, rank());
  mse_loss(net.forward(batch.x), batch.y).backward();
  const std::vector<int64_t> after = parallel.bucket_sizes();
  EXPECT_EQ(after.size(), 6u);
  // The second layer's gradients come first, the first layer's weight last.
  EXPECT_EQ(after.back(), (13 * 37 * 4 + 63) / 64 * 64);
}

TEST(DataParallel, SixteenBitReduction) {
  for (const DType dtype : {bfloat16, float16})
    expect_near(train(5, {.options = {.reduce_dtype = dtype}, .steps = 20}, false), train_joined(5, 20, false),
                dtype == bfloat16 ? 5e-3 : 5e-4);
}

TEST(DataParallel, NoSyncAccumulates) {
  Net net(nn::Scope({.generator = Generator(1)}), false);
  DataParallel parallel(net, world->group());
  const Batch a = batch_of(6, 0, rank()), b = batch_of(6, 1, rank());
  {
    DataParallel::NoSync local(parallel);
    mse_loss(net.forward(a.x), a.y).backward();
  }
  mse_loss(net.forward(b.x), b.y).backward();

  Net whole(nn::Scope({.generator = Generator(1)}), false);
  for (int r = 0; r < size(); ++r)
    for (int64_t step = 0; step < 2; ++step) {
      const Batch batch = batch_of(6, step, r);
      (mse_loss(whole.forward(batch.x), batch.y) / size()).backward();
    }
  const auto got = net.parameters(), want = whole.parameters();
  for (size_t i = 0; i < got.size(); ++i) {
    const std::vector<double> x = got[i].tensor.grad().to_vector<double>(),
                              y = want[i].tensor.grad().to_vector<double>();
    for (size_t k = 0; k < x.size(); ++k) ASSERT_NEAR(x[k], y[k], 1e-5) << got[i].name;
  }
}

TEST(DataParallel, UnusedParameters) {
  const Batch batch = batch_of(7, 0, rank());
  {
    Net net(nn::Scope({.generator = Generator(1)}), true);
    DataParallel parallel(net, world->group());
    const std::string error = error_of([&] { mse_loss(net.forward(batch.x), batch.y).backward(); });
    if (size() > 1) {
      EXPECT_NE(error.find("spare.weight, spare.bias"), std::string::npos) << error;
    }
  }
  Net net(nn::Scope({.generator = Generator(1)}), true);
  DataParallel parallel(net, world->group(), {.bucket_bytes = 1, .first_bucket_bytes = 1, .find_unused = true});
  const auto spare_gradient = [&] { return find(net.state_dict(), "spare.weight").grad(); };
  // On no rank.
  mse_loss(net.forward(batch.x), batch.y).backward();
  EXPECT_FALSE(spare_gradient().defined());
  net.zero_grad();
  // On the last rank alone: all get its share.
  mse_loss(net.forward(batch.x, rank() == size() - 1), batch.y).backward();
  ASSERT_TRUE(spare_gradient().defined());
  double sum = 0;
  for (const double v : spare_gradient().to_vector<double>()) sum += std::abs(v);
  EXPECT_GT(sum, 0);
  for (const Tensor& other : group().all_gather(spare_gradient())) expect_bits(other, spare_gradient(), "spare.weight");
}

TEST(DataParallel, ModulesThatDiffer) {
  if (size() == 1) return;
  Net net(nn::Scope(), rank() == 1);
  EXPECT_NE(error_of([&] { DataParallel parallel(net, world->group()); }).find("modules differ"), std::string::npos);
  nn::Linear other(nn::Scope(), rank() == 1 ? 8 : 7, 5);
  EXPECT_NE(error_of([&] { DataParallel parallel(other, world->group()); }).find("parameter 1"), std::string::npos);
}

}  // namespace
}  // namespace tern::dist

int main(int argc, char** argv) {
  return tern::dist::run_tests(argc, argv, {.group = {.timeout_seconds = 60}, .start_seconds = 60});
}
