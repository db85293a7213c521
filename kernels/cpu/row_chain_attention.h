#pragma once
// Attention of the sequences in a block of rows, whose queries, keys and values a product has just computed.

#include "tern/kernels/cpu/attention/forward.h"
#include "tern/kernels/cpu/gemm/plan.h"
#include "tern/kernels/row_chain_segments.h"

namespace tern::kernels::TERN_CPU {

/// How a projection's rows are cut into blocks of whole sequences.
class AttentionBlocks {
 public:
  AttentionBlocks(const AttentionParams& params, const LinearPlan& projection)
      : params_(params), projection_(projection), length_(common_length()) {
    // Only packed products give the same bits in blocks of any size; and they add the bias.
    if (!has_packed_matmul(projection.dtype) || length_ == 0 || params.bias || params.dropout.p > 0 ||
        !projection.blocks)
      return;
    const int64_t rows = std::min(kBlockRows, kBlockBytes / (projection.out * 4));
    sequences_ = best_count(std::min(rows / length_, params.sequences / (kBlocksOfThread * num_threads())));
  }

  /// Whether blocks save time: all sequences have one length, and a cache holds some of them.
  bool suits() const { return sequences_ > 0; }

  /// The row blocks of the projection, with memory for attend().
  RowBlocks row_blocks() const {
    const int64_t rows = sequences_ * length_;
    const AttentionParams block = of_block(0, rows);
    const int64_t attention = attention::ForwardScratch(attention::Call(block), nullptr).floats;
    return projection_.scratch_blocks(narrow_bytes() + attention::bytes_with_alignment(attention), rows);
  }

  /// The attention of a block of the projection. out: all rows, [tokens, heads * head_dim].
  template <class T>
  void attend(const ResultBlock& block, const View& out) const {
    const void* projected = block.result;
    if constexpr (!std::is_same_v<T, float>) {
      T* const narrow = reinterpret_cast<T*>(block.memory);
      finish_rows<T, float>(block.rows, projection_.out, static_cast<const float*>(block.result), block.stride, nullptr,
                            Activation::kNone, nullptr, narrow);
      projected = narrow;
    }
    const ConstView rows = matrix_view(const_cast<void*>(projected), projection_.dtype, block.rows, projection_.out);
    const AttentionParams params = of_block(block.begin, block.rows);
    const attention::Call call(params);
    const int64_t shape[] = {block.rows, params.heads, params.head_dim}, strides[] = {out.cols(), params.head_dim, 1};
    const View result(out.as<T>() + block.begin * out.cols(), out.dtype, 3, shape, strides);
    const attention::Forward<T> forward(call, projection_part(rows, params, 0), projection_part(rows, params, 1),
                                        projection_part(rows, params, 2), result, {}, length_);
    const attention::ForwardScratch scratch(call, attention::align(block.memory + narrow_bytes()));
    for (int64_t task = 0; task < params.sequences * params.heads; ++task) forward.run(task, scratch);
  }

 private:
  /// A block's rows, and the bytes of its projection in fp32: second-level caches have 1 or 2 MiB.
  static constexpr int64_t kBlockRows = 288, kBlockBytes = 1 << 20;
  /// Blocks of each thread, at least, so that threads end together.
  static constexpr int64_t kBlocksOfThread = 4;

  /// The number of sequences in a block, at most `max_count` and at least half of it, that keeps the busiest thread the
  /// shortest.
  int64_t best_count(int64_t max_count) const {
    const int64_t threads = num_threads();
    const auto longest = [&](int64_t n) {
      const int64_t blocks = (params_.sequences + n - 1) / n;
      return (blocks + threads - 1) / threads * n;
    };
    int64_t best = max_count;
    for (int64_t n = max_count - 1; n > 0 && n >= max_count / 2; --n)
      if (longest(n) < longest(best)) best = n;
    return best;
  }

  /// The length of every sequence; 0: they differ, or rows lie behind them.
  int64_t common_length() const {
    if (params_.sequences == 0) return 0;
    const int64_t first = params_.query_offsets[1];
    for (int64_t s = 0; s <= params_.sequences; ++s)
      if (params_.query_offsets[s] != s * first) return 0;
    return params_.sequences * first == projection_.rows ? first : 0;
  }

  AttentionParams of_block(int64_t begin, int64_t rows) const {
    AttentionParams result = params_;
    result.sequences = rows / length_;  // the first offsets are those of any block: sequences have one length
    result.max_query_length = result.max_key_length = length_;
    if (params_.key_mask) result.key_mask += begin;
    return result;
  }

  /// A block's projection in the dtype that attention reads, where the product's is another.
  int64_t narrow_bytes() const {
    if (projection_.dtype == DType::kFloat32) return 0;
    return align_up(sequences_ * length_ * projection_.out * size_of(projection_.dtype));
  }

  const AttentionParams& params_;
  const LinearPlan& projection_;
  int64_t length_;
  int64_t sequences_ = 0;  // of a block; 0: blocks do not pay
};

}  // namespace tern::kernels::TERN_CPU
