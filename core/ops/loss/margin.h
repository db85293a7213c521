#pragma once
// Losses of classes, pairs and triplets with a margin.

#include <functional>

#include "tern/core/ops/loss/reduction.h"
#include "tern/core/tensor.h"

namespace tern {

struct MultiMarginOptions {
  int p = 1;  // 1 or 2
  double margin = 1;
  Tensor weight = {};  // [classes]
  LossReduction reduction = LossReduction::kMean;
};
/// The sum of max(0, margin - x[target] + x[c])^p over the other classes c, times the target's weight, divided by the
/// number of classes. x: [rows, classes] or [classes]; targets: int64 [rows] or [].
Tensor multi_margin_loss(const Tensor& x, const Tensor& targets, const MultiMarginOptions& options = {});

/// The sum of max(0, 1 - x[y] + x[c]) over the labels y of a row and the classes c that are none, divided by the number
/// of classes. x: [rows, classes] or [classes]; targets: int64, of x's shape, each row the classes that are its labels,
/// then -1 and anything. Takes memory for rows classes^2 elements.
Tensor multilabel_margin_loss(const Tensor& x, const Tensor& targets, LossReduction reduction = LossReduction::kMean);

struct CosineEmbeddingOptions {
  double margin = 0;
  LossReduction reduction = LossReduction::kMean;
};
/// 1 - cos(a, b) where the target is 1, max(0, cos(a, b) - margin) where it is -1. a, b: [rows, size] or [size];
/// targets: [rows] or [].
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
