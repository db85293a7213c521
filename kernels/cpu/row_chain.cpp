// A chain of layers: those that follow each other without leaving the cache are one segment, which threads share out by
// blocks of rows.

#include "tern/kernels/row_chain.h"

#include <optional>

#include "tern/kernels/cpu/norm_rows.h"
#include "tern/kernels/cpu/row_chain_attention.h"
#include "tern/kernels/row_chain_segments.h"

namespace tern::kernels::TERN_CPU {
namespace {

constexpr StepKernels kKernels = {linear_workspace, linear_forward, attention_forward_workspace, attention_forward,
                                  layer_norm_forward};

/// Steps that a block of rows goes through: linear layers, and at most one other step after them.
class BlockSegment {
 public:
  /// Takes as many of `steps` as go together; x: the rows before them, whose data is not read.
  BlockSegment(const ConstView& x, std::span<const RowStep> steps) : dtype_(x.dtype) {
    ConstView rows = x;
    for (const RowStep& step : steps) {
      const auto* const linear = std::get_if<LinearStep>(&step);
      if (!linear) break;
      const LinearPlan plan(rows, linear->weight, linear->packed != nullptr);
      if (!plan.blocks) break;
      linears_.push_back(linear);
      plans_.push_back(plan);
      rows = matrix_view(nullptr, x.dtype, x.rows(), plan.out);
    }
    if (linears_.empty() || linears_.size() == steps.size()) return;
    const RowStep& next = steps[linears_.size()];
    end_ = std::get_if<AddNormStep>(&next);
    const auto* const attention = std::get_if<SelfAttentionStep>(&next);
    if (!attention || linears_.back()->activation != Activation::kNone) return;
    // Its blocks have other numbers of rows, for which the weight may have to be packed otherwise.
    if (linears_.back()->packed || !AttentionBlocks(attention->params, plans_.back()).suits()) return;
    if (linears_.size() > 1) {  // its blocks are of other rows: the next segment's
      linears_.pop_back();
      plans_.pop_back();
    } else {
      attention_.emplace(attention->params, plans_.back());
    }
  }

  /// 0: its kernel is the better one for the first step.
  size_t steps() const {
    const size_t all = linears_.size() + (end_ || attention_ ? 1 : 0);
    return all > 1 || (all == 1 && linears_[0]->packed) ? all : 0;
  }

  int64_t workspace_bytes() const { return bias_bytes() + RowBlocks::chain_workspace_bytes(Products(*this).list); }

  void run(const ConstView& x, const View& out, void* workspace) const {
    dispatch_blocks(dtype_, [&]<class T>() { run_as<T>(x, out, align_up(workspace)); });
  }

 private:
  struct Products {
    std::vector<RowBlocks> blocks;
    std::vector<BlockProduct> list;

    explicit Products(const BlockSegment& s) {
      blocks.reserve(s.plans_.size());
      for (size_t i = 0; i < s.plans_.size(); ++i) {
        blocks.push_back(s.blocks_of(i));
        list.push_back({blocks.back(), s.linears_[i]->weight.data, nullptr, s.linears_[i]->packed});
      }
    }
  };

  RowBlocks blocks_of(size_t i) const {
    if (i + 1 < plans_.size()) return plans_[i].row_blocks();
    if (attention_) return attention_->row_blocks();
    return end_ ? plans_[i].scratch_blocks(narrow_row_bytes()) : plans_[i].row_blocks();
  }
  /// A row in 16 bits, between the last product and what normalises it.
  int64_t narrow_row_bytes() const { return plans_.back().wide ? plans_.back().out * size_of(dtype_) : 0; }

  int64_t bias_bytes() const {
    int64_t bytes = 64;
    for (const LinearPlan& plan : plans_) bytes += plan.bias_bytes();
    return bytes;
  }

  template <class T>
  void run_as(const ConstView& x, const View& out, char* memory) const {
    Products products(*this);
    std::vector<const float*> left(plans_.size());  // biases that the products do not add
    for (size_t i = 0; i < plans_.size(); ++i) {
      float* const buffer = reinterpret_cast<float*>(memory);
      const float* const bias = wide_bias<float>(linears_[i]->bias, buffer);
      products.list[i].bias = or_zeros(bias, plans_[i].out, buffer);
      left[i] = products.blocks[i].adds_bias() ? nullptr : bias;
      memory += plans_[i].bias_bytes();
    }
    RowBlocks::run_chain(products.list, x.data, out.data, memory, [&](size_t i, const ResultBlock& block, void* next) {
      if (i + 1 < plans_.size()) return finish_block<T>(i, block, left[i], static_cast<T*>(next));
      if (attention_) return attention_->template attend<T>(block, out);
      T* const to = out.as<T>() + block.begin * out.cols();
      if (end_) return add_and_normalize<T>(block, left[i], to);
      finish_block<T>(i, block, left[i], to);
    });
  }

