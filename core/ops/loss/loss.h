#pragma once
// Loss functions with PyTorch's names, formulas and defaults. All are twice differentiable; inside an autocast region
// they are computed in fp32. Where a reduction is given, kNone returns the losses one by one.

#include <functional>

#include "tern/core/tensor.h"

namespace tern {

enum class LossReduction { kMean, kSum, kNone };

// --- classes ---

struct CrossEntropyOptions {
  Tensor weight = {};  // [classes], of each class
  int64_t ignore_index = -100;
  double label_smoothing = 0;
  LossReduction reduction = LossReduction::kMean;
  Tensor row_weights = {};  // of the targets' shape: of each target
};

/// Softmax cross entropy of logits [rows, classes], [rows, classes, d1, ...] or [classes] against int64 classes [rows],
/// [rows, d1, ...] or []; fused unless there are both class weights and smoothing. Or against probabilities, floating
/// and of the logits' shape. fp32 inside; the result is fp32 (fp64 for fp64 logits). The mean divides by the sum of the
/// weights of the targets that are not ignored, and is 0 when all are (PyTorch's is NaN); that of probabilities divides
/// by the number of rows. A target outside [0, classes) throws Error.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options = {});

struct NllOptions {
  Tensor weight = {};  // [classes]
  int64_t ignore_index = -100;
  LossReduction reduction = LossReduction::kMean;
};
/// -log_probabilities[row, targets[row]], with the shapes, the mean and the errors of cross_entropy's classes.
Tensor nll_loss(const Tensor& log_probabilities, const Tensor& targets, const NllOptions& options = {});

struct MultiMarginOptions {
  int p = 1;  // 1 or 2
  double margin = 1;
  Tensor weight = {};  // [classes]
  LossReduction reduction = LossReduction::kMean;
};
/// The sum of max(0, margin - x[target] + x[c])^p over the other classes c, times the target's weight, divided by the
/// number of classes. x: [rows, classes] or [classes]; targets: int64 [rows] or [].
Tensor multi_margin_loss(const Tensor& x, const Tensor& targets, const MultiMarginOptions& options = {});

struct CtcOptions {
  int64_t blank = 0;  // its class
  LossReduction reduction = LossReduction::kMean;
  bool zero_infinity = false;  // 0 for a target that no alignment fits, instead of infinity
};
/// Connectionist temporal classification (Graves et al., ICML 2006): -log of the probability of a target, summed over
/// its alignments with the frames. log_probabilities: [frames, batch, classes], log_softmax over the classes; targets:
/// integers, none of them the blank, padded [batch, most labels] or one after another [sum of target_lengths];
/// input_lengths and target_lengths: integers [batch], the frames and labels of each sequence. Or of one sequence:
/// [frames, classes], targets of one dimension, and lengths []. The losses are [batch] or []; the mean is that of the
/// losses, each divided by its number of labels (at least 1). The gradient is the exact one by log_probabilities;
/// PyTorch's has exp(log_probabilities) added, which the gradient of log_softmax removes. Without zero_infinity it is
/// NaN where the loss is infinite. The host reads targets and lengths, and waits for them if they are on a device.
Tensor ctc_loss(const Tensor& log_probabilities, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, const CtcOptions& options = {});

// --- several labels: every element is 0 or 1, or between ---

struct BceOptions {
  Tensor weight = {};  // broadcast to the losses
  LossReduction reduction = LossReduction::kMean;
};
/// -(t log p + (1 - t) log(1 - p)) of probabilities of the target's shape, each logarithm at least -100. A probability
/// outside [0, 1] gives NaN. The gradient (p - t) / max(p (1 - p), 1e-12) is finite. Throws Error inside an autocast
/// region, where 16 bits are too few for p near 1.
Tensor binary_cross_entropy(const Tensor& probabilities, const Tensor& target, const BceOptions& options = {});

struct BceWithLogitsOptions {
  Tensor weight = {};      // broadcast to the losses
  Tensor pos_weight = {};  // factor of the losses of ones, broadcast: [labels], say
  LossReduction reduction = LossReduction::kMean;
};
/// binary_cross_entropy of sigmoid(logits), without overflow.
Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target,
                                        const BceWithLogitsOptions& options = {});

struct FocalOptions {
  double alpha = 0.25;  // weight of ones, and 1 - alpha of zeros; negative: none
  double gamma = 2;
  LossReduction reduction = LossReduction::kNone;  // as in torchvision
};
/// Lin et al., arXiv:1708.02002: binary_cross_entropy_with_logits times (1 - p of the true label)^gamma.
Tensor sigmoid_focal_loss(const Tensor& logits, const Tensor& target, const FocalOptions& options = {});

