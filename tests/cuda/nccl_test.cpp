// NCCL groups of two and four processes.

#include <signal.h>

#include <chrono>
#include <thread>

#include "tern/core/autograd/captured_step.h"
#include "tern/dist/gradients/batch_norm.h"
#include "tern/nn/nn.h"
#include "tern/tests/cuda/ranks.h"
#include "tern/tests/support/sanitizer.h"

namespace tern::dist {
namespace {

std::vector<double> iota(int64_t count, double first) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(first + static_cast<double>(i % 50));
  return values;
}

/// Small whole numbers, exact in every dtype.
Tensor own_values(int rank, int64_t count, DType dtype, Device device) {
  return from_vector(iota(count, rank), {count}).to(dtype).to(device);
}

void collectives(World& world) {
  Communicator& group = *world.group();
  const Device device = group.device();
  const int n = group.size(), rank = group.rank();
  for (const DType dtype : {float64, float32, bfloat16, float16, int64, int32, uint8}) {
    for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{33}, int64_t{1000}}) {
      const Tensor own = own_values(rank, count, dtype, device);
      const std::string what = own.describe();
      // The work before and after a collective is queued: the order of the streams must not matter.
      Tensor sum = add(own, own);
      group.all_reduce(sum);
      const Tensor twice = add(sum, sum);
      Tensor maximum = own.clone();
      group.all_reduce(maximum, ReduceOp::kMax);
      Tensor from = own.clone();
      group.broadcast(from, n - 1);
      Tensor all = zeros({n, count}, {.dtype = dtype, .device = device});
      group.all_gather(all, own);
      Tensor part = zeros({count}, {.dtype = dtype, .device = device});
      group.reduce_scatter(part, all);
      const auto a = twice.to_vector<double>(), b = maximum.to_vector<double>(), c = from.to_vector<double>(),
                 d = all.to_vector<double>(), e = part.to_vector<double>();
      for (size_t k = 0; k < a.size(); ++k) {
        const double step = static_cast<double>(k % 50), ranks = n * (n - 1) / 2.0 + n * step;
        if (dtype != uint8) require(a[k] == 4 * ranks, what + ", sum");
        require(b[k] == n - 1 + step && c[k] == n - 1 + step, what + ", max or broadcast");
        for (int r = 0; r < n; ++r)
          require(d[static_cast<size_t>(r) * a.size() + k] == r + step, what + ", all_gather");
        const double scattered = n * (rank + step);
        require(e[k] == (dtype == uint8 ? std::fmod(scattered, 256) : scattered), what + ", reduce_scatter");
      }
    }
  }
  Tensor mean = full({5}, rank, {.device = device});
  group.all_reduce(mean, ReduceOp::kMean);
  require(mean.to_vector<double>() == std::vector<double>(5, (n - 1) / 2.0), "mean");
  Tensor any = full({3}, rank == 1, {.dtype = DType::kBool, .device = device});
  group.all_reduce(any, ReduceOp::kMax);
  require(any.to_vector<double>() == std::vector<double>(3, 1), "any");

  Tensor message = zeros({100}, {.device = device});
  const int to = (rank + 1) % n, before = (rank + n - 1) % n;
  // All calls use one stream, so one rank of the ring must receive first.
  if (rank != 0) group.receive(message, before);
  group.send(own_values(rank, 100, float32, device), to);
  if (rank == 0) group.receive(message, before);
  require(message.to_vector<double>() == iota(100, before), "message");

  const auto half = group.split(rank % 2, -rank);
  Tensor theirs = full({4}, rank, {.device = device});
  half->all_reduce(theirs);
  double expected = 0;
  for (int r = rank % 2; r < n; r += 2) expected += r;
  require(theirs.to_vector<double>() == std::vector<double>(4, expected), "split");
  require(half->world_ranks().back() == rank % 2, "order of split");
  const auto ends = group.subgroup({n - 1, 0});
  require((ends != nullptr) == (rank == 0 || rank == n - 1), "subgroup");
}

