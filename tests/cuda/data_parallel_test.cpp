// Data-parallel training on CUDA devices, with whole and with divided optimizer state (ZeRO-1): streams, events and the
// order of the collectives, of two and four processes, against one process on the joined batch on the CPU.

#include <optional>

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/captured_step.h"
#include "tern/core/ops/tensor/transfer.h"
#include "tern/dist/gradients/sharded_optimizer.h"
#include "tern/tests/cuda/ranks.h"
#include "tern/tests/cuda/small_net.h"

namespace tern::dist {
namespace {

constexpr int64_t kRows = 3;  // of a rank's batch

/// Odd sizes; `spare` is used on demand only, by the rows that `mask` [rows, 1] names.
class Net final : public nn::Module {
 public:
  Net(const nn::Scope& s, bool has_spare)
      : Module(s), first_(sub("first"), 13, 37), norm_(sub("norm"), 37), second_(sub("second"), 37, 5) {
    if (has_spare) spare_.emplace(sub("spare"), 13, 5);
  }
  Tensor forward(const Tensor& x, const Tensor& mask = {}) const {
    const Tensor y = second_.forward(norm_.forward(gelu(first_.forward(x))));
    return mask.defined() ? y + mask * spare_->forward(x) : y;
  }
  Tensor first_weight() const { return first_.weight(); }
  Tensor last_bias() const { return second_.bias(); }