struct MultilabelSoftMarginOptions {
  Tensor weight = {};  // broadcast to the losses: [labels], say
  LossReduction reduction = LossReduction::kMean;
};
/// The mean of binary_cross_entropy_with_logits over the labels, the last dimension.
Tensor multilabel_soft_margin_loss(const Tensor& x, const Tensor& target,
                                   const MultilabelSoftMarginOptions& options = {});
/// The sum of max(0, 1 - x[y] + x[c]) over the labels y of a row and the classes c that are none, divided by the number
/// of classes. x: [rows, classes] or [classes]; targets: int64, of x's shape, each row the classes that are its labels,
/// then -1 and anything. Takes memory for rows classes^2 elements.
Tensor multilabel_margin_loss(const Tensor& x, const Tensor& targets, LossReduction reduction = LossReduction::kMean);

// --- numbers: prediction and target have one shape ---

Tensor mse_loss(const Tensor& prediction, const Tensor& target, LossReduction reduction = LossReduction::kMean);
Tensor l1_loss(const Tensor& prediction, const Tensor& target, LossReduction reduction = LossReduction::kMean);
/// d^2 / (2 beta) where |d| < beta, |d| - beta / 2 elsewhere; beta 0: l1_loss.
Tensor smooth_l1_loss(const Tensor& prediction, const Tensor& target, double beta = 1,
                      LossReduction reduction = LossReduction::kMean);
/// d^2 / 2 where |d| < delta, delta (|d| - delta / 2) elsewhere.
Tensor huber_loss(const Tensor& prediction, const Tensor& target, double delta = 1,
                  LossReduction reduction = LossReduction::kMean);

struct PoissonNllOptions {
  bool log_input = true;  // exp(x) - t x of a logarithm x; otherwise x - t log(x + eps)
  bool full = false;      // with Stirling's approximation of log(t!) for t > 1
  double eps = 1e-8;
  LossReduction reduction = LossReduction::kMean;
};
Tensor poisson_nll_loss(const Tensor& input, const Tensor& target, const PoissonNllOptions& options = {});

struct GaussianNllOptions {
  bool full = false;  // with log(2 pi) / 2
  double eps = 1e-6;  // smallest variance; its gradient is as without it
  LossReduction reduction = LossReduction::kMean;
};
/// (log(variance) + (input - target)^2 / variance) / 2. The variance broadcasts, or has one element for each row: the
/// input's shape without the last dimension. A negative one throws Error, for which the host waits for the device.
Tensor gaussian_nll_loss(const Tensor& input, const Tensor& target, const Tensor& variance,
                         const GaussianNllOptions& options = {});

struct KlDivOptions {
  bool log_target = false;  // the target is given as logarithms
  LossReduction reduction = LossReduction::kMean;
  bool batch_mean = false;  // the sum divided by the size of dimension 0, whatever the reduction
};
/// t (log t - x) of logarithms x of probabilities and probabilities t; 0 where t is 0.
Tensor kl_div(const Tensor& input, const Tensor& target, const KlDivOptions& options = {});

// --- pairs and triplets ---

struct CosineEmbeddingOptions {
  double margin = 0;
  LossReduction reduction = LossReduction::kMean;
};
/// Of vectors a and b, [rows, size] or [size], and targets [rows] or [], 1 or -1: 1 - cos(a, b), or
/// max(0, cos(a, b) - margin).
Tensor cosine_embedding_loss(const Tensor& a, const Tensor& b, const Tensor& target,
                             const CosineEmbeddingOptions& options = {});

struct MarginOptions {
  double margin = 0;
  LossReduction reduction = LossReduction::kMean;
};
/// max(0, margin - t (a - b)) with targets 1 or -1; a, b and t broadcast.
Tensor margin_ranking_loss(const Tensor& a, const Tensor& b, const Tensor& target, const MarginOptions& options = {});
/// x where the target is 1, max(0, margin - x) where it is -1.
Tensor hinge_embedding_loss(const Tensor& x, const Tensor& target, const MarginOptions& options = {.margin = 1});
/// log(1 + exp(-t x)) with targets 1 or -1.
Tensor soft_margin_loss(const Tensor& x, const Tensor& target, LossReduction reduction = LossReduction::kMean);

struct TripletMarginOptions {
  double margin = 1;
  double p = 2;  // order of the norm
  double eps = 1e-6;
  bool swap = false;  // the negative's distance is the smaller of those from the anchor and from the positive
  LossReduction reduction = LossReduction::kMean;
};
/// max(0, d(anchor, positive) - d(anchor, negative) + margin), with pairwise_distance along the last dimension.
Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletMarginOptions& options = {});

/// A distance of two tensors, differentiable, of one shape whatever their order.
using DistanceFunction = std::function<Tensor(const Tensor&, const Tensor&)>;
/// The same with any distance, by default pairwise_distance. `p` and `eps` of the options are not used.
Tensor triplet_margin_with_distance_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                                         const DistanceFunction& distance = {},
                                         const TripletMarginOptions& options = {});

}  // namespace tern
