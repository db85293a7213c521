#pragma once
// How a chain of steps is cut into segments, each of which reads and writes whole matrices, and where the matrices
// between them lie. For the host code of kernels/cpu and kernels/cuda.

#include <algorithm>
#include <vector>

#include "tern/kernels/norm.h"
#include "tern/kernels/row_chain.h"

namespace tern::kernels {

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

/// Columns of a step's result for rows of `cols` columns.
inline int64_t cols_after(const RowStep& step, int64_t cols) {
  return std::visit(Overloaded{[](const LinearStep& s) { return s.weight.shape[0]; },
                               [](const SelfAttentionStep& s) { return s.params.heads * s.params.head_dim; },
                               [&](const AddNormStep&) { return cols; }},
                    step);
}

constexpr int64_t kChainAlignment = 256;
constexpr int64_t align_chain(int64_t bytes) {
  return (bytes + kChainAlignment - 1) / kChainAlignment * kChainAlignment;
}

inline View matrix_view(void* data, DType dtype, int64_t rows, int64_t cols) {
  const int64_t shape[] = {rows, cols}, strides[] = {cols, 1};
  return View(data, dtype, 2, shape, strides);
}

/// Calls segment(steps, x, result, memory) for one segment after another, with memory == nullptr and views without
/// data when only sizes are computed. The matrices between segments use two buffers in turn.
class ChainSegments {
 public:
  /// count(x, steps): the steps of the first segment, at least 1.
  template <class Count>
  ChainSegments(const ConstView& x, std::span<const RowStep> steps, const Count& count) {
    ConstView input = matrix_view(nullptr, x.dtype, x.rows(), x.cols());
    while (!steps.empty()) {
      const std::span<const RowStep> segment = steps.first(count(input, steps));
      int64_t cols = input.cols();
      for (const RowStep& step : segment) cols = cols_after(step, cols);
      steps = steps.subspan(segment.size());
      segments_.push_back({segment, cols});
      input = matrix_view(nullptr, x.dtype, x.rows(), cols);
      if (!steps.empty()) buffer_bytes_ = std::max(buffer_bytes_, align_chain(x.rows() * cols * size_of(x.dtype)));
    }
  }

  /// bytes(steps, x, result): the workspace of a segment.
  template <class Bytes>
  int64_t workspace(const ConstView& x, const Bytes& bytes) const {
    int64_t max_bytes = 0;
    visit(x, {}, nullptr, [&](auto steps, const ConstView& input, const View& result, void*) {
      max_bytes = std::max(max_bytes, bytes(steps, input, result));
    });
    return kChainAlignment + buffers() * buffer_bytes_ + max_bytes;
  }

  /// run(steps, x, result, workspace)
  template <class Run>
  void run(const ConstView& x, const View& out, void* workspace, const Run& run) const {
    const auto address = reinterpret_cast<uintptr_t>(workspace);
    visit(x, out,
          static_cast<char*>(workspace) + (align_chain(static_cast<int64_t>(address)) - static_cast<int64_t>(address)),
          run);
  }

 private:
  struct Segment {
    std::span<const RowStep> steps;
    int64_t cols;  // of its result
  };
  int64_t buffers() const { return std::min<int64_t>(2, static_cast<int64_t>(segments_.size()) - 1); }

  template <class Function>
  void visit(const ConstView& x, const View& out, char* memory, const Function& function) const {
    ConstView input = matrix_view(nullptr, x.dtype, x.rows(), x.cols());
    input.data = memory ? x.data : nullptr;
    char* const rest = memory ? memory + buffers() * buffer_bytes_ : nullptr;
    for (size_t i = 0; i < segments_.size(); ++i) {
      const bool last = i + 1 == segments_.size();
      void* const buffer = memory ? memory + static_cast<int64_t>(i % 2) * buffer_bytes_ : nullptr;
      const View result = matrix_view(last ? out.data : buffer, x.dtype, x.rows(), segments_[i].cols);
      function(segments_[i].steps, input, result, rest);
      input = result;
    }
  }

  std::vector<Segment> segments_;
  int64_t buffer_bytes_ = 0;
};

/// The kernels of one target that compute a step alone.
struct StepKernels {
  int64_t (*linear_workspace)(Stream, ConstView, ConstView, View);
  void (*linear_forward)(Stream, ConstView, ConstView, ConstView, Activation, View, View, void*);
  int64_t (*attention_workspace)(Stream, const AttentionParams&, DType);
  void (*attention_forward)(Stream, const AttentionParams&, ConstView, ConstView, ConstView, View, View, void*);
  void (*layer_norm_forward)(Stream, ConstView, ConstView, ConstView, ConstView, double, Dropout, ConstView, View, View,
                             View, View, void*);
};

inline DType statistics_dtype(DType dtype) { return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32; }

/// Queries (0), keys (1) or values (2) of a projection's rows: [rows, heads, head_dim].
template <class AnyView>
AnyView projection_part(const AnyView& projection, const AttentionParams& p, int64_t index) {
  const int64_t shape[] = {projection.rows(), p.heads, p.head_dim}, strides[] = {projection.cols(), p.head_dim, 1};
  using Byte = std::conditional_t<std::is_same_v<AnyView, View>, char, const char>;
  Byte* const data = static_cast<Byte*>(projection.data);
  return AnyView(data ? data + index * p.heads * p.head_dim * size_of(projection.dtype) : nullptr, projection.dtype, 3,
                 shape, strides);
}

/// Bytes of workspace for one step by its kernel.
inline int64_t step_workspace(const StepKernels& kernels, Stream stream, const RowStep& step, const ConstView& x,
                              const View& result) {
  const int64_t statistic = align_chain(x.rows() * size_of(statistics_dtype(x.dtype)));
  return std::visit(
      Overloaded{[&](const LinearStep& s) { return kernels.linear_workspace(stream, x, s.weight, result); },
                 [&](const SelfAttentionStep& s) {
                   return s.params.heads * statistic + kernels.attention_workspace(stream, s.params, x.dtype);
                 },
                 [&](const AddNormStep&) { return 2 * statistic; }},
      step);
}

/// One step by its kernel. workspace: aligned to kChainAlignment.
inline void run_step(const StepKernels& kernels, Stream stream, const RowStep& step, const ConstView& x,
                     const View& result, void* workspace) {
  const DType dtype = statistics_dtype(x.dtype);
  const int64_t statistic = align_chain(x.rows() * size_of(dtype));
  char* const memory = static_cast<char*>(workspace);
  std::visit(Overloaded{[&](const LinearStep& s) {
                          kernels.linear_forward(stream, x, s.weight, s.bias, s.activation, {}, result, workspace);
                        },
                        [&](const SelfAttentionStep& s) {
                          const AttentionParams& p = s.params;
                          const int64_t shape[] = {x.rows(), p.heads, p.head_dim};
                          const int64_t strides[] = {result.cols(), p.head_dim, 1};
                          kernels.attention_forward(
                              stream, p, projection_part(x, p, 0), projection_part(x, p, 1), projection_part(x, p, 2),
                              View(result.data, x.dtype, 3, shape, strides),
                              matrix_view(memory, dtype, p.heads, x.rows()), memory + p.heads * statistic);
                        },
                        [&](const AddNormStep& s) {
                          const int64_t shape[] = {x.rows()}, strides[] = {1};
                          kernels.layer_norm_forward(stream, x, s.residual, s.gamma, s.beta, s.eps, {}, {}, s.sum,
                                                     result, View(memory, dtype, 1, shape, strides),
                                                     View(memory + statistic, dtype, 1, shape, strides), nullptr);
                        }},
             step);
}

}  // namespace tern::kernels
