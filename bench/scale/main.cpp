// tern-bench-scale: one training step in several processes, with and without the exchange of gradients, and with it
// after backward instead of during it. Started by mpirun; rank 0 prints one JSON line (bench/scale/README.md).

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <exception>
#include <map>
#include <optional>
#include <utility>

#include "tern/bench/scale/workload.h"
#include "tern/bench/train/measure.h"
#include "tern/core/allocator.h"
#include "tern/core/ops/ops.h"
#include "tern/dist/data_parallel.h"
#include "tern/dist/rendezvous.h"
#include "tern/dist/sharded_optimizer.h"
#include "tern/dist/world.h"
#include "tern/kernels/kernel.h"
#include "tern/optim/optim.h"

namespace tern::bench {
namespace {

struct Arguments {
  std::string model = "text";
  int64_t batch = 16, length = 256, bucket_bytes = 0;
  int steps = 10, rounds = 3, threads = 1;
  std::string dtype = "fp32", reduce = "fp32";
};

/// How gradients are exchanged; kSharded: overlapped, and the optimizer's state divided (ZeRO stage 1).
enum class Mode { kNone, kAfter, kOverlapped, kSharded };
constexpr std::pair<Mode, const char*> kModes[] = {{Mode::kNone, "none"},
                                                   {Mode::kAfter, "after backward"},
                                                   {Mode::kOverlapped, "overlapped"},
                                                   {Mode::kSharded, "zero1"}};

class Run {
 public:
  Run(const Arguments& a, dist::World& world)
      : a_(a), world_(world), workload_(a.model, a.batch, a.length, world.group()->rank()) {}

  /// Seconds of a.steps steps, of this rank.
  std::vector<double> measure(Mode mode) {
    dist::DataParallelOptions options{.reduce_dtype = a_.reduce == "bf16" ? DType::kBFloat16 : DType::kFloat32,
                                      .shard = mode == Mode::kSharded,
                                      .overlap = mode != Mode::kAfter};
    if (a_.bucket_bytes > 0) options.bucket_bytes = a_.bucket_bytes;
    dist::DataParallel parallel(workload_.module(), world_.group(), options);
    const auto make = [](const std::vector<optim::ParameterGroup>& groups) {
      return std::make_unique<optim::AdamW>(groups, optim::AdamWOptions{.lr = 5e-5, .weight_decay = 0.01});
    };
    // Nothing is divided without options.shard.
    dist::ShardedOptimizer optimizer(parallel, {{workload_.module().parameters()}}, make);
    std::optional<dist::DataParallel::NoSync> alone;
    if (mode == Mode::kNone) alone.emplace(parallel);
    std::vector<double> seconds;
    for (int i = -kWarmUpSteps; i < a_.steps; ++i) {
      // Without an exchange nothing else keeps the ranks at the same step.
      if (mode == Mode::kNone) world_.group()->barrier();
      Stopwatch watch;
      step(optimizer);
      if (i >= 0) seconds.push_back(watch.lap());
    }
    buckets_ = parallel.bucket_sizes();
    memory_[mode] = dist::model_state_memory(workload_.module(), optimizer.parts(), &parallel);
    return seconds;
  }

  const dist::ModelStateMemory& memory(Mode mode) const { return memory_.at(mode); }
  std::vector<int64_t> bucket_sizes() const { return buckets_; }
  Workload& workload() { return workload_; }

 private:
  void step(dist::ShardedOptimizer& optimizer) {
    Tensor loss = workload_.loss(a_.dtype == "bf16" ? DType::kBFloat16 : DType::kFloat32);
    loss.backward();
    optimizer.step({.max_norm = 1, .skip_non_finite = true});
    optimizer.zero_grad();
    TERN_CHECK(std::isfinite(loss.item<double>()), "tern-bench-scale: the loss is not finite");
  }

