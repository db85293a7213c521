#pragma once
// Losses as modules, with PyTorch's names, for code that keeps its loss beside the model. core/ops/loss defines
// the functions; weights of classes and labels are buffers, as in PyTorch.

#include <concepts>
#include <list>
#include <tuple>

#include "tern/core/ops/loss/binary_cross_entropy.h"
#include "tern/core/ops/loss/cross_entropy.h"
#include "tern/core/ops/loss/ctc.h"
#include "tern/core/ops/loss/margin.h"
#include "tern/core/ops/loss/regression.h"
#include "tern/nn/module.h"

namespace tern::nn {

/// The module whose forward is kFunction(input, target, values...), or with more tensors. The tensors in its values
/// are buffers.
template <auto kFunction, class... Values>
class LossModule : public Module {
 public:
  explicit LossModule(const Scope& s, const Values&... values) : Module(s), values_(values...) {
    std::apply([&](Values&... kept) { (keep(kept), ...); }, values_);
  }
  template <std::same_as<Tensor>... Inputs>
  Tensor forward(const Inputs&... inputs) const {
    return std::apply([&](const Values&... values) { return kFunction(inputs..., values...); }, values_);
  }

 private:
  template <class Value>
  void keep(Value& value) {
    if constexpr (requires { value.weight; }) keep_tensor("weight", value.weight);
    if constexpr (requires { value.pos_weight; }) keep_tensor("pos_weight", value.pos_weight);
  }
  void keep_tensor(const char* name, Tensor& tensor) {
    if (tensor.defined()) tensor = buffers_.emplace_back(this, name, tensor).tensor();
  }

  std::tuple<Values...> values_;
  std::list<Buffer> buffers_;
};

struct CrossEntropyLoss final : LossModule<tern::cross_entropy, CrossEntropyOptions> {
  explicit CrossEntropyLoss(const Scope& s, const CrossEntropyOptions& options = {}) : LossModule(s, options) {}
};
struct NLLLoss final : LossModule<tern::nll_loss, NllOptions> {
  explicit NLLLoss(const Scope& s, const NllOptions& options = {}) : LossModule(s, options) {}
};
struct MultiMarginLoss final : LossModule<tern::multi_margin_loss, MultiMarginOptions> {
  explicit MultiMarginLoss(const Scope& s, const MultiMarginOptions& options = {}) : LossModule(s, options) {}
};
/// forward(log_probabilities, targets, input_lengths, target_lengths).
struct CTCLoss final : LossModule<tern::ctc_loss, CtcOptions> {
  explicit CTCLoss(const Scope& s, const CtcOptions& options = {}) : LossModule(s, options) {}
};
struct MultiLabelMarginLoss final : LossModule<tern::multilabel_margin_loss, LossReduction> {
  explicit MultiLabelMarginLoss(const Scope& s, LossReduction reduction = LossReduction::kMean)
      : LossModule(s, reduction) {}
};
struct MultiLabelSoftMarginLoss final : LossModule<tern::multilabel_soft_margin_loss, MultilabelSoftMarginOptions> {
  explicit MultiLabelSoftMarginLoss(const Scope& s, const MultilabelSoftMarginOptions& options = {})
      : LossModule(s, options) {}
};
struct BCELoss final : LossModule<tern::binary_cross_entropy, BceOptions> {
  explicit BCELoss(const Scope& s, const BceOptions& options = {}) : LossModule(s, options) {}
};
struct BCEWithLogitsLoss final : LossModule<tern::binary_cross_entropy_with_logits, BceWithLogitsOptions> {
  explicit BCEWithLogitsLoss(const Scope& s, const BceWithLogitsOptions& options = {}) : LossModule(s, options) {}
};
struct SigmoidFocalLoss final : LossModule<tern::sigmoid_focal_loss, FocalOptions> {
  explicit SigmoidFocalLoss(const Scope& s, const FocalOptions& options = {}) : LossModule(s, options) {}
};
struct MSELoss final : LossModule<tern::mse_loss, LossReduction> {
  explicit MSELoss(const Scope& s, LossReduction reduction = LossReduction::kMean) : LossModule(s, reduction) {}
};
struct L1Loss final : LossModule<tern::l1_loss, LossReduction> {
  explicit L1Loss(const Scope& s, LossReduction reduction = LossReduction::kMean) : LossModule(s, reduction) {}
};
struct SmoothL1Loss final : LossModule<tern::smooth_l1_loss, double, LossReduction> {
  explicit SmoothL1Loss(const Scope& s, double beta = 1, LossReduction reduction = LossReduction::kMean)
      : LossModule(s, beta, reduction) {}
};
struct HuberLoss final : LossModule<tern::huber_loss, double, LossReduction> {
  explicit HuberLoss(const Scope& s, double delta = 1, LossReduction reduction = LossReduction::kMean)
      : LossModule(s, delta, reduction) {}
};
struct PoissonNLLLoss final : LossModule<tern::poisson_nll_loss, PoissonNllOptions> {
  explicit PoissonNLLLoss(const Scope& s, const PoissonNllOptions& options = {}) : LossModule(s, options) {}
};
/// forward(input, target, variance).
struct GaussianNLLLoss final : LossModule<tern::gaussian_nll_loss, GaussianNllOptions> {
  explicit GaussianNLLLoss(const Scope& s, const GaussianNllOptions& options = {}) : LossModule(s, options) {}
};
struct KLDivLoss final : LossModule<tern::kl_div, KlDivOptions> {
  explicit KLDivLoss(const Scope& s, const KlDivOptions& options = {}) : LossModule(s, options) {}
};
/// forward(a, b, target).
struct CosineEmbeddingLoss final : LossModule<tern::cosine_embedding_loss, CosineEmbeddingOptions> {
  explicit CosineEmbeddingLoss(const Scope& s, const CosineEmbeddingOptions& options = {}) : LossModule(s, options) {}
};
/// forward(a, b, target).
struct MarginRankingLoss final : LossModule<tern::margin_ranking_loss, MarginOptions> {
  explicit MarginRankingLoss(const Scope& s, const MarginOptions& options = {}) : LossModule(s, options) {}
};
struct HingeEmbeddingLoss final : LossModule<tern::hinge_embedding_loss, MarginOptions> {
  explicit HingeEmbeddingLoss(const Scope& s, const MarginOptions& options = {.margin = 1}) : LossModule(s, options) {}
};
struct SoftMarginLoss final : LossModule<tern::soft_margin_loss, LossReduction> {
  explicit SoftMarginLoss(const Scope& s, LossReduction reduction = LossReduction::kMean) : LossModule(s, reduction) {}
};
/// forward(anchor, positive, negative).
struct TripletMarginLoss final : LossModule<tern::triplet_margin_loss, TripletMarginOptions> {
  explicit TripletMarginLoss(const Scope& s, const TripletMarginOptions& options = {}) : LossModule(s, options) {}
};
/// forward(anchor, positive, negative).
struct TripletMarginWithDistanceLoss final
    : LossModule<tern::triplet_margin_with_distance_loss, DistanceFunction, TripletMarginOptions> {
  explicit TripletMarginWithDistanceLoss(const Scope& s, const DistanceFunction& distance = {},
                                         const TripletMarginOptions& options = {})
      : LossModule(s, distance, options) {}
};

}  // namespace tern::nn
