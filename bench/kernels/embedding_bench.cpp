// The token embedding of BERT: 30,522 rows, 4096 tokens of a batch. Backward writes the whole gradient.

#include "tern/bench/kernels/tensors.h"
#include "tern/bench/roofline.h"
#include "tern/kernels/embedding.h"

namespace tern::bench {
namespace {

constexpr int64_t kWords = 30522, kTokens = 4096;

void embedding_forward(benchmark::State& state) {
  const int64_t width = state.range(0);
  Buffer weight(float32, {kWords, width}), ids(int64, {kTokens}, kWords), y(float32, {kTokens, width});
  kernels::IndexFault fault;
  for (auto _ : state) kernels::embedding_forward({}, weight.view(), ids.view(), y.view(), &fault);
  report(state, 2 * y.bytes() + ids.bytes(), 0);
}
BENCHMARK(embedding_forward)->ArgName("width")->Arg(128)->Arg(768)->UseRealTime();

void embedding_backward(benchmark::State& state) {
  const int64_t width = state.range(0);
  Buffer dy(float32, {kTokens, width}), ids(int64, {kTokens}, kWords), dweight(float32, {kWords, width});
  std::vector<char> workspace(static_cast<size_t>(kernels::embedding_backward_workspace({}, kTokens, kWords, width)));
  for (auto _ : state) kernels::embedding_backward({}, dy.view(), ids.view(), 0, workspace.data(), dweight.view());
  report(state, dy.bytes() + ids.bytes() + dweight.bytes(), 0);
}
BENCHMARK(embedding_backward)->ArgName("width")->Arg(128)->Arg(768)->UseRealTime();

void gather(benchmark::State& state) {  // one logit per row
  kernels::IndexFault fault;
  Buffer x(float32, {kTokens, 1024}), index(int64, {kTokens, 1}, 1024), y(float32, {kTokens, 1});
  for (auto _ : state) kernels::gather({}, x.view(), 1, index.view(), y.view(), &fault);
  report(state, 2 * y.bytes() + index.bytes(), 0);
}
BENCHMARK(gather)->UseRealTime();

}  // namespace
}  // namespace tern::bench
