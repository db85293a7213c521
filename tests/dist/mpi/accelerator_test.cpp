// A loop with the Accelerator against the same steps in one process, made of the losses of all ranks' batches.

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "tern/data/loaders/loader.h"
#include "tern/dist/gradients/sharded_optimizer.h"
#include "tern/dist/loop/accelerator.h"
#include "tern/nn/nn.h"
#include "tern/optim/optim.h"
#include "tern/tests/dist/mpi/world_test.h"

namespace tern::dist {
namespace {

constexpr int64_t kFeatures = 5;

struct Net final : nn::Module {
  explicit Net(const nn::Scope& scope) : Module(scope), hidden(sub("hidden"), kFeatures, 9), out(sub("out"), 9, 3) {}
  Tensor forward(const Tensor& x) const { return out.forward(tanh(hidden.forward(x))); }
  nn::Linear hidden, out;
};

nn::Scope double_scope(uint64_t salt) {
  return nn::Scope({.dtype = float64, .generator = Generator(shared_seed() + salt)});
}

/// So many batches of 4 rows, the last with 1 to 4.
data::Loader<> loader_of(int64_t batches) {
  Generator values(shared_seed() + 20);
  const int64_t rows = 4 * batches - randint(0, 4, {1}, values).item<int64_t>();
  return data::Loader(data::TensorDataset({randn({rows, kFeatures}, values, {.dtype = float64}),
                                           randint(0, 3, {rows}, values), arange(0, rows)}),
                      {.batch_size = 4, .shuffle = true, .seed = 5});
}

Tensor loss_of(const Net& net, const std::vector<Tensor>& batch) {
  return cross_entropy(net.forward(batch[0]), batch[1]);
}

/// The steps of the epochs, each of the mean loss of up to `each` batches, in this process alone.
int64_t train_alone(Net& net, optim::Optimizer& optimizer, const data::Loader<>& loader, int64_t epochs, int64_t each,
                    double clip) {
  int64_t steps = 0;
  for (int64_t epoch = 0; epoch < epochs; ++epoch)
    for (int64_t begin = 0; begin < loader.steps(); begin += each, ++steps) {
      const int64_t end = std::min(begin + each, loader.steps());
      Tensor sum = zeros({}, {.dtype = float64});
      for (int64_t batch = begin; batch < end; ++batch) sum = sum + loss_of(net, loader.batch(epoch, batch));
      (sum / static_cast<double>(end - begin)).backward();
      optimizer.step({.max_norm = clip});
      optimizer.zero_grad();
    }
  return steps;
}

/// Returns the number of steps.
int64_t train(Accelerator& accelerator, const Net& net, optim::Optimizer& optimizer, const data::Loader<>& loader,
              int64_t epochs, int64_t first = 0) {
  int64_t steps = 0;
  for (int64_t epoch = 0; epoch < epochs; ++epoch, first = 0)
    for (const auto& batch : accelerator.train_batches(loader, epoch, first)) {
      accelerator.backward(accelerator.autocast([&] { return loss_of(net, batch); }));
      const bool is_end = accelerator.is_step_end();
      EXPECT_EQ(accelerator.step(optimizer).has_value(), is_end);
      steps += is_end;
    }
  return steps;
}

/// Each batch is in one step, and what the ranks average of a step is the mean of its examples.
TEST(Accelerator, PlansOfSteps) {
  for (int64_t ranks = 1; ranks <= 3; ++ranks)
    for (int64_t accumulate = 1; accumulate <= 3; ++accumulate)
      for (int64_t batches = 1; batches <= 20; ++batches) {
        const StepPlan plan{batches, accumulate, ranks};
        const auto examples_of = [&](int64_t batch) { return batch < batches ? batch % 4 + 1 : 0; };
        std::vector<int64_t> seen;
        for (int64_t step = 0; step < plan.steps(); ++step) {
          int64_t examples = 0;
          double weights = 0;
          for (int64_t batch = plan.begin(step); batch < plan.end(step); ++batch) {
            seen.push_back(batch);
            examples += examples_of(batch);
          }
          for (int64_t round = step * accumulate; round < (step + 1) * accumulate; ++round)
            for (int64_t r = 0; r < ranks; ++r) {
              const int64_t batch = round * ranks + r;
              const double weight = plan.weight(examples_of(batch), examples);
              EXPECT_NEAR(weight * static_cast<double>(examples), static_cast<double>(ranks * examples_of(batch)),
                          1e-12);
              EXPECT_EQ(weight == 0, batch >= batches);
              weights += weight;
            }
          EXPECT_NEAR(weights, static_cast<double>(ranks), 1e-12);
        }
        std::vector<int64_t> all(static_cast<size_t>(batches));
        std::iota(all.begin(), all.end(), 0);
        EXPECT_EQ(seen, all);
        EXPECT_EQ(plan.rounds(), (batches - 1) / ranks + 1);
      }
}

/// Every number of batches from less than a round to several steps.
TEST(Accelerator, AStepIsTheMeanOfItsBatches) {
  for (const bool shard : {false, true})
    for (const int64_t accumulate : {1, 2, 3})
      for (const int64_t batches :
           std::vector<int64_t>{1, size() + 1, accumulate * size(), 2 * accumulate * size() + size() - 1}) {
        SCOPED_TRACE(detail::concatenate("shard ", shard, ", accumulate ", accumulate, ", batches ", batches));
        const data::Loader<> loader = loader_of(batches);
        const double clip = 0.3;
        Accelerator accelerator(world->group(),
                                {.accumulate = accumulate, .clip_norm = clip, .parallel = {.shard = shard}});
        Net net(double_scope(40 + static_cast<uint64_t>(rank()))), alone(double_scope(40));
        const optim::SGDOptions options{.lr = 0.3, .momentum = 0.9};
        DataParallel& parallel = accelerator.prepare(net);
        ShardedOptimizer optimizer(parallel, {{net.parameters()}}, options);
        optim::SGD expected(alone.parameters(), options);
        expect_equal(copy_of(net.state_dict()), copy_of(alone.state_dict()), "rank 0's weights");
        const int64_t steps = train(accelerator, net, optimizer, loader, 2);
        EXPECT_EQ(steps, train_alone(alone, expected, loader, 2, accumulate * size(), clip));
        expect_near(net.state_dict(), alone.state_dict(), 1e-12);
        expect_equal_on_all_ranks(net.state_dict());
      }
}

/// Without clipping the sum of gradients, of two modules that have an optimizer each.
TEST(Accelerator, TwoModulesAlternate) {
  Accelerator accelerator(world->group(), {.accumulate = 2});
  const data::Loader<> loader = loader_of(4 * size());
  Net first(double_scope(1)), second(double_scope(2)), alone(double_scope(1)), other(double_scope(2));
  accelerator.prepare(first);
  accelerator.prepare(second);
  optim::SGD of_first(first.parameters(), {.lr = 0.2}), of_second(second.parameters(), {.lr = 0.1});
  for (const auto& batch : accelerator.train_batches(loader, 0)) {
    accelerator.backward(loss_of(first, batch));
    const std::vector<Tensor> of_ranks = group().all_gather(first.parameters().back().tensor.grad());
    if (size() > 1) {  // travels with the last batch of a step alone
      EXPECT_EQ(of_ranks[0].to_vector<double>() == of_ranks[1].to_vector<double>(), accelerator.is_step_end());
    }
    accelerator.step(of_first);
    accelerator.backward(loss_of(second, batch));
    accelerator.step(of_second);
  }
  optim::SGD a(alone.parameters(), {.lr = 0.2}), b(other.parameters(), {.lr = 0.1});
  train_alone(alone, a, loader, 1, 2 * size(), 0);
  train_alone(other, b, loader, 1, 2 * size(), 0);
  expect_near(first.state_dict(), alone.state_dict(), 1e-12);
  expect_near(second.state_dict(), other.state_dict(), 1e-12);
}

/// float16 with a scale that overflows at first, stopped in the middle of an epoch: the same bits.
TEST(Accelerator, AScaledLoopGoesOnWithTheSameBits) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() /
      ("tern-accelerator-" + std::to_string(shared_seed()) + "-" + std::to_string(size()));
  const data::Loader<> loader = loader_of(6 * size());
  struct Run {
    explicit Run(uint64_t salt)
        : accelerator(world->group(), {.precision = float16,
                                       .accumulate = 2,
                                       .clip_norm = 1,
                                       .scaler = {.init_scale = 0x1p24, .growth_interval = 2}}),
          net(nn::Scope({.generator = Generator(salt)})),
          optimizer((accelerator.prepare(net), net.parameters()), {.lr = 0.01}),
          state(accelerator.group()) {
      state.add("net", net);
      state.add("optimizer", optimizer);
      state.add("scaler", accelerator);
    }
    Accelerator accelerator;
    Net net;
    optim::AdamW optimizer;
    LoopState state;
  } whole(1), begun(1), resumed(2);
  const auto run = [&](Run& of, int64_t first, int64_t end) {
    int64_t skipped = 0, round = first;
    for (const auto& batch : of.accelerator.train_batches(loader, 0, first)) {
      const Tensor loss = of.accelerator.autocast([&] {
        const Tensor logits = of.net.forward(batch[0].to(float32));
        EXPECT_EQ(logits.dtype(), float16);
        return cross_entropy(logits, batch[1]);
      });
      of.accelerator.backward(loss);
      if (const auto step = of.accelerator.step(of.optimizer)) skipped += step->skipped();
      if (++round == end) break;
    }
    return skipped;
  };
  run(whole, 0, 2);
  const StateView after_overflow = copy_of(whole.net.state_dict());
  EXPECT_EQ(run(begun, 0, 2), 1);
  expect_equal(copy_of(begun.net.state_dict()), after_overflow);
  EXPECT_EQ(begun.accelerator.loss_scale(), 0x1p23);
  begun.state.save(path.string());
  resumed.state.load(path.string());
  EXPECT_EQ(resumed.accelerator.loss_scale(), 0x1p23);
  run(whole, 2, 6);
  run(resumed, 2, 6);
  expect_equal(copy_of(resumed.net.state_dict()), copy_of(whole.net.state_dict()));
  EXPECT_EQ(resumed.accelerator.loss_scale(), whole.accelerator.loss_scale());
  EXPECT_LT(whole.accelerator.loss_scale(), 0x1p24);
  group().barrier();
  if (rank() == 0) std::filesystem::remove(path);
}

TEST(Accelerator, EveryBatchIsEvaluatedOnce) {
  Accelerator accelerator(world->group());
  for (const int64_t batches : std::vector<int64_t>{1, size() + 1}) {
    const data::Loader<> loader = loader_of(batches);
    Tensor seen = zeros({loader.size()}, {.dtype = int64});
    for (const auto& batch : accelerator.eval_batches(loader))
      for (const int64_t row : batch[2].to_vector<int64_t>()) seen.select(0, row).copy_(ones({}, {.dtype = int64}));
    group().all_reduce(seen);
    expect_bits(seen, ones({loader.size()}, {.dtype = int64}), "rows");
  }
}

TEST(Accelerator, ReducesWhatIsPrinted) {
  Accelerator accelerator(world->group());
  const Tensor own = full({2}, static_cast<double>(rank()));
  EXPECT_EQ(accelerator.mean(own).to_vector<float>(), std::vector<float>(2, static_cast<float>(size() - 1) / 2));
  EXPECT_EQ(own.to_vector<float>(), std::vector<float>(2, static_cast<float>(rank())));
  EXPECT_TRUE(accelerator.any(rank() == size() - 1));
  EXPECT_FALSE(accelerator.any(false));
  EXPECT_EQ(accelerator.is_main(), rank() == 0);
  EXPECT_EQ(accelerator.loss_scale(), 1);
}

TEST(Accelerator, ErrorsSayWhatIsWrong) {
  const auto refused = [](const AcceleratorOptions& options, const std::string& what) {
    test::expect_error([&] { Accelerator(world->group(), options); }, {what});
  };
  refused({.precision = float64}, "precision must be float32, bfloat16 or float16, got float64");
  refused({.accumulate = 0}, "accumulate must be 1 or more, got 0");
  refused({.clip_norm = std::nan("")}, "clip_norm must be a finite number >= 0");
  Accelerator accelerator(world->group(), {.accumulate = 2});
  test::expect_error([&] { accelerator.backward(Tensor()); }, {"an undefined tensor"});
  test::expect_error([&] { accelerator.backward(zeros({2})); }, {"must be one number, got [2]"});
  test::expect_error([&] { accelerator.train_batches(loader_of(4 * size()), 0, 1); },
                     {"round 1 of 4", "multiple of 2"});
  test::expect_error([&] { accelerator.begin_round(2, 2, 1); }, {"a round from 0 to 1"});
  test::expect_error([&] { accelerator.load_state_dict({{"scale", zeros({})}}); }, {"precision float32"});
  Net half(nn::Scope({.dtype = float16}));
  test::expect_error([&] { accelerator.prepare(half); }, {"'hidden.weight' is float16", "use precision float16"});
}

}  // namespace
}  // namespace tern::dist