  const Arguments& a_;
  dist::World& world_;
  Workload workload_;
  std::vector<int64_t> buckets_;
  std::map<Mode, dist::ModelStateMemory> memory_;
};

/// A number of every rank, in their order.
template <class T>
std::vector<T> of_all_ranks(dist::Communicator& group, T value) {
  std::vector<T> all;
  for (const Tensor& one : group.all_gather(from_vector(std::vector<T>{value}, {1}))) all.push_back(one.item<T>());
  return all;
}

Json measure_modes(Run& run, const Arguments& a, dist::Communicator& group) {
  std::map<Mode, std::vector<double>> seconds;
  for (int round = 0; round < a.rounds; ++round)
    for (const auto& [mode, name] : kModes) {
      if (group.size() == 1 && mode != Mode::kNone) continue;
      const std::vector<double> fresh = run.measure(mode);
      seconds[mode].insert(seconds[mode].end(), fresh.begin(), fresh.end());
    }
  Json line;
  std::map<Mode, double> slowest;
  for (const auto& [mode, name] : kModes) {
    if (!seconds.contains(mode)) continue;
    const std::vector<double> medians = of_all_ranks(group, median(seconds[mode]));
    slowest[mode] = *std::max_element(medians.begin(), medians.end());
    line["step_seconds"][name] = slowest[mode];
    line["fastest_step_seconds"][name] = *std::min_element(seconds[mode].begin(), seconds[mode].end());
    if (mode != Mode::kNone) line["exposed_seconds"][name] = slowest[mode] - slowest[Mode::kNone];
    line["model_state_bytes"][name] = of_all_ranks(group, run.memory(mode).total());
    line["model_state_bytes_expected"][name] = run.memory(mode).expected;
  }
  if (group.size() > 1)
    line["exposed_share"] =
        (slowest[Mode::kOverlapped] - slowest[Mode::kNone]) / (slowest[Mode::kAfter] - slowest[Mode::kNone]);
  return line;
}

int run(int argc, char** argv) {
  Arguments a;
  CLI::App app("A data-parallel training step, timed (bench/scale/README.md). Start it by mpirun.", "tern-bench-scale");
  app.add_option("--model", a.model, "text: DistilBERT 256 x 4; vit: 192 x 9, patch 4 of 32 x 32")
      ->check(CLI::IsMember({"text", "vit"}));
  app.add_option("--batch", a.batch, "sequences or images of each process")->check(CLI::Range(1, 4096));
  app.add_option("--length", a.length, "tokens of a sequence")->check(CLI::Range(1, 512));
  app.add_option("--steps", a.steps, "of each way in each round, after two of warm-up")->check(CLI::Range(1, 10000));
  app.add_option("--rounds", a.rounds, "the ways are taken in turn so often")->check(CLI::Range(1, 1000));
  app.add_option("--threads", a.threads, "of each process")->check(CLI::Range(1, 1024));
  app.add_option("--dtype", a.dtype, "bf16: autocast")->check(CLI::IsMember({"fp32", "bf16"}));
  app.add_option("--reduce", a.reduce, "bf16: gradients travel in 16 bits")->check(CLI::IsMember({"fp32", "bf16"}));
  app.add_option("--bucket-bytes", a.bucket_bytes, "default: the library's");
  CLI11_PARSE(app, argc, argv);

  kernels::set_num_threads(a.threads);
  dist::World world(dist::detect_launch(), {}, {.facts = "tern-bench-scale"});
  dist::Communicator& group = *world.group();
  Run run(a, world);
  Json line = {{"side", "tern"},
               {"model", a.model},
               {"ranks", group.size()},
               {"transport", world.transport()},
               {"batch", a.batch},
               {"length", a.length},
               {"threads", a.threads},
               {"dtype", a.dtype},
               {"steps", a.steps * a.rounds},
               {"parameters", run.workload().module().num_parameters()}};
  line.update(measure_modes(run, a, group));
  line["bucket_bytes"] = run.bucket_sizes();
  line["peak_memory_bytes"] = of_all_ranks(group, allocator({}).statistics().peak_live_bytes);
  if (group.rank() == 0) std::printf("%s\n", line.dump().c_str());
  world.finish();
  return 0;
}

}  // namespace
}  // namespace tern::bench

int main(int argc, char** argv) {
  try {
    return tern::bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tern-bench-scale: %s\n", error.what());
    std::fflush(nullptr);
    _exit(1);  // MPI's own end would wait for the other ranks
  }
}