void asynchronous(World& world) {
  Communicator& group = *world.group();
  const Device device = group.device();
  const int n = group.size(), rank = group.rank();
  std::vector<Tensor> tensors;
  std::vector<Work> works;
  for (int i = 0; i < 6; ++i) {
    tensors.push_back(mul(full({1000}, rank + 1, {.device = device}), static_cast<double>(i)));
    works.push_back(group.all_reduce_async(tensors.back()));
  }
  for (size_t i = works.size(); i-- > 0;) {
    works[i].wait();
    const Tensor next = mul(tensors[i], 2.0);
    require(next.to_vector<double>() == std::vector<double>(1000, n * (n + 1) * static_cast<double>(i)), "async sum");
    require(works[i].done(), "done");
  }
  // The owner drops the tensor at once; its memory must not be reused while NCCL reads it.
  Tensor kept = full({5000}, rank + 1, {.device = device});
  Work work = group.all_reduce_async(kept);
  if (rank == 0) {
    kept = Tensor();
    for (int i = 0; i < 4; ++i) full({5000}, 100, {.device = device});
  }
  work.wait();
  if (rank != 0) require(kept.to_vector<double>() == std::vector<double>(5000, n * (n + 1) / 2.0), "a dropped tensor");
  group.barrier();
}

void captured(World& world) {
  Communicator& group = *world.group();
  const int n = group.size();
  Tensor weight = zeros({64}, {.device = group.device()});
  CapturedStep step([&](const std::vector<Tensor>& batch) {
    Tensor gradient = mul(batch[0], 2.0);
    Work work = group.all_reduce_async(gradient);
    const Tensor meanwhile = add(batch[0], batch[0]);
    work.wait();
    weight.add_(gradient);
    return std::vector<Tensor>{sub(gradient, meanwhile)};
  });
  double expected = 0;
  for (int i = 1; i <= 6; ++i) {
    const Tensor input = full({64}, i * (group.rank() + 1), {.device = group.device()});
    const Tensor result = step({input})[0];
    const double sum = i * n * (n + 1);
    expected += sum;
    require(result.to_vector<double>() == std::vector<double>(64, sum - 2 * i * (group.rank() + 1)), "replay");
    require(weight.to_vector<double>() == std::vector<double>(64, expected), "weight");
  }
  require(step.captured(), "captured");
}

/// Without wait() the stand-in returns the previous value in at least one order.
void unordered(World& world) {
#ifdef TERN_STANDIN
  Communicator& group = *world.group();
  int right = 0, orders = 0;
  in_all_orders([&] {
    Tensor x = full({10}, 1, {.device = group.device()});
    Work work = group.all_reduce_async(x);
    const Tensor early = add(x, x);  // not ordered after the collective
    right += early.to_vector<double>() == std::vector<double>(10, 2.0 * group.size());
    ++orders;
    work.wait();
    group.barrier();
  });
  require(right < orders, "a missing wait was not seen in any order");
#endif
}

constexpr int kLimit = test::kThreadSanitized ? 10 : 1;  // seconds, longer than a call takes

/// Rank 1 acts when all have met.
Tensor after_meeting(Communicator& group, void (*act)()) {
  Tensor x = ones({10}, {.device = group.device()});
  group.all_reduce(x);
  group.barrier();
  if (group.rank() == 1) act();
  return x;
}

void late(World& world) {
  Communicator& group = *world.group();
  Tensor x = after_meeting(group, [] { std::this_thread::sleep_for(std::chrono::seconds(4 * kLimit)); });
  group.broadcast(x);
  group.barrier();
}

void killed(World& world) {
  Communicator& group = *world.group();
  Tensor x = after_meeting(group, [] { raise(SIGKILL); });
  group.all_reduce(x);
  group.barrier();
}

