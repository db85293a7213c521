// An optimizer whose state is divided among the ranks against DataParallel with the whole one: the same bits.

#include "tern/dist/gradients/sharded_optimizer.h"

#include <optional>

#include "tern/core/autograd/autocast.h"
#include "tern/core/io/safetensors.h"
#include "tern/core/memory/allocator.h"
#include "tern/nn/nn.h"
#include "tern/optim/optim.h"
#include "tern/tests/dist/mpi/world_test.h"
#include "tern/tests/optim/rmsprop_tf.h"

namespace tern::dist {
namespace {

/// Parameters of one element, of primes, of fewer elements than ranks, and some that are cut: wide has 14,137. `frozen`
/// is not trained; `spare` is used on demand.
class Net final : public nn::Module {
 public:
  explicit Net(const nn::Scope& s)
      : Module(s),
        first_(sub("first"), 13, 211),
        norm_(sub("norm"), 211),
        frozen_(sub("frozen"), 211, 211),
        wide_(sub("wide"), 211, 67),
        last_(sub("last"), 67, 3),
        scale_(this, "scale", {}, [](Tensor& x, Generator&) { x.fill_(1); }),
        spare_(this, "spare", {2}, [](Tensor& x, Generator&) { x.fill_(0.5); }) {
    NoGrad off;
    for (const NamedTensor& parameter : frozen_.parameters()) {
      Tensor tensor = parameter.tensor;
      tensor.set_requires_grad(false);
      tensor.mul_(1e-5);  // gradients of very different sizes: the order in which their squares are added up shows
    }
  }
  Tensor forward(const Tensor& x, bool uses_spare) const {
    const Tensor y = wide_.forward(frozen_.forward(norm_.forward(gelu(first_.forward(x)))));
    const Tensor z = last_.forward(gelu(y)) * scale_.tensor();
    return uses_spare ? z * sum(spare_.tensor()) : z;
  }

 private:
  nn::Linear first_;
  nn::LayerNorm norm_;
  nn::Linear frozen_, wide_, last_;
  Parameter scale_, spare_;
};

struct Setting {
  std::string optimizer = "adamw";
  DType weights = float32;
  DType autocast = float32;
  int64_t bucket_bytes = 25 << 20;
  double max_norm = 0.1;
  double init_scale = 0;  // > 0: with a scaler
  int64_t accumulate = 1;
  bool kahan = false, amsgrad = false, find_unused = false, unscale = false;
  bool later_group = false;  // parameters without weight decay are a group that is added after construction
  bool whole = false;        // parameters belong whole to ranks
  DType reduce_dtype = float32;
};

struct Found {
  StateView weights, state;
  std::vector<double> norms;
  std::vector<bool> skipped;
};

/// A model in training on the ranks of a group.
class Training {
 public:
  Training(std::shared_ptr<Communicator> group, const Setting& setting, bool shard)
      : setting_(setting),
        net_(nn::Scope({.dtype = setting.weights,
                        .generator = Generator(shared_seed() + 100 + static_cast<uint64_t>(group->rank()))})),
        parallel_(net_, group,
                  {.bucket_bytes = setting.bucket_bytes,
                   .first_bucket_bytes = setting.bucket_bytes / 2 + 1,
                   .reduce_dtype = setting.reduce_dtype,
                   .find_unused = setting.find_unused,
                   .shard = shard,
                   .whole_parameters = shard && setting.whole}),
        optimizer_(parallel_, first_groups(), algorithm_of(setting)),
        scaler_({.enabled = setting.init_scale > 0,
                 .init_scale = std::max(setting.init_scale, 1.0),
                 .growth_interval = 3}) {
    if (setting.later_group) optimizer_.add_param_group(optim::no_decay_groups(net_.parameters(), 0.1)[1]);
  }

