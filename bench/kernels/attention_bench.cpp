// Self-attention, q, k and v slices of one fused projection. A name ends with batch, heads, length, head_dim and
// dropout in percent. FLOP/s counts 4 (forward) and 10 (backward) length^2 head_dim per head.

#include "tern/kernels/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "tern/bench/benchmark.h"
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

struct Sizes {
  int64_t batch, heads, length, head_dim;
};

/// Self-attention with its projection: [heads * head_dim] to three times that, then attention.
void add_projected(DType dtype, const Sizes& s) {
  const int64_t width = s.heads * s.head_dim, tokens = s.batch * s.length;
  const double product = 6.0 * static_cast<double>(tokens * width * width);
  const double scores = 4.0 * static_cast<double>(s.batch * s.length * s.length * width);
  const std::string name = name_of_row("projected_attention", dtype, s.batch, s.heads, s.length, s.head_dim);
  add(name, {.flops = product + scores, .dtype = dtype}, [=]() -> Call {
    const Problem p(s.batch, s.heads, s.length, s.head_dim, 0, dtype);
    const Buffer x(dtype, {tokens, width}), weight(dtype, {3 * width, width}), bias(dtype, {3 * width});
    const auto steps = [=]() -> std::array<kernels::RowStep, 2> {
      return {kernels::LinearStep{weight.view(), bias.view()}, kernels::SelfAttentionStep{p.params}};
    };
    const Scratch workspace(kernels::row_chain_workspace(stream(), x.view(), steps()));
    return [=] { kernels::row_chain(stream(), x.view(), steps(), p.out.view(), workspace.data()); };
  });
}

void add_attention(DType dtype, bool backward, const Sizes& s, int64_t dropout_percent) {
  const double per_head = static_cast<double>(s.length * s.length * s.head_dim);
  const bool budgeted = s.length >= 512 && s.head_dim == 64 && dtype == bfloat16;
  const Work work{.flops = (backward ? 10.0 : 4.0) * per_head * static_cast<double>(s.batch * s.heads),
                  .dtype = dtype,
                  .rate_budget = !budgeted  ? 0
                                 : backward ? 150e12
                                            : 220e12};
  const std::string name = name_of_row("attention", backward ? "backward" : "forward", dtype, s.batch, s.heads,
                                       s.length, s.head_dim, dropout_percent);
  add(name, work, [=]() -> Call {
    const Problem p(s.batch, s.heads, s.length, s.head_dim, static_cast<double>(dropout_percent) / 100, dtype);
    p.forward();
    return [=] { backward ? p.backward() : p.forward(); };
  });
}

std::vector<Sizes> sizes() {
  if (is_tiny()) return {{1, 2, 24, 64}};
  if (device().is_cuda())
    return {{32, 12, 512, 64}, {8, 12, 2048, 64}, {128, 12, 128, 64}, {83, 12, 197, 64}, {32, 8, 512, 128}};
  return {{4, 12, 512, 64}, {32, 2, 256, 64}, {32, 2, 128, 64}, {32, 2, 64, 64},  {64, 2, 16, 64},
          {8, 12, 197, 64}, {4, 4, 256, 32},  {4, 4, 256, 96},  {4, 4, 256, 128}, {4, 4, 256, 80}};
}

std::vector<Sizes> projected_sizes() {
  if (is_tiny()) return {{50, 2, 24, 32}};
  if (device().is_cuda()) return {{83, 12, 197, 64}};
  return {{64, 3, 65, 64}, {32, 2, 256, 64}, {64, 4, 64, 64}, {64, 12, 32, 64}};
}

const Rows rows([] {
  for (const DType dtype : {float32, bfloat16}) {
    for (const Sizes& s : projected_sizes()) add_projected(dtype, s);
    for (const bool backward : {false, true})
      for (const int64_t dropout_percent : {0, 10})
        for (const Sizes& s : sizes()) add_attention(dtype, backward, s, dropout_percent);
  }
});

}  // namespace
}  // namespace tern::bench