/// Two norms, the second with the sum before it, over parts of different size: results, gradients and statistics are
/// those of the whole batch.
void batch_norms(World& world) {
  Communicator& group = *world.group();
  const Device device = group.device();
  const int n = group.size(), rank = group.rank();
  Generator random(shared_seed());
  const nn::Scope scope({.device = device});
  nn::BatchNorm2d first(scope, 6), second(scope, 6);
  nn::BatchNorm2d whole_first(scope, 6), whole_second(scope, 6);
  for (nn::BatchNorm2d* norm : {&first, &second})
    require(synchronize_batch_norms(*norm, world.group()) == 1, "number of norms");
  const auto run = [](nn::BatchNorm2d& a, nn::BatchNorm2d& b, const Tensor& x) {
    const Tensor y = a.forward(x, ImageActivation::kRelu);
    return b.forward(sin(y), ImageActivation::kNone, y);
  };
  const auto near = [&](const Tensor& got, const Tensor& want, const std::string& what) {
    require(got.shape() == want.shape() &&
                max(abs(sub(got, want))).item<double>() < 2e-5 * (1 + max(abs(want)).item<double>()),
            what);
  };
  for (int step = 0; step < 2; ++step) {
    std::vector<Tensor> parts;  // rank r has r + 1 images, but rank 1 none where there are more than two
    for (int r = 0; r < n; ++r) parts.push_back(randn({n > 2 && r == 1 ? 0 : r + 1, 6, 4, 3}, random).to(device));
    const Tensor own = parts[static_cast<size_t>(rank)].clone().set_requires_grad(true);
    const Tensor all = cat(parts, 0).set_requires_grad(true);
    const Tensor y = run(first, second, own), expected = run(whole_first, whole_second, all);
    sum(sin(mul(y, 2.0))).backward();
    sum(sin(mul(expected, 2.0))).backward();
    int64_t begin = 0;
    for (int r = 0; r < rank; ++r) begin += parts[static_cast<size_t>(r)].size(0);
    if (own.numel() > 0) {
      near(y, expected.narrow(0, begin, own.size(0)), "result");
      near(own.grad(), all.grad().narrow(0, begin, own.size(0)), "gradient");
    }
  }
  const StateView state = first.state_dict(), want = whole_first.state_dict();
  for (size_t i = 0; i < want.size(); ++i) near(state[i].tensor.to(float32), want[i].tensor.to(float32), want[i].name);
}

void differs(World& world) {
  Communicator& group = *world.group();
  Tensor x = ones({10}, {.device = group.device()}), y = ones({5}, {.device = group.device()});
  group.all_reduce(group.rank() == 1 ? y : x);
}

const Scenarios kScenarios = {
    {"collectives", [](World& world) { in_all_orders([&] { collectives(world); }); }},
    {"asynchronous", [](World& world) { in_all_orders([&] { asynchronous(world); }); }},
    {"captured", [](World& world) { in_all_orders([&] { captured(world); }); }},
    {"unordered", unordered},
    {"batch_norms", [](World& world) { in_all_orders([&] { batch_norms(world); }); }},
    {"late", late},
    {"killed", killed},
    {"differs", differs},
};

using Nccl = RanksTest;

TEST_F(Nccl, Collectives) { expect_done("collectives"); }
TEST_F(Nccl, Asynchronous) { expect_done("asynchronous"); }
TEST_F(Nccl, InACapturedStep) { expect_done("captured"); }
TEST_F(Nccl, SynchronizedBatchNorms) { expect_done("batch_norms"); }
TEST_F(Nccl, AMissingWaitIsSeen) { expect_done("unordered", 2); }

TEST_F(Nccl, UsesAFolderUnderTorchrunAndInCheckMode) {
  expect_done("asynchronous", 2, {{"TERN_DIST_STORE", "file"}});
  expect_done("asynchronous", 2, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"TORCHELASTIC_RUN_ID", "x"}});
  expect_done("asynchronous", 2, {{"TERN_DIST_CHECK", "1"}});
}

TEST_F(Nccl, ARankThatDoesNotComeIsNamed) {
  const std::string limit = std::to_string(kLimit);
  expect_contains(
      run("late", 2, {{"TERN_DIST_TIMEOUT", limit}})[0],
      {"peer: group world, call 3, broadcast of float32 [10], root 0: rank 1 has not arrived within " + limit + " s"});
}

TEST_F(Nccl, AKilledRankIsNamed) {
  for (const char* check : {"0", "1"})
    expect_contains(run("killed", 2, {{"TERN_DIST_CHECK", check}})[0],
                    {"peer: rank 1 has ended before the job was done"});
}

TEST_F(Nccl, CheckModeNamesWhatDiffers) {
  for (const std::string& words : run("differs", 2, {{"TERN_DIST_CHECK", "1"}}))
    expect_contains(
        words, {"call 1: rank 1 has all_reduce of float32 [5], sum, but rank 0 has all_reduce of float32 [10], sum"});
}

}  // namespace
}  // namespace tern::dist

int main(int argc, char** argv) { return tern::dist::run_program(argc, argv, tern::dist::kScenarios); }
