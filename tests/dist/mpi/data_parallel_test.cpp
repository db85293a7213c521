// Data-parallel training against one process on the joined batch, and what all ranks must agree on.

#include "tern/dist/gradients/data_parallel.h"

#include <algorithm>
#include <iterator>

#include "tern/core/autograd/checkpoint.h"
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

/// A bucket for each parameter.
constexpr DataParallelOptions kBucketEach = {.bucket_bytes = 1, .first_bucket_bytes = 1};

/// A layer and, if there are elements, a buffer.
struct WithBuffer final : nn::Module {
  WithBuffer(const nn::Scope& s, int64_t elements, double value) : Module(s), layer(sub("layer"), 13, 5) {
    if (elements == 0) return;
    statistics = full({elements}, value);
    add_buffer("statistics", statistics);
  }
  nn::Linear layer;
  Tensor statistics;
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

/// eps is so large that the step is a smooth function of the gradient: with 1e-8 an element whose gradient is near zero
/// takes a step of lr in the direction that rounding gives it, and no bound holds for all inputs.
constexpr optim::AdamWOptions kAdamW = {.lr = 1e-3, .eps = 1e-3};

/// Trains on this rank's batches; every rank begins with other weights, so that the broadcast counts. `joined`: on all
/// batches at once, in this process alone, from rank 0's weights.
StateView train(uint64_t test, const Setting& setting, bool adam, bool joined = false) {
  const auto own = static_cast<uint64_t>(joined ? 0 : rank());
  Net net(nn::Scope({.generator = Generator(shared_seed() + 100 + own)}), false);
  std::optional<DataParallel> parallel;
  if (!joined) parallel.emplace(net, world->group(), setting.options);
  std::unique_ptr<optim::Optimizer> optimizer;
  if (adam)
    optimizer = std::make_unique<optim::AdamW>(net.parameters(), kAdamW);
  else
    optimizer = std::make_unique<optim::SGD>(net.parameters(), optim::SGDOptions{.lr = 1e-2});
  for (int64_t step = 0; step < setting.steps; ++step) {
    std::vector<Tensor> x, y;
    for (int r = joined ? 0 : rank(); r <= (joined ? size() - 1 : rank()); ++r) {
      const Batch batch = batch_of(test, step, r);
      x.push_back(batch.x);
      y.push_back(batch.y);
    }
    mse_loss(net.forward(cat(x), false, setting.recompute), cat(y)).backward();
    optimizer->step({.max_norm = adam ? 1.0 : 1e3});
    optimizer->zero_grad();
  }
  if (!joined) expect_equal_on_all_ranks(net.state_dict());
  return copy_of(net.state_dict());
}

/// Adds the gradients of the mean of all ranks' losses; `forward` gets x and the rank.
template <class Forward>
void backward_of_all(uint64_t test, int64_t step, const Forward& forward) {
  for (int r = 0; r < size(); ++r) {
    const Batch part = batch_of(test, step, r);
    (mse_loss(forward(part.x, r), part.y) / size()).backward();
  }
}

/// In norm; NaN stays.
double distance(const StateView& a, const StateView& b) {
  double squares = 0;
  for (size_t i = 0; i < a.size(); ++i)
    squares += sum(square(a[i].tensor.to(float64) - b[i].tensor.to(float64))).item<double>();
  return std::sqrt(squares);
}

void expect_near_gradients(const nn::Module& got, const nn::Module& want, double tolerance) {
  StateView a, b;
  for (const NamedTensor& p : got.parameters()) a.push_back({p.name, p.tensor.grad()});
  for (const NamedTensor& p : want.parameters()) b.push_back({p.name, p.tensor.grad()});
  expect_near(a, b, tolerance);
}

/// Gradients of size 0.1 differ by a few 1e-8 from sums in another order, and a step of SGD or AdamW passes on at most
/// that (lr / eps = 1): 1e-5 after a hundred steps. What the weights' difference does to later gradients is less: the
/// loss is nearly flat over such distances.
TEST(DataParallel, AHundredStepsAsOnTheJoinedBatch) {
  expect_near(train(1, {}, false), train(1, {}, false, true), 1e-5);
  expect_near(train(2, {}, true), train(2, {}, true, true), 1e-5);
}

TEST(DataParallel, TheSizeOfBucketsAndRecomputationChangeNoBit) {
  const StateView expected = train(3, {.steps = 10}, true);
  for (const int64_t bytes : {1, 300, 2'000})
    for (const bool recompute : {false, true}) {
      const StateView got = train(
          3, {.options = {.bucket_bytes = bytes, .first_bucket_bytes = 1}, .recompute = recompute, .steps = 10}, true);
      expect_equal(got, expected);
    }
}

/// Two parallel layers; which of them backward reaches first is chosen by each rank.
class Fork final : public nn::Module {
 public:
  explicit Fork(const nn::Scope& s) : Module(s), left_(sub("left"), 13, 5), right_(sub("right"), 9, 5) {}
  Tensor forward(const Tensor& x, bool left_first) const {
    const Tensor part = x.slice(1, 0, 9);
    if (left_first) {  // the last in forward is the first in backward
      const Tensor right = right_.forward(part);
      return left_.forward(x) + right;
    }
    const Tensor left = left_.forward(x);
    return left + right_.forward(part);
  }

 private:
  nn::Linear left_, right_;
};

TEST(DataParallel, BucketsFollowTheOrderOfBackwardOnRank0) {
  if (size() == 1) return;
  Fork net(equal_scope());
  DataParallel parallel(net, world->group(), kBucketEach);
  constexpr int64_t kLeft = (13 * 5 * 4 + 63) / 64 * 64, kRight = (9 * 5 * 4 + 63) / 64 * 64, kBias = 64;
  // What is registered last is expected first.
  EXPECT_EQ(parallel.bucket_sizes(), (std::vector<int64_t>{kBias, kRight, kBias, kLeft}));
  const Batch batch = batch_of(4, 0, rank());
  mse_loss(net.forward(batch.x, rank() == 0), batch.y).backward();
  const std::vector<int64_t> sizes = parallel.bucket_sizes();
  ASSERT_EQ(sizes.size(), 4u);
  const auto place_of = [&](int64_t bytes) { return std::find(sizes.begin(), sizes.end(), bytes) - sizes.begin(); };
  EXPECT_LT(place_of(kLeft), 2);
  EXPECT_GE(place_of(kRight), 2);
  EXPECT_LT(place_of(kRight), 4);
}

TEST(DataParallel, AnotherOrderOnEveryRank) {
  Fork net(equal_scope()), whole(equal_scope());
  DataParallel parallel(net, world->group(), kBucketEach);
  for (int64_t step = 0; step < 6; ++step) {
    net.zero_grad();
    whole.zero_grad();
    const Batch batch = batch_of(8, step, rank());
    mse_loss(net.forward(batch.x, (rank() + step) % 2 == 0), batch.y).backward();
    backward_of_all(8, step, [&](const Tensor& x, int) { return whole.forward(x, true); });
    expect_near_gradients(net, whole, 1e-6);
  }
}

/// The rule: each gradient is rounded to the type, summed in float32 in rank order, and the mean is rounded again.
TEST(DataParallel, SixteenBitReduction) {
  for (const DType dtype : {bfloat16, float16}) {
    Net net(equal_scope(), false), alone(equal_scope(), false);
    DataParallel parallel(net, world->group(), {.bucket_bytes = 500, .first_bucket_bytes = 1, .reduce_dtype = dtype});
    const Batch batch = batch_of(5, 0, rank());
    mse_loss(net.forward(batch.x), batch.y).backward();
    mse_loss(alone.forward(batch.x), batch.y).backward();
    const auto got = net.parameters(), own = alone.parameters();
    for (size_t i = 0; i < got.size(); ++i) {
      NoGrad off;
      if (size() == 1) {
        expect_bits(got[i].tensor.grad(), own[i].tensor.grad(), got[i].name);
        continue;
      }
      Tensor sum = zeros(own[i].tensor.shape());
      for (const Tensor& g : group().all_gather(own[i].tensor.grad().to(dtype))) sum.add_(g.to(float32));
      expect_bits(got[i].tensor.grad(), (sum / size()).to(dtype).to(float32), got[i].name);
    }
    // Rounding is no drift. Each rank's gradient is rounded, and their mean; a rank's is larger than the mean, by
    // sqrt(8) where they are independent: no more than 4 units of the mean, in norm, and each new weight is rounded.
    const StateView start = copy_of(Net(nn::Scope({.generator = Generator(shared_seed() + 100)}), false).state_dict());
    const StateView joined = train(5, {.steps = 20}, false, true);
    const StateView reduced = train(5, {.options = {.reduce_dtype = dtype}, .steps = 20}, false);
    const double unit = dtype == bfloat16 ? 0x1p-8 : 0x1p-11, weights = 13 * 37 + 3 * 37 + 38 * 5;
    EXPECT_LE(distance(reduced, joined), 4 * unit * distance(joined, start) + 20 * 0x1p-24 * std::sqrt(weights));
  }
}

TEST(DataParallel, SixteenBitWeightsAndFrozenOnes) {
  Net net(nn::Scope({.dtype = bfloat16, .generator = Generator(shared_seed() + 100 + static_cast<uint64_t>(rank()))}),
          false);
  find(net.state_dict(), "first.bias").set_requires_grad(false);
  const Tensor frozen = find(net.state_dict(), "first.bias");
  DataParallel parallel(net, world->group(), {.bucket_bytes = 700, .first_bucket_bytes = 1});
  const StateView before = copy_of(net.state_dict());  // rank 0's
  optim::SGD optimizer(net.parameters(), {.lr = 1e-2});
  for (int64_t step = 0; step < 5; ++step) {
    const Batch batch = batch_of(9, step, rank());
    mse_loss(net.forward(batch.x.to(bfloat16)), batch.y.to(bfloat16)).backward();
    optimizer.step();
    optimizer.zero_grad();
  }
  expect_equal_on_all_ranks(net.state_dict());
  EXPECT_FALSE(frozen.grad().defined());
  for (const NamedTensor& entry : before) {
    if (entry.name == "norm.weight") continue;  // ones: their neighbours in bf16 may be further than these steps
    const bool same = find(net.state_dict(), entry.name).to_vector<double>() == entry.tensor.to_vector<double>();
    EXPECT_EQ(same, entry.name == "first.bias") << entry.name;
  }
}

TEST(DataParallel, NotANumberOnOneRankIsOnAll) {
  Net net(equal_scope(), false);
  DataParallel parallel(net, world->group(), kBucketEach);
  const StateView before = copy_of(net.state_dict());
  optim::SGD optimizer(net.parameters(), {.lr = 1e-2});
  Batch batch = batch_of(10, 0, rank());
  if (rank() == size() - 1) batch.x = batch.x * std::numeric_limits<double>::quiet_NaN();
  mse_loss(net.forward(batch.x), batch.y).backward();
  for (const NamedTensor& p : net.parameters())
    if (p.name != "second.bias") {
      EXPECT_TRUE(std::isnan(p.tensor.grad().to_vector<double>()[0])) << p.name;
    }
  EXPECT_TRUE(optimizer.step({.max_norm = 1, .skip_non_finite = true}).skipped());
  expect_equal(net.state_dict(), before);
}

TEST(DataParallel, BuffersAreThoseOfRank0) {
  WithBuffer net(nn::Scope(), 3, rank() + 1);
  DataParallel parallel(net, world->group());
  EXPECT_EQ(net.statistics.to_vector<double>(), std::vector<double>(3, 1));
  net.statistics.fill_(10 + rank());
  parallel.broadcast_buffers();
  EXPECT_EQ(net.statistics.to_vector<double>(), std::vector<double>(3, 10));
}

/// Gradients are whole when backward returns: here they take longer than all that follows their exchange, and the test
/// looks at those that come last first.
TEST(DataParallel, BackwardWaitsForTheLastPiece) {
  nn::Linear net(nn::Scope(), 1000, 6000);
  DataParallel parallel(net, world->group(), {.bucket_bytes = 64 << 20, .first_bucket_bytes = 64 << 20});
  for (int pass = 0; pass < 3; ++pass) {
    sum(net.forward(full({1, 1000}, rank() + 1))).backward();
    const Tensor gradient = net.weight().grad();
    const float* const values = static_cast<const float*>(gradient.raw_data());
    const auto right = [](float value) { return value == static_cast<float>(size() + 1) / 2; };
    const auto wrong = std::find_if_not(std::make_reverse_iterator(values + gradient.numel()),
                                        std::make_reverse_iterator(values), right);
    EXPECT_EQ(wrong, std::make_reverse_iterator(values)) << "pass " << pass;
    net.zero_grad();
  }
}

TEST(DataParallel, NoSyncAccumulates) {
  Net net(equal_scope(), true), whole(equal_scope(), true);
  DataParallel parallel(net, world->group(), {.bucket_bytes = 600, .first_bucket_bytes = 1});
  for (int64_t round = 0; round < 3; ++round) {
    const Batch a = batch_of(6, 2 * round, rank()), b = batch_of(6, 2 * round + 1, rank());
    {
      DataParallel::NoSync local(parallel);
      mse_loss(net.forward(a.x, true), a.y).backward();
    }
    // What only the first of the two passes uses travels with the second.
    mse_loss(net.forward(b.x), b.y).backward();
    for (int64_t i = 0; i < 2; ++i)
      backward_of_all(6, 2 * round + i, [&](const Tensor& x, int) { return whole.forward(x, i == 0); });
    expect_near_gradients(net, whole, 1e-5);
    if (round == 1) continue;  // gradients that are not dropped grow
    net.zero_grad();
    whole.zero_grad();
  }
}

TEST(DataParallel, UnusedParameters) {
  const Batch batch = batch_of(7, 0, rank());
  if (size() > 1) {
    Net net(equal_scope(), true);
    DataParallel parallel(net, world->group());
    const auto error_with = [&](bool use_spare) {
      net.zero_grad();
      return error_of([&] { mse_loss(net.forward(batch.x, use_spare), batch.y).backward(); });
    };
    for (int time = 0; time < 2; ++time) {
      expect_contains(error_with(false), {"no gradient for spare.weight, spare.bias on " + std::to_string(size())});
      expect_contains(error_with(rank() != 1), {"no gradient for spare.weight, spare.bias on 1 of "});
      EXPECT_EQ(error_with(true), "no error");
    }
  }
  Net net(equal_scope(), true), whole(equal_scope(), true);
  DataParallel parallel(net, world->group(), {.bucket_bytes = 1, .first_bucket_bytes = 1, .find_unused = true});
  const auto spare_gradient = [&] { return find(net.state_dict(), "spare.weight").grad(); };
  for (int time = 0; time < 2; ++time) {
    // On no rank.
    mse_loss(net.forward(batch.x), batch.y).backward();
    EXPECT_FALSE(spare_gradient().defined());
    net.zero_grad();
    // On the last rank alone: all get its share.
    mse_loss(net.forward(batch.x, rank() == size() - 1), batch.y).backward();
    ASSERT_TRUE(spare_gradient().defined());
    whole.zero_grad();
    backward_of_all(7, 0, [&](const Tensor& x, int r) { return whole.forward(x, r == size() - 1); });
    expect_near_gradients(net, whole, 1e-6);
    net.zero_grad();
  }
}

TEST(DataParallel, ModulesThatDiffer) {
  if (size() == 1) return;
  const int last = size() - 1;
  const bool is_last = rank() == last;
  const std::string rank_name = ", rank " + std::to_string(last) + " has ";
  const auto expect_difference = [&](nn::Module& module, const DataParallelOptions& options, const std::string& on_0,
                                     const std::string& on_last) {
    expect_error([&] { DataParallel(module, world->group(), options); },
                 {"modules differ: rank 0 has " + on_0 + rank_name + on_last});
  };
  Net more(nn::Scope(), is_last);
  expect_difference(more, {}, "nothing more", "parameter 'spare.weight'");
  Net fewer(nn::Scope(), !is_last);
  expect_difference(fewer, {}, "parameter 'spare.weight', float32 [5, 13]", "nothing more");
  nn::Linear other(nn::Scope(), is_last ? 8 : 7, 5);
  expect_difference(other, {}, "parameter 'weight', float32 [5, 7]", "parameter 'weight', float32 [5, 8]");
  nn::Linear narrow(nn::Scope({.dtype = is_last ? bfloat16 : float32}), 7, 5);
  expect_difference(narrow, {}, "parameter 'weight', float32 [5, 7]", "parameter 'weight', bfloat16");
  nn::Linear frozen(nn::Scope(), 7, 5);
  for (const NamedTensor& p : frozen.parameters()) Tensor(p.tensor).set_requires_grad(!is_last);
  expect_difference(frozen, {}, "parameter 'weight', float32 [5, 7]", "frozen parameter 'weight'");
  nn::Linear equal(nn::Scope(), 7, 5);
  expect_difference(equal, {.bucket_bytes = 100 + is_last}, "bucket_bytes = 100", "bucket_bytes = 101");
  expect_difference(equal, {.first_bucket_bytes = 100 + is_last}, "first_bucket_bytes = 100",
                    "first_bucket_bytes = 101");
  expect_difference(equal, {.reduce_dtype = is_last ? bfloat16 : float32}, "reduce_dtype = float32",
                    "reduce_dtype = bfloat16");
  expect_difference(equal, {.find_unused = is_last}, "find_unused = false", "find_unused = true");
  expect_difference(equal, {.shard = is_last}, "shard = false", "shard = true");
  WithBuffer longer(nn::Scope(), is_last ? 4 : 3, 1), without(nn::Scope(), is_last ? 0 : 3, 1);
  expect_difference(longer, {}, "buffer 'statistics', float32 [3]", "buffer 'statistics', float32 [4]");
  expect_difference(without, {}, "buffer 'statistics', float32 [3]", "nothing more");

  // Equal parameters, but the gradient of only one of them has few rows.
  const auto table = [&]() -> std::unique_ptr<nn::Module> {
    if (!is_last) return std::make_unique<nn::Embedding>(nn::Scope(), 70000, 5);
    return std::make_unique<nn::Linear>(nn::Scope(), 5, 70000, nn::LinearOptions{.bias = false});
  }();
  expect_difference(*table, {}, "parameter 'weight', float32 [70000, 5], few gradient rows",
                    "parameter 'weight', float32 [70000, 5]");
}

TEST(DataParallel, AFailedPassIsNotMended) {
  if (size() == 1) return;
  Net net(nn::Scope(), false);
  DataParallel parallel(net, world->group(), kBucketEach);
  const Batch batch = batch_of(11, 0, rank());
  // All ranks fail at the last parameter, so that their calls stay in step.
  const Tensor first = find(net.state_dict(), "first.weight");
  const int64_t hook = Tensor(first).register_hook([](const Tensor&) -> Tensor { fail("planted"); });
  const auto backward = [&] { mse_loss(net.forward(batch.x), batch.y).backward(); };
  expect_error(backward, {"planted"});
  Tensor(first).remove_hook(hook);
  net.zero_grad();
  expect_error(backward, {"do not agree any more"});
}

/// Buckets are of the types that parameters had.
TEST(DataParallel, ConvertedModulesAreErrors) {
  if (size() == 1) return;
  const Batch batch = batch_of(12, 0, rank());
  for (const bool shard : {false, true}) {
    Net net(nn::Scope(), false);
    DataParallel parallel(net, world->group(), {.shard = shard});
    const auto backward = [&](DType dtype) { mse_loss(net.forward(batch.x.to(dtype)), batch.y.to(dtype)).backward(); };
    backward(float32);
    net.zero_grad();
    net.to(float64);
    expect_error([&] { backward(float64); }, {"DataParallel: parameter '", "float64", "float32", "Module::to"});
    net.to(float32);
    net.zero_grad();
    if (shard)  // the buckets hold the weights themselves
      expect_error([&] { backward(float32); }, {"DataParallel: parameter '", "out of its bucket"});
    else
      backward(float32);
  }
}

}  // namespace
}  // namespace tern::dist
