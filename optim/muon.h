#pragma once

#include "tern/optim/rule_optimizer.h"

namespace tern::optim {

/// How Muon scales the rate of a matrix [m, n].
enum class MuonScale {
  kOriginal,      // sqrt(max(1, m / n)), Jordan
  kMatchAdamRms,  // 0.2 sqrt(max(m, n)), Liu et al., arXiv:2502.16982: learning rates and decays of AdamW fit
  kSpectral,      // sqrt(m / n), Bernstein: PyTorch's "spectral_unclamped"
};

struct MuonOptions {
  static constexpr const char* kName = "muon";
  double lr = 1e-3;
  double weight_decay = 0.1;
  double momentum = 0.95;
  bool nesterov = true;
  double a = 3.4445, b = -4.775, c = 2.0315;  // of the polynomial a x + b x^3 + c x^5 on the singular values
  int iterations = 5;
  double eps = 1e-7;  // smallest norm
  MuonScale scale = MuonScale::kOriginal;
  DType product_dtype = float32;  // of the iterations' matrix products; bfloat16, as in PyTorch, is faster on a GPU
  bool maximize = false;
  bool master_weights = true;  // 16-bit weights are updated through fp32 copies, made at their first update

  void check() const;
  static std::vector<Algorithm::State> states();
  /// Throws Error unless all have two dimensions.
  void update(std::vector<WholeParameter>& parameters) const;
};

/// Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024, as torch.optim.Muon: the momentum of
/// each matrix is replaced by a near orthogonal one (Newton-Schulz iterations). It is for the matrices of hidden
/// layers: train embeddings, the last layer, biases and norms with a second optimizer, AdamW. State momentum_buffer.
/// Matrices of equal shape are updated together, stacked to 2^24 elements at most; a step needs some times as much
/// memory.
using Muon = RuleOptimizer<MuonOptions>;

}  // namespace tern::optim
