#pragma once
// The residual stream of a transformer (He et al., arXiv:1512.03385): sub-layers add to it, norms read it. An addition
// and the norm that follows it are one pass over memory, and without gradients a part of the pass that computes what is
// added. So an addition waits until the stream is read.

#include <optional>

#include "tern/nn/nn.h"

namespace tern::models {

class ResidualStream {
 public:
  /// x: [rows, width]
  explicit ResidualStream(const Tensor& x) : value_(x) {}

  /// stream = stream + dropout(branch)
  void add(const RowChain& branch, const DropoutOptions& dropout = {});
  /// stream = norm(stream). The module must live until the stream is read.
  void normalize(const nn::LayerNorm& norm);

  /// norm(stream); the stream stays as it is.
  Tensor norm(const nn::LayerNorm& norm);
  Tensor value();

  /// The stream as tensors and what waits: for checkpoint(), which keeps tensors.
  struct Parts {
    Tensor value, branch;  // the branch is undefined when no addition waits
    DropoutOptions dropout;
    const nn::LayerNorm* norm = nullptr;
  };
  Parts parts();
  explicit ResidualStream(const Parts& parts);

 private:
  void compute_value();  // so that nothing waits

  Tensor value_;                         // before the addition
  std::optional<RowChain> branch_;       // what is to be added
  DropoutOptions dropout_;               // of the branch
  const nn::LayerNorm* norm_ = nullptr;  // what the sum is to be replaced by
};

}  // namespace tern::models
