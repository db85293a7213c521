// Where the time of ten steps goes: the profiler around a custom loop.

#include <tern/tern.h>

#include <filesystem>
#include <iostream>

using namespace tern;

int main() {
  Generator generator(1);
  nn::Linear layer(nn::Scope({.generator = generator}), 256, 256);
  optim::AdamW optimizer(layer.parameters(), optim::AdamWOptions{.lr = 1e-3});
  const Tensor x = randn({512, 256}, generator);
  const auto step = [&] {
    const ProfileRange range("my step");
    sum(gelu(layer.forward(x))).backward();
    optimizer.step();
    optimizer.zero_grad();
  };

  step();  // warm up
  Profiler profiler({.roofline = measure_roofline(cpu, {float32})});
  for (int i = 0; i < 10; ++i) step();
  const ProfileReport report = profiler.stop();
  std::cout << report.table();
  report.write_trace("trace.json");
  std::filesystem::remove("trace.json");  // open yours in https://ui.perfetto.dev
  return report.row("my step").calls == 10 ? 0 : 1;
}