 private:
  nn::Linear first_;
  nn::LayerNorm norm_;
  nn::Linear second_;
  std::optional<nn::Linear> spare_;
};

/// Several buckets: one for each of the larger parameters.
DataParallelOptions options_of(bool shard) { return {.bucket_bytes = 300, .first_bucket_bytes = 1, .shard = shard}; }

struct Setting {
  DataParallelOptions options = options_of(false);
  bool adam = true;
  bool capture = false;
  DType dtype = float32;   // that autocast computes in; float16: with a loss scaler
  int64_t accumulate = 1;  // passes in a step, all but the last without exchange
  int overflow_at = -1;    // the step in which the last rank's gradients are infinite
  int steps = 6;
};

struct Outcome {
  std::vector<double> start = {}, weights = {}, losses = {}, norms = {}, scales = {};  // start: the first weights
  std::vector<int> skipped = {};
};

struct Batch {
  Tensor x, y, mask;
};
/// What rank r of `ranks` has in a step; r = -1: all of them, after one another. In every other step the last rank, and
/// no other, masks nothing.
Batch batch_of(int step, int r, int ranks, int64_t accumulate) {
  if (r < 0) {
    std::vector<Tensor> x, y, mask;
    for (int each = 0; each < ranks; ++each) {
      const Batch part = batch_of(step, each, ranks, accumulate);
      x.push_back(part.x);
      y.push_back(part.y);
      mask.push_back(part.mask.defined() ? part.mask : zeros({kRows, 1}));
    }
    return {cat(x, 1), cat(y, 1), step % 2 ? cat(mask) : Tensor()};
  }
  Generator generator(shared_seed() + 1000 * static_cast<uint64_t>(step) + static_cast<uint64_t>(r));
  const Tensor x = randn({accumulate, kRows, 13}, generator), y = randn({accumulate, kRows, 5}, generator);
  return {x, y, step % 2 && r == ranks - 1 ? ones({kRows, 1}) : Tensor()};
}

/// From the mean squared error of a batch; `more` are further arguments of the model's forward().
template <class Model, class... More>
void backward(const Model& model, const Batch& batch, More... more) {
  const Device device = model.parameters()[0].tensor.device();
  const int64_t rows = batch.x.size(1);
  const Tensor x = batch.x.reshape({rows, 13}).to(device), y = batch.y.reshape({rows, 5}).to(device);
  mse_loss(model.forward(x, more...), y).backward();
}

/// A steady step costs the host no wait and no memory; captured, it is one graph.
class Costs {
 public:
#ifdef TERN_STANDIN
  Costs() { standin::reset_counters(); }
  void check(bool captured, const std::string& what) const {
    const standin::Counters c = standin::counters();
    require(c.host_synchronizations == 0, what + " waits for the device");
    require(c.memory_calls == 0, what + " takes memory");
    require(c.graph_launches == captured, what + ", graphs");
  }
#else
  void check(bool, const std::string&) const {}
#endif
};

/// eps is so large that AdamW's step is a smooth function of the gradient: with 1e-8 an element whose gradient is near
/// zero takes a step of lr in the direction that rounding gives it, and no bound holds for all inputs.
optim::Algorithm algorithm_of(bool adam) {
  if (adam) return optim::algorithm_of(optim::AdamWOptions{.lr = 1e-3, .eps = 1e-3, .capturable = true});
  return optim::algorithm_of(optim::SGDOptions{.lr = 1e-2, .momentum = 0.9, .capturable = true});
}

/// The weights of all parameters, one after another.
std::vector<double> weights_of(const nn::Module& module) {
  std::vector<double> weights;
  for (const std::vector<double>& values : values_of(module.parameters()))
    weights.insert(weights.end(), values.begin(), values.end());
  return weights;
}

void require_equal_on_all_ranks(const Net& net, Communicator& group) {
  for (const NamedTensor& p : net.parameters())
    for (const Tensor& other : group.all_gather(p.tensor.detach().clone()))
      require(other.to_vector<double>() == p.tensor.to_vector<double>(), p.name + " is equal on all ranks");
}

/// Trains on the batches of this rank; in a group of one, on those of all `ranks` at once. Every rank begins with other
/// weights, so that the broadcast counts.
Outcome train(const std::shared_ptr<Communicator>& group, Device device, int ranks, const Setting& s) {
  const bool alone = group->size() == 1, has_spare = s.options.find_unused;
  Net net(
      nn::Scope({.device = device, .generator = Generator(shared_seed() + 100 + static_cast<uint64_t>(group->rank()))}),
      has_spare);
  DataParallel parallel(net, group, s.options);
  require(alone || parallel.bucket_sizes().size() >= 3, "there are several buckets");
  const std::vector<double> start = weights_of(net);
  ShardedOptimizer optimizer(parallel, {{net.parameters()}}, algorithm_of(s.adam));
  optim::GradScaler scaler({.enabled = s.dtype == float16, .init_scale = 1024, .growth_interval = 3});
  optim::StepResult result;
  Tensor mask;
  const auto backward_of = [&](const Tensors& batch, int64_t pass) {
    const int64_t rows = batch[0].size(1);
    const Tensor x = batch[0].slice(0, pass, pass + 1).reshape({rows, 13});
    const Tensor y = autocast(device, s.dtype, [&] { return net.forward(x, mask); });
    const Tensor target = batch[1].slice(0, pass, pass + 1).reshape({rows, 5});
    const Tensor loss = sum(mul(mse_loss(y.to(float32), target), batch[2]));
    scaler.scale(loss).backward();
    return loss.detach();
  };
  CapturedStep step(
      [&](const Tensors& batch) {
        Tensor loss;
        for (int64_t pass = 0; pass < s.accumulate; ++pass) {
          std::optional<DataParallel::NoSync> local;
          if (pass + 1 < s.accumulate) local.emplace(parallel);
          loss = backward_of(batch, pass);
        }
        result = update(optimizer, scaler);
        return Tensors{loss};
      },
      {.warmup = 2, .enabled = s.capture});
  std::vector<HostCopy> losses;
  std::vector<optim::StepResult> results;
  for (int i = 0; i < s.steps; ++i) {
    optimizer.set_lr_factor(1.0 / (1 + i));
    const Batch batch = batch_of(i, alone ? -1 : group->rank(), ranks, s.accumulate);
    const bool overflows = i == s.overflow_at && (alone || group->rank() == ranks - 1);
    const Tensors inputs = {batch.x.to(device), batch.y.to(device), full({1}, overflows ? INFINITY : 1).to(device)};
    mask = has_spare && batch.mask.defined() ? batch.mask.to(device) : Tensor();
    const Costs costs;
    losses.emplace_back(step(inputs)[0]);
    results.push_back(result.fetch());
    if (i >= 4 && device.is_cuda() && !has_spare) costs.check(s.capture, detail::concatenate("step ", i));
  }
  require(step.captured() == s.capture, "captured");
  if (!alone) require_equal_on_all_ranks(net, *group);
  Outcome outcome = {.start = start, .weights = weights_of(net)};
  for (const HostCopy& loss : losses) outcome.losses.push_back(loss.values()[0]);
  for (const optim::StepResult& r : results) {
    outcome.norms.push_back(r.grad_norm());
    outcome.scales.push_back(r.loss_scale());
    outcome.skipped.push_back(r.skipped());
  }
  return outcome;
}

Outcome train(World& world, const Setting& setting) {
  return train(world.group(), world.group()->device(), world.group()->size(), setting);
}

/// In this process alone, on the CPU, from rank 0's weights.
Outcome train_joined(World& world, Setting setting) {
  setting.capture = false;
  return train(std::make_shared<SingleProcess>(), cpu, world.group()->size(), setting);
}

void require_near(const std::vector<double>& got, const std::vector<double>& want, double tolerance,
                  const std::string& what) {
  require(got.size() == want.size(), what + ", number");
  for (size_t i = 0; i < got.size(); ++i)
    TERN_CHECK(std::abs(got[i] - want[i]) <= tolerance, "wrong: ", what, ", ", i, ": ", got[i], ", expected ", want[i]);
}

/// Bit for bit, but a NaN equals a NaN.
void require_same(const std::vector<double>& got, const std::vector<double>& want, const std::string& what) {
  require(got.size() == want.size(), what + ", number");
  for (size_t i = 0; i < got.size(); ++i) require(std::isnan(want[i]) ? std::isnan(got[i]) : got[i] == want[i], what);
}

void require_same(const Outcome& got, const Outcome& want, const std::string& what) {
  require_same(got.weights, want.weights, what + ", weights");
  require_same(got.losses, want.losses, what + ", losses");
  require_same(got.norms, want.norms, what + ", norms");
  require_same(got.scales, want.scales, what + ", scales");
  require(got.skipped == want.skipped, what + ", skipped");
}

std::string text_of(const Setting& s) {
  return detail::concatenate(s.options.shard ? "divided " : "whole ", s.adam ? "AdamW" : "SGD",
                             s.capture ? ", captured" : "", ", ", s.dtype, ", accumulate ", s.accumulate);
}

/// In norm; NaN and infinity stay.
double distance(const std::vector<double>& a, const std::vector<double>& b) {
  require(a.size() == b.size(), "number of weights");
  double squares = 0;
  for (size_t i = 0; i < a.size(); ++i) squares += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(squares);
}

/// In every order of the streams the same bits, captured or not. From one process on the CPU they differ as sums in
/// another order do: by `rounding` of what the steps have moved, in norm, and by the rounding of each new weight. Where
/// autocast rounds activations both differ from fp32 by as much, independently of each other: sqrt(2) of that is
/// expected, and 4 times as much is allowed.
void in_every_way(World& world, Setting setting, double rounding = 1e-4) {
  const Outcome joined = train_joined(world, setting);
  const double moved = distance(joined.weights, joined.start);
  double tolerance = rounding * moved + setting.steps * 0x1p-24 * std::sqrt(static_cast<double>(joined.weights.size()));
  if (setting.dtype != float32) {
    Setting exact = setting;
    exact.dtype = float32;
    tolerance += 4 * distance(train_joined(world, exact).weights, joined.weights);
  }
  require(tolerance < moved / 4, text_of(setting) + ", a bound that a lost gradient passes");
  std::optional<Outcome> first;
  in_all_orders([&] {
    for (const bool capture : {false, true}) {
      if (capture && setting.options.find_unused) continue;
      setting.capture = capture;
      const Outcome outcome = train(world, setting);
      if (!first) first = outcome;
      require_same(outcome, *first, text_of(setting) + ", another run");
    }
  });
  const double found = distance(first->weights, joined.weights);
  TERN_CHECK(found <= tolerance, "wrong: ", text_of(setting), ": ", found, " from one process, bound ", tolerance);
  require(first->skipped == joined.skipped && first->scales == joined.scales, text_of(setting) + ", skipped steps");
}

void training(World& world) {
  for (const bool adam : {false, true})
    for (const bool shard : {false, true}) in_every_way(world, {.options = options_of(shard), .adam = adam});
}

void accumulation(World& world) {
  for (const bool shard : {false, true})
    in_every_way(world, {.options = options_of(shard), .accumulate = 3, .steps = 5});
}

/// Divided state changes nothing but the order in which the norm is added up.
void divided(World& world) {
  for (const bool adam : {false, true}) {
    const Outcome whole = train(world, {.adam = adam}),
                  parts = train(world, {.options = options_of(true), .adam = adam});
    require_near(parts.weights, whole.weights, 1e-6, "divided weights");
    for (size_t i = 0; i < whole.norms.size(); ++i)
      require_near({parts.norms[i]}, {whole.norms[i]}, 1e-5 * whole.norms[i], "divided norm");
  }
}

/// One rank's gradients are infinite: all leave the step out and lower the scale.
void overflow(World& world) {
  for (const bool shard : {false, true}) {
    const Setting setting = {.options = options_of(shard), .dtype = float16, .overflow_at = 3, .steps = 6};
    in_every_way(world, setting);
    const Outcome outcome = train(world, setting);
    require(outcome.skipped == std::vector<int>{0, 0, 0, 1, 0, 0}, "only the step that overflows is left out");
    require(outcome.scales[4] == outcome.scales[3] / 2, "the scale falls");
  }
}

void sixteen_bits(World& world) {
  for (const bool shard : {false, true}) {
    const DType dtype = shard ? float16 : bfloat16;
    Setting setting = {.options = options_of(shard), .adam = false, .steps = 5};
    const Outcome exact = train(world, setting);
    setting.options.reduce_dtype = dtype;
    // Each rank's gradient is rounded, and their mean. A rank's gradients are larger than the mean of all, at most by
    // sqrt(4) where they are independent: no more than 3 units of the mean.
    in_every_way(world, setting, 4 * (dtype == bfloat16 ? 0x1p-8 : 0x1p-11));
    require(train(world, setting).weights != exact.weights, "gradients are rounded on the way");
  }
}

void unused(World& world) {
  for (const bool shard : {false, true}) {
    DataParallelOptions options = options_of(shard);
    options.find_unused = true;
    in_every_way(world, {.options = options, .steps = 4});
  }
}

/// Two parallel layers of equal size; each rank chooses which of them backward reaches first.
class Fork final : public nn::Module {
 public:
  explicit Fork(const nn::Scope& s) : Module(s), left_(sub("left"), 13, 5), right_(sub("right"), 13, 5) {}
  Tensor forward(const Tensor& x, bool left_first) const {
    if (left_first) {  // the last in forward is the first in backward
      const Tensor right = right_.forward(x);
      return left_.forward(x) - right;
    }
    const Tensor left = left_.forward(x);
    return left - right_.forward(x);
  }