  /// Bias, activation and conversion of product i's rows, which go to `to`.
  template <class T>
  void finish_block(size_t i, const ResultBlock& block, const float* bias, T* to) const {
    if (block.result == to && !bias && linears_[i]->activation == Activation::kNone) return;
    finish_rows<T, float>(block.rows, plans_[i].out, static_cast<const float*>(block.result), block.stride, bias,
                          linears_[i]->activation, nullptr, to);
  }

  /// The same for the last product, row by row, and the layer norm of each row and its residual.
  template <class T>
  void add_and_normalize(const ResultBlock& block, const float* bias, T* to) const {
    const Activation activation = linears_.back()->activation;
    const int64_t cols = plans_.back().out;
    const DropoutFactors no_dropout({}, {});
    const Affine<T> gamma(end_->gamma), beta(end_->beta);
    for (int64_t i = 0; i < block.rows; ++i, to += cols) {
      float* const result = static_cast<float*>(block.result) + i * block.stride;
      T* finished = reinterpret_cast<T*>(block.memory);
      if constexpr (std::is_same_v<T, float>) finished = result;
      if (bias || activation != Activation::kNone || !std::is_same_v<T, float>)
        finish_rows<T, float>(1, cols, result, block.stride, bias, activation, nullptr, finished);
      const int64_t row = block.begin + i, at = row * cols;
      T* const sum = end_->sum ? end_->sum.as<T>() + at : to;
      add_row(row, cols, finished, end_->residual.as<T>() + at, no_dropout, sum);
      const float mean = row_mean(sum, cols), rstd = row_rstd(sum, cols, end_->eps, mean);
      normalize_row(sum, cols, mean, rstd, gamma, beta, to);
    }
  }

  DType dtype_;
  std::vector<const LinearStep*> linears_;
  std::vector<LinearPlan> plans_;
  const AddNormStep* end_ = nullptr;
  std::optional<AttentionBlocks> attention_;
};

size_t first_segment(const ConstView& x, std::span<const RowStep> steps) {
  return std::max<size_t>(1, BlockSegment(x, steps).steps());
}

}  // namespace

int64_t row_chain_workspace(Stream stream, ConstView x, std::span<const RowStep> steps) {
  return ChainSegments(x, steps, first_segment)
      .workspace(x, [&](auto segment, const ConstView& rows, const View& result) {
        if (const BlockSegment blocks(rows, segment); blocks.steps() > 0) return blocks.workspace_bytes();
        return step_workspace(kKernels, stream, segment[0], rows, result);
      });
}

void row_chain(Stream stream, ConstView x, std::span<const RowStep> steps, View out, void* workspace) {
  ChainSegments(x, steps, first_segment)
      .run(x, out, workspace, [&](auto segment, const ConstView& rows, const View& result, void* memory) {
        if (const BlockSegment blocks(rows, segment); blocks.steps() > 0) return blocks.run(rows, result, memory);
        run_step(kKernels, stream, segment[0], rows, result, memory);
      });
}

int64_t linear_packing(Stream, DType dtype, int64_t rows, int64_t out, int64_t in) {
  const LinearPlan plan(dtype, rows, out, in, true);
  if (!plan.blocks || !(plan.panels || has_packed_matmul(dtype))) return 0;
  // One copy for as many numbers of rows as possible: that of the largest blocks, where the layouts are equal.
  constexpr int64_t kManyRows = 4096;
  const bool same = plan.row_blocks().same_packing(LinearPlan(dtype, kManyRows, out, in, true).row_blocks());
  return same ? kManyRows : rows;
}

int64_t linear_packed_bytes(Stream, DType dtype, int64_t rows, int64_t out, int64_t in) {
  const LinearPlan plan(dtype, rows, out, in, true);
  return plan.blocks ? plan.row_blocks().packed_bytes() : 0;
}

void linear_pack(Stream, int64_t rows, ConstView weight, void* packed) {
  const LinearPlan plan(weight.dtype, rows, weight.shape[0], weight.shape[1], true);
  const bool transposed = weight.is_contiguous();  // as the product sees it
  plan.row_blocks(transposed, transposed ? plan.in : plan.out).pack(weight.data, packed);
}

}  // namespace tern::kernels::TERN_CPU
