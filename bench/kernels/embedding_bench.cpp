// BERT's token embedding: 30,522 rows, and the tokens of a batch. Backward writes the whole gradient.

#include "tern/kernels/embedding.h"

#include <memory>

#include "tern/bench/kernels/measure.h"
#include "tern/bench/kernels/tensors.h"
#include "tern/core/index_check.h"

namespace tern::bench {
namespace {

int64_t words() { return scaled(30522, 500); }
int64_t tokens() { return scaled(device().is_cuda() ? 16384 : 4096); }

void embedding_forward(benchmark::State& state) {
  const int64_t width = state.range(0);
  measure(state, {.bytes = static_cast<double>(tokens() * (2 * width * 4 + 8))}, [&]() -> Call {
    const Buffer weight(float32, {words(), width}), ids(int64, {tokens()}, words()), y(float32, {tokens(), width});
    const auto check = std::make_shared<IndexCheck>("embedding", place());
    return [=] { kernels::embedding_forward(stream(), weight.view(), ids.view(), y.view(), check->data()); };
  });
}

void embedding_backward(benchmark::State& state) {
  const int64_t width = state.range(0);
  measure(state, {.bytes = static_cast<double>((tokens() + words()) * width * 4 + tokens() * 8)}, [&]() -> Call {
    const Buffer dy(float32, {tokens(), width}), ids(int64, {tokens()}, words()), dweight(float32, {words(), width});
    const Scratch workspace(kernels::embedding_backward_workspace(stream(), tokens(), words(), width));
    return [=] { kernels::embedding_backward(stream(), dy.view(), ids.view(), 0, workspace.data(), dweight.view()); };
  });
}

void widths(benchmark::internal::Benchmark* bench) {
  bench->ArgName("width")->Arg(scaled(128));
  if (!is_tiny()) bench->Arg(768);
  timed(bench);
}
BENCHMARK(embedding_forward)->Apply(widths);
BENCHMARK(embedding_backward)->Apply(widths);

void gather(benchmark::State& state) {  // one logit per row
  measure(state, {.bytes = static_cast<double>(tokens() * 16)}, [&]() -> Call {
    const Buffer x(float32, {tokens(), 1024}), index(int64, {tokens(), 1}, 1024), y(float32, {tokens(), 1});
    const auto check = std::make_shared<IndexCheck>("gather", place());
    return [=] { kernels::gather(stream(), x.view(), 1, index.view(), y.view(), check->data()); };
  });
}
BENCHMARK(gather)->Apply(timed);

}  // namespace
}  // namespace tern::bench
