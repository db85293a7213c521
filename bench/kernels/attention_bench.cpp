// Attention on the CPU: forward and backward of self-attention, q, k and v slices of one fused projection.
// Arguments: batch, heads, length, head_dim, dropout in percent. FLOP/s counts 4 (forward) and 10 (backward)
// length^2 head_dim per head. Threads: OMP_NUM_THREADS. CPU level: TERN_CPU_LEVEL.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "tern/bench/roofline.h"
#include "tern/kernels/attention.h"

namespace tern::kernels {
namespace {

struct Problem {
  int64_t batch, heads, length, head_dim, tokens;
  std::vector<int32_t> offsets;
  std::vector<float> qkv, dqkv, out, dout, lse;
  std::vector<char> work;
  AttentionParams params;

  Problem(int64_t batch, int64_t heads, int64_t length, int64_t head_dim, double dropout)
      : batch(batch), heads(heads), length(length), head_dim(head_dim), tokens(batch * length) {
    for (int64_t i = 0; i <= batch; ++i) offsets.push_back(static_cast<int32_t>(i * length));
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    qkv.resize(tokens * 3 * heads * head_dim);
    dqkv.resize(qkv.size());
    out.resize(tokens * heads * head_dim);
    dout.resize(out.size());
    lse.resize(tokens * heads);
    for (auto* v : {&qkv, &dout}) {
      for (float& x : *v) x = normal(random);
    }
    params.sequences = batch;
    params.query_offsets = params.key_offsets = offsets.data();
    params.max_query_length = params.max_key_length = length;
    params.heads = params.kv_heads = heads;
    params.head_dim = head_dim;
    params.scale = 1 / std::sqrt(static_cast<double>(head_dim));
    params.dropout = {dropout, {1, 2}};
    work.resize(
        std::max(attention_forward_workspace({}, params, float32), attention_backward_workspace({}, params, float32)));
  }

  View slice(std::vector<float>& store, int64_t part) const {
    const int64_t shape[] = {tokens, heads, head_dim}, strides[] = {3 * heads * head_dim, head_dim, 1};
    return View(store.data() + part * heads * head_dim, float32, 3, shape, strides);
  }
  View whole(std::vector<float>& store) const {
    const int64_t shape[] = {tokens, heads, head_dim}, strides[] = {heads * head_dim, head_dim, 1};
    return View(store.data(), float32, 3, shape, strides);
  }
  void forward() {
    attention_forward({}, params, slice(qkv, 0), slice(qkv, 1), slice(qkv, 2), whole(out),
                      make_view(lse.data(), heads, tokens), work.data());
  }
  void backward() {
    attention_backward({}, params, slice(qkv, 0), slice(qkv, 1), slice(qkv, 2), whole(out), whole(dout),
                       make_view(lse.data(), heads, tokens), slice(dqkv, 0), slice(dqkv, 1), slice(dqkv, 2), {},
                       work.data());
  }
};

template <bool kForward, bool kBackward>
void attention(benchmark::State& state) {
  Problem p(state.range(0), state.range(1), state.range(2), state.range(3), static_cast<double>(state.range(4)) / 100);
  p.forward();
  for (auto _ : state) {
    if (kForward) p.forward();
    if (kBackward) p.backward();
    benchmark::ClobberMemory();
  }
  const double flops = (kForward ? 4.0 : 0.0) + (kBackward ? 10.0 : 0.0);
  bench::report(state, 0, flops * static_cast<double>(p.batch * p.heads * p.length * p.length * p.head_dim));
}

void shapes(benchmark::internal::Benchmark* b) {
  for (int64_t dropout : {0, 10}) {
    b->Args({4, 12, 512, 64, dropout})->Args({32, 2, 256, 64, dropout})->Args({32, 2, 128, 64, dropout});
    b->Args({32, 2, 64, 64, dropout})->Args({64, 2, 16, 64, dropout})->Args({8, 12, 197, 64, dropout});
    b->Args({4, 4, 256, 32, dropout})->Args({4, 4, 256, 96, dropout})->Args({4, 4, 256, 128, dropout});
    b->Args({4, 4, 256, 80, dropout});
  }
  b->UseRealTime()->Unit(benchmark::kMicrosecond);
}
BENCHMARK(attention<true, false>)->Name("attention/forward")->Apply(shapes);
BENCHMARK(attention<false, true>)->Name("attention/backward")->Apply(shapes);
BENCHMARK(attention<true, true>)->Name("attention/forward_backward")->Apply(shapes);

}  // namespace
}  // namespace tern::kernels