 private:
  nn::Linear left_, right_;
};

void own_order(World& world) {
  Communicator& group = *world.group();
  for (const bool shard : {false, true})
    in_all_orders([&] {
      Fork net(nn::Scope({.device = group.device(), .generator = Generator(shared_seed() + 1)})),
          joined(nn::Scope({.generator = Generator(shared_seed() + 1)}));
      DataParallel parallel(net, world.group(), {.bucket_bytes = 1, .first_bucket_bytes = 1, .shard = shard});
      ShardedOptimizer optimizer(parallel, {{net.parameters()}}, algorithm_of(false));
      optim::Optimizer alone({{joined.parameters()}}, algorithm_of(false));
      for (int i = 0; i < 4; ++i) {
        const Batch own = batch_of(i, group.rank(), group.size(), 1), all = batch_of(i, -1, group.size(), 1);
        backward(net, own, (group.rank() + i) % 2 == 0);
        optimizer.step();
        optimizer.zero_grad();
        backward(joined, all, true);
        alone.step();
        alone.zero_grad();
      }
      const auto got = net.parameters(), want = joined.parameters();
      for (size_t i = 0; i < got.size(); ++i)
        require_near(got[i].tensor.to_vector<double>(), want[i].tensor.to_vector<double>(), 1e-5, got[i].name);
    });
}

/// The exchange has a separate stream: what the current stream has done at the end of backward does not include it.
void beside(World& world) {
#ifdef TERN_STANDIN
  Communicator& group = *world.group();
  Net net(nn::Scope({.device = group.device(), .generator = Generator(shared_seed() + 1)}), false);
  DataParallel parallel(net, world.group(), options_of(false));
  const auto gradient_after = [&](int step) {
    backward(net, batch_of(step, group.rank(), group.size(), 1));
    return net.last_bias().grad().to_vector<double>();
  };
  gradient_after(0);  // makes the buckets
  net.zero_grad();
  const std::vector<double> before = gradient_after(1);  // not dropped: they lie in the bucket
  std::vector<double> seen;
  net.first_weight().register_post_accumulate_hook(
      [&](const Tensor&) { seen = net.last_bias().grad().to_vector<double>(); });
  const std::vector<double> exchanged = gradient_after(2);
  require(seen != before, "the gradient has grown");
  require(seen != exchanged, "the exchange runs on its own stream");
#endif
}

const Scenarios kScenarios = {{"training", training},         {"accumulation", accumulation},
                              {"divided", divided},           {"overflow", overflow},
                              {"sixteen_bits", sixteen_bits}, {"unused", unused},
                              {"own_order", own_order},       {"beside", beside}};

using DataParallelOnCuda = RanksTest;

TEST_F(DataParallelOnCuda, TrainsAsOneProcessInEveryOrderOfTheStreamsAndCaptured) { expect_done("training"); }
TEST_F(DataParallelOnCuda, AccumulatesWithoutExchange) { expect_done("accumulation"); }
TEST_F(DataParallelOnCuda, DividedStateGivesTheSameWeights) { expect_done("divided"); }
TEST_F(DataParallelOnCuda, AnOverflowOnOneRankIsSkippedByAll) { expect_done("overflow"); }
TEST_F(DataParallelOnCuda, ReducesInSixteenBits) { expect_done("sixteen_bits"); }
TEST_F(DataParallelOnCuda, ParametersThatAreNotUsedEverywhere) { expect_done("unused"); }
TEST_F(DataParallelOnCuda, RanksWhoseBackwardHasAnotherOrder) {
  expect_done("own_order");
  expect_done("own_order", 2, {{"TERN_DIST_CHECK", "1"}});
}
TEST_F(DataParallelOnCuda, ExchangesDuringBackward) { expect_done("beside"); }

}  // namespace
}  // namespace tern::dist

int main(int argc, char** argv) { return tern::dist::run_program(argc, argv, tern::dist::kScenarios); }
