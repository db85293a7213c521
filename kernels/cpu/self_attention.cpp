// Self-attention with its projection: blocks of whole sequences go through the product and, while queries, keys and
// values are in cache, through attention.

#include "tern/kernels/attention.h"
#include "tern/kernels/cpu/attention_forward.h"
#include "tern/kernels/cpu/gemm_blocks.h"
#include "tern/kernels/cpu/gemm_finish.h"

namespace tern::kernels::TERN_CPU {
namespace {

/// A block's rows, and the bytes of its projection in fp32: second-level caches have 1 or 2 MiB.
constexpr int64_t kBlockRows = 288, kBlockBytes = 1 << 20;
/// Blocks of each thread, at least, so that threads end together.
constexpr int64_t kBlocksOfThread = 4;

struct Plan {
  const AttentionParams& params;
  DType dtype;
  int64_t tokens, in, out;
  int64_t length;     // of every sequence; 0: they differ
  int64_t group = 0;  // sequences of a block; 0: blocks do not pay

  Plan(const AttentionParams& p, const ConstView& x, const ConstView& weight)
      : params(p), dtype(x.dtype), tokens(x.rows()), in(x.cols()), out(weight.shape[0]), length(common_length()) {
    // Only packed products give the same bits in blocks of any size; and they add the bias.
    if (!has_packed_matmul(dtype) || length == 0 || p.bias || p.dropout.p > 0 ||
        !RowBlocks::suits(dtype, tokens, out, in))
      return;
    const int64_t rows = std::min(kBlockRows, kBlockBytes / (out * 4));
    group = best_group(std::min(rows / length, p.sequences / (kBlocksOfThread * num_threads())));
  }

  /// Of a call that paid when it was asked: there may be more threads since.
  static Plan of_call(const AttentionParams& p, const ConstView& x, const ConstView& weight) {
    Plan plan(p, x, weight);
    plan.group = std::max<int64_t>(plan.group, 1);
    return plan;
  }

  /// Of at most `most` and at least half as many sequences in a block, what keeps the busiest thread the shortest.
  int64_t best_group(int64_t most) const {
    const int64_t threads = num_threads();
    const auto longest = [&](int64_t n) {
      const int64_t blocks = (params.sequences + n - 1) / n;
      return (blocks + threads - 1) / threads * n;
    };
    int64_t best = most;
    for (int64_t n = most - 1; n > 0 && n >= most / 2; --n)
      if (longest(n) < longest(best)) best = n;
    return best;
  }

  int64_t common_length() const {
    if (params.sequences == 0) return 0;
    const int64_t first = params.query_offsets[1];
    for (int64_t s = 0; s <= params.sequences; ++s)
      if (params.query_offsets[s] != s * first) return 0;
    return params.sequences * first == tokens ? first : 0;
  }

  AttentionParams of_block(int64_t begin, int64_t rows) const {
    AttentionParams result = params;
    result.sequences = rows / length;  // the first offsets are those of any block: sequences have one length
    result.max_query_length = result.max_key_length = length;
    if (params.key_mask) result.key_mask += begin;
    return result;
  }

  /// The projection of a block in the dtype that attention reads, where the product's is another.
  int64_t narrow_bytes() const {
    return dtype == DType::kFloat32 ? 0 : align_up(group * length * out * size_of(dtype));
  }
  RowBlocks row_blocks() const {
    const AttentionParams block = of_block(0, group * length);
    const int64_t attention = attention::ForwardScratch(attention::Call(block), nullptr).floats;
    return RowBlocks(dtype, dtype, false, true, tokens, out, in, in, in, out,
                     {.bias = true,
                      .rows = group * length,
                      .epilogue_bytes = narrow_bytes() + attention::bytes_with_alignment(attention)});
  }
  int64_t bias_bytes() const { return align_up(out * 4); }

  /// Queries (0), keys (1) or values (2) of `rows` rows of a projection.
  ConstView part(const void* projection, int64_t rows, int64_t index) const {
    const int64_t shape[] = {rows, params.heads, params.head_dim}, strides[] = {out, params.head_dim, 1};
    const int64_t offset = index * params.heads * params.head_dim * size_of(dtype);
    return ConstView(static_cast<const char*>(projection) + offset, dtype, 3, shape, strides);
  }
  View rows_of(const View& result, int64_t begin, int64_t rows) const {
    const int64_t shape[] = {rows, params.heads, params.head_dim};
    char* const data = static_cast<char*>(result.data) + begin * result.strides[0] * size_of(dtype);
    return View(data, dtype, 3, shape, result.strides);
  }
};

template <class T>
void attend_block(const Plan& plan, const ResultBlock& block, const View& out) {
  const void* projection = block.result;
  if constexpr (!std::is_same_v<T, float>) {
    T* const narrow = reinterpret_cast<T*>(block.memory);
    finish_rows<T, float>(block.rows, plan.out, static_cast<const float*>(block.result), block.stride, nullptr,
                          Activation::kNone, nullptr, narrow);
    projection = narrow;
  }
  const AttentionParams params = plan.of_block(block.begin, block.rows);
  const attention::Call call(params);
  const auto part = [&](int64_t index) { return plan.part(projection, block.rows, index); };
  const attention::Forward<T> forward(call, part(0), part(1), part(2), plan.rows_of(out, block.begin, block.rows), {},
                                      plan.length);
  const attention::ForwardScratch scratch(call, attention::align(block.memory + plan.narrow_bytes()));
  for (int64_t task = 0; task < params.sequences * params.heads; ++task) forward.run(task, scratch);
}

}  // namespace

bool self_attention_pays(Stream, const AttentionParams& params, ConstView x, ConstView weight) {
  return Plan(params, x, weight).group > 0;
}

int64_t self_attention_workspace(Stream, const AttentionParams& params, ConstView x, ConstView weight) {
  const Plan plan = Plan::of_call(params, x, weight);
  return 64 + plan.bias_bytes() + plan.row_blocks().workspace_bytes();
}

void self_attention_forward(Stream, const AttentionParams& params, ConstView x, ConstView weight, ConstView bias,
                            View out, void* workspace) {
  const Plan plan = Plan::of_call(params, x, weight);
  char* const memory = align_up(workspace);
  dispatch_blocks(plan.dtype, [&]<class T>() {
    float* const bias_buffer = reinterpret_cast<float*>(memory);
    const float* const added = or_zeros(wide_bias<float>(bias, bias_buffer), plan.out, bias_buffer);
    plan.row_blocks().run(x.data, weight.data, added, nullptr, memory + plan.bias_bytes(),
                          [&](const ResultBlock& block) { attend_block<T>(plan, block, out); });
  });
}

}  // namespace tern::kernels::TERN_CPU
