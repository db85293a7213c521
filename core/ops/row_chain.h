#pragma once
// Ops that follow each other on the rows of one matrix, as in a transformer's sub-layer. Where nothing is recorded they
// are collected and computed in one pass, which on the CPU takes each block of rows through several of them while it is
// in cache; where something is recorded each is the ordinary op at once. The bits are the same.

#include <functional>
#include <vector>

#include "tern/core/ops/attention/attention.h"
#include "tern/core/ops/matmul/linear.h"
#include "tern/core/ops/norm/norm.h"
#include "tern/kernels/row_chain.h"

namespace tern {

namespace detail {
class PackedLinear;
}

/// What a chain ends with besides its rows: the layer norm of residual + dropout(rows).
struct AddNormOptions {
  Tensor residual;      // of the rows' shape
  Tensor weight, bias;  // of the norm, see layer_norm; each may be undefined
  double eps = 1e-5;
  DropoutOptions dropout = {};
  bool gives_sum = true;  // false: the sum is not computed and stays undefined
};

class RowChain {
 public:
  /// x: [..., width]
  explicit RowChain(const Tensor& x);

  // Each step replaces the rows. Errors are those of the ops, thrown by the step.

  /// tern::linear(rows, weight, bias, activation). packed: of this weight, or null; it keeps a copy of the weight, and
  /// is not used where something is recorded. On CPUs without AVX-512 sums may then differ in rounding.
  void linear(const Tensor& weight, const Tensor& bias = {}, Activation activation = Activation::kNone,
              detail::PackedLinear* packed = nullptr);
  /// tern::self_attention of rows [tokens, 3 * heads * head_dim] -> [tokens, heads * head_dim].
  void self_attention(int64_t heads, const SequenceLayout& layout, const AttentionOptions& options = {});
  /// Any other function of the rows.
  void apply(const std::function<Tensor(const Tensor&)>& function);

  /// The rows.
  Tensor result();
  /// The rows added to the residual, and the norm of that sum: dropout_residual_sum_layer_norm.
  SumAndNorm add_norm(const AddNormOptions& options);

 private:
  bool fits(const AddNormOptions& options) const;
  /// Computes the steps; the last one's rows, [rows, width].
  Tensor run();

  Tensor x_;     // before the steps; [rows, width] when there are any
  Shape shape_;  // of the rows behind the steps
  std::vector<kernels::RowStep> steps_;
  std::vector<Tensor> inputs_;  // what the steps read: kept alive
};

}  // namespace tern
