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
  bool fixed_norm = false;  // each step first scales a matrix [m, n] to the norm sqrt(m) (arXiv:2404.00498's code)
  DType product_dtype = float32;  // of the iterations' matrix products; bfloat16, as in PyTorch, is faster on a GPU
  bool maximize = false;
  bool master_weights = true;  // 16-bit weights are updated through fp32 copies, made at their first update

  // With adamw = true AdamW updates the group's parameters instead of Muon, with these options.
  bool adamw = false;
  double beta1 = 0.9, beta2 = 0.999;
  double adamw_eps = 1e-8;

  void check() const;
  std::vector<Algorithm::State> states() const;
  /// What schedules of momentum change: momentum, or AdamW's beta1.
  double* cycled_momentum() { return adamw ? &beta1 : &momentum; }
  /// Throws Error unless all have two dimensions or more, or adamw is set.
  void update(std::vector<WholeParameter>& parameters) const;
};

/// Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024, as torch.optim.Muon: the momentum of
/// each matrix is replaced by a near orthogonal one (Newton-Schulz iterations). It is for the matrices of hidden
/// layers, and for kernels of convolutions, which are matrices [out, all else]; embeddings, the last layer, biases and
/// norms go into groups with adamw = true, as muon_groups() makes them. State momentum_buffer; exp_avg, exp_avg_sq of
/// AdamW's parameters. Matrices of equal shape are updated together, stacked to 2^24 elements at most; a step needs
/// some times as much memory.
using Muon = RuleOptimizer<MuonOptions>;

/// Groups for Muon on a whole model: the matrices (two or more dimensions) for which `is_hidden` is true, by Muon; all
/// others by AdamW, those with two or more dimensions with options.weight_decay, biases and norm weights without.
std::vector<ParameterGroup> muon_groups(const std::vector<NamedTensor>& parameters, const MuonOptions& options,
                                        const std::function<bool(const NamedTensor& parameter)>& is_hidden);

}  // namespace tern::optim
