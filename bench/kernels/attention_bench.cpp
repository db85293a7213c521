// Self-attention, q, k and v slices of one fused projection. Arguments: batch, heads, length, head_dim, dropout in
// percent. FLOP/s counts 4 (forward) and 10 (backward) length^2 head_dim per head. Threads: OMP_NUM_THREADS.

#include "tern/kernels/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "tern/bench/kernels/measure.h"
#include "tern/bench/kernels/tensors.h"
#include "tern/kernels/row_chain.h"

namespace tern::bench {
namespace {

std::vector<int32_t> offsets_of(int64_t batch, int64_t length) {
  std::vector<int32_t> offsets;
  for (int64_t i = 0; i <= batch; ++i) offsets.push_back(static_cast<int32_t>(i * length));
  return offsets;
}

struct Problem {
  int64_t heads, head_dim, tokens;
  Buffer qkv, dqkv, out, dout, log_sum_exp, offsets;
  kernels::AttentionParams params;
  Scratch workspace;

  Problem(int64_t batch, int64_t heads, int64_t length, int64_t head_dim, double dropout, DType dtype)
      : heads(heads),
        head_dim(head_dim),
        tokens(batch * length),
        qkv(dtype, {tokens, 3, heads, head_dim}),
        dqkv(dtype, {tokens, 3, heads, head_dim}),
        out(dtype, {tokens, heads, head_dim}),
        dout(dtype, {tokens, heads, head_dim}),
        log_sum_exp(float32, {heads, tokens}),
        offsets(offsets_of(batch, length)),
        params(make_params(batch, length, dropout)),
        workspace(std::max(kernels::attention_forward_workspace(stream(), params, dtype),
                           kernels::attention_backward_workspace(stream(), params, dtype))) {}

  kernels::AttentionParams make_params(int64_t batch, int64_t length, double dropout) const {
    kernels::AttentionParams p;
    p.sequences = batch;
    p.query_offsets = p.key_offsets = static_cast<const int32_t*>(offsets.data());
    p.max_query_length = p.max_key_length = length;
    p.heads = p.kv_heads = heads;
    p.head_dim = head_dim;
    p.scale = 1 / std::sqrt(static_cast<double>(head_dim));
    p.dropout = {dropout, {1, 2}};
    return p;
  }
  kernels::View slice(const Buffer& fused, int64_t part) const {
    const kernels::View all = fused.view();
    const int64_t shape[] = {tokens, heads, head_dim}, strides[] = {3 * heads * head_dim, head_dim, 1};
    return {static_cast<char*>(all.data) + part * heads * head_dim * size_of(all.dtype), all.dtype, 3, shape, strides};
  }
  void forward() const {
    kernels::attention_forward(stream(), params, slice(qkv, 0), slice(qkv, 1), slice(qkv, 2), out.view(),
                               log_sum_exp.view(), workspace.data());
  }
  void backward() const {
    kernels::attention_backward(stream(), params, slice(qkv, 0), slice(qkv, 1), slice(qkv, 2), out.view(), dout.view(),
                                log_sum_exp.view(), slice(dqkv, 0), slice(dqkv, 1), slice(dqkv, 2), {},
                                workspace.data());
  }
};

/// Self-attention with its projection: [heads * head_dim] to three times that, then attention.
void projected_attention(benchmark::State& state, DType dtype) {
  const int64_t batch = state.range(0), heads = state.range(1), length = state.range(2), head_dim = state.range(3);
  const int64_t width = heads * head_dim, tokens = batch * length;
  const double product = 6.0 * static_cast<double>(tokens * width * width);
  const double scores = 4.0 * static_cast<double>(batch * length * length * width);
  measure(state, {.flops = product + scores, .dtype = dtype}, [&]() -> Call {
    const Problem p(batch, heads, length, head_dim, 0, dtype);
    const Buffer x(dtype, {tokens, width}), weight(dtype, {3 * width, width}), bias(dtype, {3 * width});
    const auto steps = [=]() -> std::array<kernels::RowStep, 2> {
      return {kernels::LinearStep{weight.view(), bias.view()}, kernels::SelfAttentionStep{p.params}};
    };
    const Scratch workspace(kernels::row_chain_workspace(stream(), x.view(), steps()));
    return [=] { kernels::row_chain(stream(), x.view(), steps(), p.out.view(), workspace.data()); };
  });
}

void attention(benchmark::State& state, DType dtype, bool backward) {
  const int64_t batch = state.range(0), heads = state.range(1), length = state.range(2), head_dim = state.range(3);
  const double per_head = static_cast<double>(length * length * head_dim);
  const bool budgeted = length >= 512 && head_dim == 64 && dtype == bfloat16;
  const Work work{.flops = (backward ? 10.0 : 4.0) * per_head * static_cast<double>(batch * heads),
                  .dtype = dtype,
                  .rate_budget = !budgeted  ? 0
                                 : backward ? 150e12
                                            : 220e12};
  measure(state, work, [&]() -> Call {
    const Problem p(batch, heads, length, head_dim, static_cast<double>(state.range(4)) / 100, dtype);
    p.forward();
    return [=] { backward ? p.backward() : p.forward(); };
  });
}

void shapes(benchmark::internal::Benchmark* bench) {
  for (const int64_t dropout : {0, 10}) {
    if (is_tiny()) {
      bench->Args({1, 2, 24, 64, dropout});
    } else if (device().is_cuda()) {
      bench->Args({32, 12, 512, 64, dropout})->Args({8, 12, 2048, 64, dropout})->Args({128, 12, 128, 64, dropout});
      bench->Args({83, 12, 197, 64, dropout})->Args({32, 8, 512, 128, dropout});
    } else {
      bench->Args({4, 12, 512, 64, dropout})->Args({32, 2, 256, 64, dropout})->Args({32, 2, 128, 64, dropout});
      bench->Args({32, 2, 64, 64, dropout})->Args({64, 2, 16, 64, dropout})->Args({8, 12, 197, 64, dropout});
      bench->Args({4, 4, 256, 32, dropout})->Args({4, 4, 256, 96, dropout})->Args({4, 4, 256, 128, dropout});
      bench->Args({4, 4, 256, 80, dropout});
    }
  }
  timed(bench);
  bench->Unit(benchmark::kMicrosecond);
}

void projected_shapes(benchmark::internal::Benchmark* bench) {
  if (is_tiny())
    bench->Args({50, 2, 24, 32});
  else if (device().is_cuda())
    bench->Args({83, 12, 197, 64});
  else
    bench->Args({64, 3, 65, 64})->Args({32, 2, 256, 64})->Args({64, 4, 64, 64})->Args({64, 12, 32, 64});
  timed(bench);
  bench->Unit(benchmark::kMicrosecond);
}

BENCHMARK_CAPTURE(projected_attention, float32, float32)->Apply(projected_shapes);
BENCHMARK_CAPTURE(projected_attention, bfloat16, bfloat16)->Apply(projected_shapes);
BENCHMARK_CAPTURE(attention, forward_float32, float32, false)->Apply(shapes);
BENCHMARK_CAPTURE(attention, backward_float32, float32, true)->Apply(shapes);
BENCHMARK_CAPTURE(attention, forward_bfloat16, bfloat16, false)->Apply(shapes);
BENCHMARK_CAPTURE(attention, backward_bfloat16, bfloat16, true)->Apply(shapes);

}  // namespace
}  // namespace tern::bench