  void steps(uint64_t test, int64_t begin, int64_t end) {
    for (int64_t step = begin; step < end; ++step) {
      optimizer_.set_lr_factor(1.0 / static_cast<double>(step + 1));
      for (int64_t part = 0; part < setting_.accumulate; ++part) {
        std::optional<DataParallel::NoSync> local;
        if (part + 1 < setting_.accumulate) local.emplace(parallel_);
        backward(test, step * setting_.accumulate + part);
      }
      if (setting_.unscale) scaler_.unscale(optimizer_);
      if (setting_.max_norm > 0) scaler_.clip_grad_norm(optimizer_, setting_.max_norm);
      const optim::StepResult result = scaler_.enabled()
                                           ? scaler_.step(optimizer_)
                                           : optimizer_.step({.max_norm = setting_.max_norm, .skip_non_finite = true});
      if (scaler_.enabled()) scaler_.update();
      optimizer_.zero_grad();
      net_.zero_grad();  // also what the optimizer does not have
      norms_.push_back(result.grad_norm());
      skipped_.push_back(result.skipped());
      bad_ = result.first_non_finite();
    }
  }

  /// The state is rank 0's.
  Found found() { return {copy_of(net_.state_dict()), copy_of(optimizer_.state_dict()), norms_, skipped_}; }

  void load(const Found& from) {
    net_.load_state_dict(from.weights);
    optimizer_.load_state_dict(from.state);
  }

  Net& net() { return net_; }
  DataParallel& parallel() { return parallel_; }
  ShardedOptimizer& optimizer() { return optimizer_; }
  const std::string& first_non_finite() const { return bad_; }

 private:
  std::vector<optim::ParameterGroup> first_groups() const {
    std::vector<optim::ParameterGroup> groups = optim::no_decay_groups(net_.parameters(), 0.1);
    if (setting_.later_group || setting_.optimizer == "muon") groups.pop_back();  // matrices alone
    return groups;
  }
  static optim::Algorithm algorithm_of(const Setting& setting) {
    const bool master = !setting.kahan;
    if (setting.optimizer == "sgd")
      return optim::algorithm_of(
          optim::SGDOptions{.lr = 0.05, .momentum = 0.9, .master_weights = master, .kahan = setting.kahan});
    if (setting.optimizer == "lamb")
      return optim::algorithm_of(optim::LambOptions{.lr = 0.01, .master_weights = master, .kahan = setting.kahan});
    if (setting.optimizer == "adafactor")
      return optim::algorithm_of(optim::AdafactorOptions{.lr = 0.01, .master_weights = master, .kahan = setting.kahan});
    if (setting.optimizer == "muon") return optim::algorithm_of(optim::MuonOptions{.lr = 0.01});
    if (setting.optimizer == "rmsprop_tf")
      return optim::algorithm_of(test::RmspropTfOptions{.momentum = 0.8, .centered = true});
    if (setting.optimizer == "adam")
      return optim::algorithm_of(optim::AdamOptions{.lr = 0.01, .amsgrad = setting.amsgrad, .master_weights = master});
    return optim::algorithm_of(optim::AdamWOptions{.lr = 0.01, .master_weights = master, .kahan = setting.kahan});
  }

