// PyTorch's C++ half of the comparison of small ops: the rows small-* of bench/train/op_rows.cpp. It answers
// tern-bench-train as a benchmark program does (bench/side.h). Built by compare.sh with the headers and libraries that
// are in PyTorch's package.
//
//   libtorch_side --serve --threads N ...

#include <torch/torch.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <functional>
#include <iostream>
#include <map>
#include <string>

namespace {

using torch::Tensor;
using Step = std::function<int64_t()>;

constexpr int64_t kCalls = 1000;

template <class Op>
Step small(Op op) {
  const Tensor x = torch::full({1}, 0.5, torch::requires_grad()), y = torch::full({1}, 1.5, torch::requires_grad());
  return [=] {
    for (int64_t i = 0; i < kCalls; ++i) {
      const Tensor result = op(x, y);
      asm volatile("" : : "g"(&result) : "memory");
    }
    return kCalls;
  };
}

Step mlp() {
  torch::nn::Sequential model(torch::nn::Linear(32, 32), torch::nn::ReLU(), torch::nn::Linear(32, 32),
                              torch::nn::ReLU(), torch::nn::Linear(32, 32));
  const auto optimizer = std::make_shared<torch::optim::SGD>(model->parameters(), torch::optim::SGDOptions(0.01));
  const Tensor x = torch::randn({32, 32}), y = torch::randn({32, 32});
  return [=]() mutable {
    torch::mse_loss(model->forward(x), y).backward();
    optimizer->step();
    optimizer->zero_grad();
    return int64_t{1};
  };
}

const std::map<std::string, std::function<Step()>> kRows = {
    {"small-add", [] { return small([](const Tensor& x, const Tensor& y) { return x + y; }); }},
    {"small-mul-scalar", [] { return small([](const Tensor& x, const Tensor&) { return x * 0.5; }); }},
    {"small-exp", [] { return small([](const Tensor& x, const Tensor&) { return torch::exp(x); }); }},
    {"small-sum", [] { return small([](const Tensor& x, const Tensor&) { return torch::sum(x); }); }},
    {"small-reshape", [] { return small([](const Tensor& x, const Tensor&) {
                             return x.reshape({1, 1});
                           }); }},
    {"small-mlp-step", mlp}};

/// Warmed up; a sample takes at least 10 ms, as Tern's do (bench/timing.cpp).
class Timed {
 public:
  explicit Timed(Step step) : step_(std::move(step)) {
    step_();
    step_();
    for (double seconds; (seconds = take().seconds) < 0.01;)
      steps_ = static_cast<int64_t>(
          std::ceil(static_cast<double>(steps_) * std::min(std::max(0.012 / std::max(seconds, 1e-9), 1.2), 10.0)));
  }
  struct Sample {
    int64_t items = 0;
    double seconds = 0, cpu_seconds = 0;
  };
  Sample take() {
    Sample sample;
    const std::clock_t cpu = std::clock();
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < steps_; ++i) sample.items += step_();
    sample.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    sample.cpu_seconds = static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC;
    return sample;
  }

 private:
  Step step_;
  int64_t steps_ = 1;
};

void answer(const std::string& line, std::unique_ptr<Timed>& timed) {
  if (line == "sample") {
    const Timed::Sample sample = timed->take();
    std::printf("{\"items\": %lld, \"seconds\": %.17g, \"cpu_seconds\": %.17g}\n", static_cast<long long>(sample.items),
                sample.seconds, sample.cpu_seconds);
  } else {
    const std::string name = line.substr(line.find(' ') + 1);
    timed = std::make_unique<Timed>(kRows.at(name)());
    std::printf("{\"work\": {\"unit\": \"calls\"}}\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  int threads = 1;
  for (int i = 1; i + 1 < argc; ++i)
    if (std::strcmp(argv[i], "--threads") == 0) threads = std::atoi(argv[i + 1]);
  torch::set_num_threads(threads);
  std::string names;
  for (const auto& [name, make] : kRows) names += (names.empty() ? "\"" : ", \"") + name + "\"";
  std::printf(
      "{\"setting\": {\"device\": \"cpu\", \"threads\": %d, \"tiny\": false}, \"program\": \"%s\", \"libraries\": [], "
      "\"rows\": [%s], \"versions\": {\"libtorch\": \"%s\"}}\n",
      threads, argv[0], names.c_str(), TORCH_VERSION);
  std::fflush(stdout);
  std::unique_ptr<Timed> timed;
  for (std::string line; std::getline(std::cin, line); std::fflush(stdout)) answer(line, timed);
}
