// tern-bench-scale: one training step in several processes, with and without the exchange of gradients, and with it
// after backward instead of during it. Started by mpirun; rank 0 prints one JSON line (bench/scale/README.md).

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "tern/bench/scale/workload.h"
#include "tern/bench/statistics.h"
#include "tern/bench/timing.h"
#include "tern/core/memory/allocator.h"
#include "tern/core/ops/ops.h"
#include "tern/dist/gradients/data_parallel.h"
#include "tern/dist/gradients/sharded_optimizer.h"
#include "tern/dist/loop/world.h"
#include "tern/dist/store/rendezvous.h"
#include "tern/kernels/kernel.h"
#include "tern/optim/optim.h"

namespace tern::bench {
namespace {

using Json = nlohmann::json;

struct Arguments {
  std::string model = "text";
  int64_t batch = 16, length = 256, bucket_bytes = 0;
  int steps = 10, threads = 1;
  std::string dtype = "fp32", reduce = "fp32";
};

/// How gradients are exchanged; kSharded: overlapped, and the optimizer's state divided (ZeRO stage 1).
enum class Mode { kNone, kAfter, kOverlapped, kSharded };
constexpr std::pair<Mode, const char*> kModes[] = {{Mode::kNone, "none"},
                                                   {Mode::kAfter, "after backward"},
                                                   {Mode::kOverlapped, "overlapped"},
                                                   {Mode::kSharded, "zero1"}};

/// A number of every rank, in their order.
template <class T>
std::vector<T> of_all_ranks(dist::Communicator& group, T value) {
  std::vector<T> all;
  for (const Tensor& one : group.all_gather(from_vector(std::vector<T>{value}, {1}))) all.push_back(one.item<T>());
  return all;
}

/// A model wrapped for one of the ways, with a separate optimizer.
class Way {
 public:
  Way(const Arguments& a, Mode mode, nn::Module& module, const std::shared_ptr<dist::Communicator>& group)
      : module_(module),
        parallel_(module, group, options(a, mode)),
        // Nothing is divided unless the gradients are.
        optimizer_(parallel_, {{module.parameters()}}, optim::AdamWOptions{.lr = 5e-5, .weight_decay = 0.01}) {}

  dist::DataParallel& parallel() { return parallel_; }
  dist::ShardedOptimizer& optimizer() { return optimizer_; }
  dist::ModelStateMemory memory() { return dist::model_state_memory(module_, optimizer_, &parallel_); }

 private:
  static dist::DataParallelOptions options(const Arguments& a, Mode mode) {
    dist::DataParallelOptions options{.reduce_dtype = a.reduce == "bf16" ? DType::kBFloat16 : DType::kFloat32,
                                      .shard = mode == Mode::kSharded,
                                      .overlap = mode != Mode::kAfter};
    if (a.bucket_bytes > 0) options.bucket_bytes = a.bucket_bytes;
    return options;
  }

  nn::Module& module_;
  dist::DataParallel parallel_;
  dist::ShardedOptimizer optimizer_;
};

class Run {
 public:
  Run(const Arguments& a, dist::World& world)
      : a_(a), group_(world.group()), workload_(a.model, a.batch, a.length, world.group()->rank()) {}

  /// Takes the ways in turn, a step of each, so that what else the machine does meets all of them.
  void measure(const std::vector<Mode>& modes) {
    std::map<Mode, std::unique_ptr<Way>> ways;
    for (const Mode mode : modes) ways[mode] = std::make_unique<Way>(a_, mode, workload_.module(), group_);
    for (int i = -kWarmUpSteps; i < a_.steps; ++i)
      for (const Mode mode : modes) {
        std::vector<std::unique_ptr<dist::DataParallel::NoSync>> silent;
        for (const auto& [other, way] : ways)
          if (other != mode || mode == Mode::kNone)
            silent.push_back(std::make_unique<dist::DataParallel::NoSync>(way->parallel()));
        group_->barrier();
        Stopwatch watch;
        step(ways.at(mode)->optimizer());
        group_->barrier();
        if (i < 0) continue;
        seconds_[mode].push_back(watch.lap());
        waits_[mode].push_back(ways.at(mode)->parallel().waited_seconds());
      }
    for (const Mode mode : modes) {
      memory_[mode] = ways.at(mode)->memory();
      if (mode == Mode::kOverlapped) exchanged_bytes_ = ways.at(mode)->parallel().exchanged_bytes();
    }
  }