  void backward(uint64_t test, int64_t pass) {
    const uint64_t number = test * 1'000 + static_cast<uint64_t>(pass);
    const int rank = parallel_.group()->rank(), size = parallel_.group()->size();
    Tensor x = values_of(rank, number, {4, 13}, float32), y = values_of(rank, number + 500'000, {4, 3}, float32);
    if (pass % 7 == 4 && rank == size - 1) x = x * std::numeric_limits<float>::quiet_NaN();  // a step that is left out
    // With find_unused: in some passes on no rank, in some on the last alone.
    const bool uses_spare = !setting_.find_unused || pass % 3 == 0 || (pass % 3 == 1 && rank == size - 1);
    const Tensor loss = autocast(cpu, setting_.autocast, [&] {
      return mse_loss(net_.forward(x.to(setting_.weights), uses_spare).to(float32), y);
    });
    scaler_.scale(loss).backward();
  }

  const Setting setting_;
  Net net_;
  DataParallel parallel_;
  ShardedOptimizer optimizer_;
  optim::GradScaler scaler_;
  std::vector<double> norms_;
  std::vector<bool> skipped_;
  std::string bad_;
};

/// Both ways; what they find must be the same bits, and the weights the same on all ranks.
void expect_as_unsharded(uint64_t test, const Setting& setting, int64_t steps, const std::string& what) {
  SCOPED_TRACE(what);
  Training sharded(world->group(), setting, true), whole(world->group(), setting, false);
  sharded.steps(test, 0, steps);
  whole.steps(test, 0, steps);
  const Found got = sharded.found(), want = whole.found();
  expect_equal(got.weights, want.weights, what);
  for (const NamedTensor& entry : got.weights) EXPECT_TRUE(all(isfinite(entry.tensor)).item<bool>()) << entry.name;
  expect_equal_on_all_ranks(got.weights);
  EXPECT_EQ(got.norms.size(), want.norms.size());
  for (size_t i = 0; i < got.norms.size(); ++i)
    EXPECT_EQ(std::memcmp(&got.norms[i], &want.norms[i], sizeof(double)), 0)
        << "step " << i << ": " << got.norms[i] << " " << want.norms[i];
  EXPECT_EQ(got.skipped, want.skipped);
  EXPECT_TRUE(steps < 5 || got.skipped[4 / setting.accumulate]);
  EXPECT_EQ(sharded.first_non_finite(), whole.first_non_finite());
  if (rank() == 0)
    expect_equal(got.state, want.state, what);
  else
    EXPECT_EQ(got.state.empty(), sharded.parallel().is_sharded());
}

TEST(ShardedOptimizer, AdamWAsUnsharded) {
  expect_as_unsharded(1, {}, 25, "one bucket");
  expect_as_unsharded(2, {.bucket_bytes = 20'000}, 25, "some buckets");
  expect_as_unsharded(3, {.bucket_bytes = 1, .max_norm = 0}, 8, "a bucket each");
}

TEST(ShardedOptimizer, OtherOptimizersAsUnsharded) {
  expect_as_unsharded(4, {.optimizer = "sgd", .bucket_bytes = 20'000}, 25, "sgd");
  expect_as_unsharded(5, {.optimizer = "adam", .bucket_bytes = 50'000, .amsgrad = true}, 10, "amsgrad");
  expect_as_unsharded(18, {.bucket_bytes = 20'000, .later_group = true}, 10, "a group that is added later");
  expect_as_unsharded(17, {.optimizer = "rmsprop_tf", .bucket_bytes = 20'000}, 10, "an optimizer from outside");
  expect_as_unsharded(6, {.max_norm = std::numeric_limits<double>::infinity()}, 10, "no clipping");
}

TEST(ShardedOptimizer, SixteenBitsAsUnsharded) {
  expect_as_unsharded(7, {.weights = bfloat16, .bucket_bytes = 20'000}, 10, "bf16 with master weights");
  expect_as_unsharded(8, {.weights = bfloat16, .kahan = true}, 10, "bf16 with Kahan's summation");
  expect_as_unsharded(9, {.autocast = bfloat16, .bucket_bytes = 20'000}, 10, "bf16 autocast");
  // The first steps overflow until the scale has fallen.
  const double high = std::ldexp(1, 24);
  expect_as_unsharded(10, {.weights = float16, .bucket_bytes = 20'000, .init_scale = high}, 25, "fp16");
  expect_as_unsharded(11, {.optimizer = "sgd", .autocast = float16, .init_scale = high}, 25, "fp16 autocast");
  expect_as_unsharded(12, {.autocast = float16, .init_scale = 65536, .unscale = true}, 10, "fp16, unscaled in memory");
  expect_as_unsharded(13, {.bucket_bytes = 20'000, .reduce_dtype = bfloat16}, 10, "bf16 on the way");
}

TEST(ShardedOptimizer, AccumulationAndUnusedParametersAsUnsharded) {
  expect_as_unsharded(14, {.bucket_bytes = 20'000, .accumulate = 3}, 10, "three passes a step");
  expect_as_unsharded(15, {.bucket_bytes = 20'000, .find_unused = true}, 12, "unused at times");
  expect_as_unsharded(16, {.accumulate = 2, .find_unused = true}, 12, "unused at times, two passes a step");
}

TEST(ShardedOptimizer, WholeParametersAsUnsharded) {
  expect_as_unsharded(60, {.optimizer = "lamb", .whole = true}, 12, "lamb");
  expect_as_unsharded(61, {.optimizer = "adafactor", .bucket_bytes = 20'000, .whole = true}, 12, "adafactor");
  expect_as_unsharded(62, {.optimizer = "muon", .whole = true}, 12, "muon");
  expect_as_unsharded(63, {.bucket_bytes = 20'000, .whole = true}, 12, "adamw");
  expect_as_unsharded(64, {.optimizer = "lamb", .later_group = true, .whole = true}, 8, "a group that is added later");
  expect_as_unsharded(65, {.optimizer = "lamb", .accumulate = 2, .find_unused = true, .whole = true}, 9, "unused");
  expect_as_unsharded(66, {.optimizer = "lamb", .weights = bfloat16, .whole = true}, 8, "lamb with master weights");
  expect_as_unsharded(67, {.optimizer = "adafactor", .weights = bfloat16, .kahan = true, .whole = true}, 8,
                      "adafactor with Kahan's summation");
  expect_as_unsharded(68, {.optimizer = "muon", .weights = bfloat16, .whole = true}, 8, "muon with master weights");
  const double high = std::ldexp(1, 24);
  expect_as_unsharded(69, {.optimizer = "adafactor", .autocast = float16, .init_scale = high, .whole = true}, 20,
                      "fp16 autocast");
}

/// Each parameter's state is on one rank alone, and the largest are on different ones.
TEST(ShardedOptimizer, WholeParametersAreSharedOut) {
  Training training(world->group(), {.optimizer = "lamb", .whole = true}, true);
  training.steps(70, 0, 1);
  const int64_t own = training.optimizer().state_bytes();
  Tensor sum = from_vector<int64_t>({own}, {1}), most = sum.clone();
  group().all_reduce(sum);
  group().all_reduce(most, ReduceOp::kMax);
  int64_t elements = 0, largest = 0;
  for (const NamedTensor& parameter : training.net().parameters())
    if (parameter.tensor.requires_grad()) {
      elements += parameter.tensor.numel();
      largest = std::max(largest, parameter.tensor.numel());
    }
  EXPECT_EQ(sum.item<int64_t>(), 8 * elements);
  EXPECT_LE(most.item<int64_t>(), 8 * (size() == 1 ? elements : largest));  // the others have less together
  const ModelStateMemory memory = model_state_memory(training.net(), training.optimizer(), &training.parallel());
  EXPECT_EQ(memory.optimizer, own);
}

/// What rank 0 has, for all ranks, by way of a file.
StateView shared(const StateView& state) {
  const std::string path = testing::TempDir() + "/sharded_" + std::to_string(shared_seed()) + ".safetensors";
  if (rank() == 0) save_safetensors(state, path);
  group().barrier();
  const StateView all = copy_of(load_safetensors(path).tensors);
  group().barrier();
  if (rank() == 0) std::filesystem::remove(path);
  return all;
}

TEST(ShardedOptimizer, CheckpointsOfAnyNumberOfRanks) {
  for (const Setting& setting : {Setting{.bucket_bytes = 20'000}, Setting{.weights = bfloat16, .amsgrad = true},
                                 Setting{.optimizer = "sgd", .weights = bfloat16, .kahan = true, .find_unused = true},
                                 Setting{.optimizer = "lamb", .weights = bfloat16, .whole = true},
                                 Setting{.optimizer = "adafactor", .find_unused = true, .whole = true},
                                 Setting{.optimizer = "muon", .whole = true}})
    for (int writers = 1; writers <= size(); ++writers)
      for (const bool sharded : {true, false}) {
        const auto first = [](int count) { return group().split(rank() < count ? 0 : -1); };
        Found written;
        if (const auto some = first(writers)) {
          Training training(some, setting, sharded);
          training.steps(20, 0, 6);
          written = training.found();
        }
        written.state = shared(written.state);
        written.weights = shared(written.weights);
        for (int readers = 1; readers <= size(); ++readers) {
          const auto some = first(readers);
          if (!some) continue;
          Training divided(some, setting, true), whole(some, setting, false);
          for (Training* training : {&divided, &whole}) {
            training->load(written);
            training->steps(20, 6, 10);
          }
          const Found got = divided.found(), want = whole.found();
          const std::string what = std::to_string(writers) + " wrote, " + std::to_string(readers) + " read";
          expect_equal(got.weights, want.weights, what);
          if (rank() == 0) expect_equal(got.state, want.state, what);
        }
        // Those that wrote it, without an interruption.
        if (const auto some = first(writers)) {
          Training training(some, setting, true), resumed(some, setting, true);
          training.steps(20, 0, 10);
          resumed.load(written);
          resumed.steps(20, 6, 10);
          expect_equal(resumed.found().weights, training.found().weights, "resumed");
        }
      }
}

TEST(ShardedOptimizer, StatesThatDoNotFit) {
  Training training(world->group(), {}, true);
  StateView state = shared(training.found().state);
  const auto error = [&] { return error_of([&] { training.optimizer().load_state_dict(state); }); };
  EXPECT_EQ(error(), "no error");
  Tensor& weight = std::find_if(state.begin(), state.end(), [](const NamedTensor& entry) {
                     return entry.name == "exp_avg.wide.weight";
                   })->tensor;
  weight = weight.reshape({-1});
  expect_contains(error(), {"exp_avg.wide.weight is [14137], expected [67, 211]"});
  weight = weight.reshape({67, 211});
  state.pop_back();
  expect_contains(error(), {"missing: exp_avg_sq."});
}

/// Every rank checks also what it does not own.
TEST(ShardedOptimizer, StatesOfWholeParametersThatDoNotFit) {
  Training training(world->group(), {.optimizer = "adafactor", .whole = true}, true);
  training.steps(71, 0, 2);
  StateView state = shared(training.found().state);
  const auto error = [&] { return error_of([&] { training.optimizer().load_state_dict(state); }); };
  EXPECT_EQ(error(), "no error");
  for (const char* name : {"row_var.wide.weight", "col_var.first.weight", "variance.first.bias"}) {
    Tensor& entry =
        std::find_if(state.begin(), state.end(), [&](const NamedTensor& e) { return e.name == name; })->tensor;
    const Tensor before = entry;
    entry = zeros({5});
    expect_contains(error(), {name});
    entry = before;
  }
  EXPECT_EQ(error(), "no error");
  state.pop_back();
  expect_contains(error(), {"missing: "});
}

TEST(ShardedOptimizer, PassesAddUpUntilAStep) {
  Training training(world->group(), {}, true);
  if (size() == 1) return;
  const auto gradients = [&] {
    std::vector<Tensor> all;
    for (const ShardedExchange::Shard& shard : training.parallel().sharded()->shards())
      all.push_back(shard.weight.grad());
    return all;
  };
  const auto backward = [&](uint64_t number) {
    mse_loss(training.net().forward(values_of(rank(), number, {4, 13}, float32), true),
             values_of(rank(), number + 1, {4, 3}, float32))
        .backward();
  };
  std::vector<Tensor> sums;
  backward(30);
  for (const Tensor& gradient : gradients()) sums.push_back(gradient.clone());
  training.optimizer().zero_grad();
  backward(32);
  for (size_t i = 0; i < sums.size(); ++i) sums[i] = gradients()[i] + sums[i];
  training.optimizer().zero_grad();
  for (const Tensor& gradient : gradients()) EXPECT_FALSE(gradient.defined());
  backward(30);
  backward(32);
  for (size_t i = 0; i < sums.size(); ++i) expect_bits(gradients()[i], sums[i], "both");
  for (const NamedTensor& parameter : training.net().parameters()) EXPECT_FALSE(parameter.tensor.grad().defined());
  training.optimizer().step();
  for (const Tensor& gradient : gradients()) EXPECT_FALSE(gradient.defined());
}

TEST(ShardedOptimizer, MistakesAreErrors) {
  if (size() == 1) return;
  Training training(world->group(), {}, true);
  nn::Linear plain(nn::Scope(), 3, 3);
  expect_error([&] { DataParallel(plain, world->group(), {.shard = rank() == 0}); },
               {"shard = true, rank 1 has shard = false"});
  const Tensor loss = sum(training.net().forward(values_of(rank(), 40, {4, 13}, float32), false));
  expect_error([&] { loss.backward(); }, {"no gradient for spare"});
  const std::vector<optim::ParameterGroup> others = {{plain.parameters(), {}, {}}};
  Training whole(world->group(), {.optimizer = "lamb", .whole = true}, true);
  for (Training* divided : {&training, &whole})
    expect_error([&] { ShardedOptimizer(divided->parallel(), others, optim::SGDOptions{}); },
                 {"parameter 'weight' is not of the module"});
  const std::vector<optim::ParameterGroup> own = {{training.net().parameters(), {}, {}}};
  expect_error([&] { ShardedOptimizer(training.parallel(), own, optim::LambOptions{}); },
               {"lamb: needs whole parameters", "whole_parameters = true"});
}

TEST(ShardedOptimizer, MemoryIsThatOfTheFormula) {
  const auto live = [] {
    group().barrier();  // a thread may still hold the tensors of the last exchange
    return static_cast<double>(allocator(cpu).statistics().live_bytes);
  };
  for (const bool master : {false, true}) {
    const DType dtype = master ? bfloat16 : float32;
    const double before = live();
    nn::Linear model(nn::Scope({.dtype = dtype}), 1000, 2000);
    DataParallel parallel(model, world->group(), {.shard = true});
    ShardedOptimizer optimizer(parallel, {{model.parameters(), {}, {}}}, optim::AdamWOptions{});
    const auto step = [&] {
      sum(model.forward(values_of(rank(), 50, {2, 1000}, dtype))).backward();
      optimizer.step({.max_norm = 1});
      optimizer.zero_grad();
    };
    step();
    step();
    const double elements = 1000 * 2000 + 2000, width = master ? 2 : 4, state = master ? 12 : 8;
    const double formula = elements * (2 * width + state / size());
    const ModelStateMemory memory = model_state_memory(model, optimizer, &parallel);
    EXPECT_NEAR(static_cast<double>(memory.expected), formula, 1);
    EXPECT_NEAR(static_cast<double>(memory.total()), formula, 0.05 * formula);
    EXPECT_NEAR(static_cast<double>(memory.weights), elements * width, 0.05 * elements * width);
    // Parts are cut between blocks, so the last has less; together they have just one optimizer's state.
    EXPECT_LE(static_cast<double>(memory.optimizer), 1.05 * elements * state / size());
    Tensor all = from_vector<int64_t>({memory.optimizer}, {1});
    group().all_reduce(all);
    EXPECT_EQ(static_cast<double>(all.item<int64_t>()), elements * state);
    // The allocator rounds up to an eighth; one process has no buckets of gradients.
    const double held = live() - before + (size() == 1 ? elements * width : 0);
    EXPECT_GE(held, 0.99 * static_cast<double>(memory.total()));
    EXPECT_LE(held, 1.15 * formula);
  }
}

}  // namespace
}  // namespace tern::dist