  Json report() {
    Json line;
    for (const auto& [mode, name] : kModes) {
      if (!seconds_.contains(mode)) continue;
      reduce(seconds_[mode], dist::ReduceOp::kMax);
      // The rank that comes last waits for the network alone, not for another rank.
      reduce(waits_[mode], dist::ReduceOp::kMin);
      line["step_seconds"][name] = median(seconds_[mode]);
      line["fastest_step_seconds"][name] = *std::min_element(seconds_[mode].begin(), seconds_[mode].end());
      if (mode != Mode::kNone) {
        line["exposed_seconds"][name] = median(waits_[mode]);
        line["longer_seconds"][name] = longer(mode);
      }
      line["model_state_bytes"][name] = of_all_ranks(*group_, memory_.at(mode).total());
      line["model_state_bytes_expected"][name] = memory_.at(mode).expected;
    }
    if (group_->size() > 1) {
      line["exposed_share"] = median(waits_[Mode::kOverlapped]) / median(waits_[Mode::kAfter]);
      line["longer_share"] = longer(Mode::kOverlapped) / longer(Mode::kAfter);
    }
    line["exchanged_bytes"] = exchanged_bytes_;
    return line;
  }

  Workload& workload() { return workload_; }

 private:
  /// The median of what a step takes longer than the one without exchange in the same turn (of zero1, whose steps come
  /// after the others', than the one of the same number).
  double longer(Mode mode) const {
    std::vector<double> differences;
    for (size_t i = 0; i < seconds_.at(mode).size(); ++i)
      differences.push_back(seconds_.at(mode)[i] - seconds_.at(Mode::kNone)[i]);
    return median(differences);
  }

  void reduce(std::vector<double>& values, dist::ReduceOp op) {
    Tensor all = from_vector(values, {static_cast<int64_t>(values.size())});
    group_->all_reduce(all, op);
    values = all.to_vector<double>();
  }

  void step(dist::ShardedOptimizer& optimizer) {
    Tensor loss = workload_.loss(a_.dtype == "bf16" ? DType::kBFloat16 : DType::kFloat32);
    loss.backward();
    optimizer.step({.max_norm = 1, .skip_non_finite = true});
    optimizer.zero_grad();
    TERN_CHECK(std::isfinite(loss.item<double>()), "tern-bench-scale: the loss is not finite");
  }

  const Arguments& a_;
  std::shared_ptr<dist::Communicator> group_;
  Workload workload_;
  int64_t exchanged_bytes_ = 0;
  std::map<Mode, std::vector<double>> seconds_, waits_;  // of every step
  std::map<Mode, dist::ModelStateMemory> memory_;
};

int run_program(int argc, char** argv) {
  Arguments a;
  CLI::App app("A data-parallel training step, timed (bench/scale/README.md). Start it by mpirun.", "tern-bench-scale");
  app.add_option("--model", a.model, "text: DistilBERT 256 x 4; vit: 192 x 9, patch 4 of 32 x 32")
      ->check(CLI::IsMember({"text", "vit"}));
  app.add_option("--batch", a.batch, "sequences or images of each process")->check(CLI::Range(1, 4096));
  app.add_option("--length", a.length, "tokens of a sequence")->check(CLI::Range(1, 512));
  app.add_option("--steps", a.steps, "of each way, after two of warm-up")->check(CLI::Range(1, 10000));
  app.add_option("--threads", a.threads, "of each process")->check(CLI::Range(1, 1024));
  app.add_option("--dtype", a.dtype, "bf16: autocast")->check(CLI::IsMember({"fp32", "bf16"}));
  app.add_option("--reduce", a.reduce, "bf16: gradients travel in 16 bits")->check(CLI::IsMember({"fp32", "bf16"}));
  app.add_option("--bucket-bytes", a.bucket_bytes, "default: the library's");
  CLI11_PARSE(app, argc, argv);

  kernels::set_num_threads(a.threads);
  dist::World world(dist::detect_launch(), {}, {.facts = "tern-bench-scale"});
  dist::Communicator& group = *world.group();
  Run run(a, world);
  Json line = {{"side", "tern"},        {"model", a.model},
               {"ranks", group.size()}, {"transport", world.transport()},
               {"batch", a.batch},      {"length", a.length},
               {"threads", a.threads},  {"dtype", a.dtype},
               {"steps", a.steps},      {"parameters", run.workload().module().num_parameters()}};
  if (group.size() == 1) {
    run.measure({Mode::kNone});
  } else {
    run.measure({Mode::kNone, Mode::kAfter, Mode::kOverlapped});
    run.measure({Mode::kSharded});  // weights move into its buckets: it cannot share them with the others
  }
  line.update(run.report());
  line["peak_memory_bytes"] = of_all_ranks(group, allocator({}).statistics().peak_live_bytes);
  if (group.rank() == 0) std::printf("%s\n", line.dump().c_str());
  world.finish();
  return 0;
}

}  // namespace
}  // namespace tern::bench

int main(int argc, char** argv) {
  try {
    return tern::bench::run_program(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tern-bench-scale: %s\n", error.what());
    std::fflush(nullptr);
    _exit(1);  // MPI's own end would wait for the other ranks
  }
}
