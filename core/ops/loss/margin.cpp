#include "tern/core/ops/loss/margin.h"

#include <cmath>

#include "tern/core/autograd/autocast.h"
#include "tern/core/ops/indexing/gather.h"
#include "tern/core/ops/indexing/scatter.h"
#include "tern/core/ops/loss/loss_inputs.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/reduce/reduce.h"
#include "tern/core/ops/reduce/vector_norm.h"
#include "tern/core/ops/sort/cumulative.h"

namespace tern {
namespace {

/// max(0, x).
Tensor hinge(const Tensor& x) { return clamp(x, 0, INFINITY); }

/// x [rows, classes] or [classes], and its targets, as rows; one_per_row: a row has one target, otherwise one per
/// class.
struct ClassRows {
  Tensor x, targets;
};
ClassRows class_rows(const char* op, const Tensor& x, const Tensor& targets, bool one_per_row) {
  TERN_CHECK(is_floating(x.dtype()) && (x.dim() == 1 || x.dim() == 2) && x.size(-1) > 0, op,
             ": expected floating [rows, classes] or [classes], got ", x.describe());
  const Shape expected = one_per_row ? x.shape().without(x.dim() - 1) : x.shape();
  TERN_CHECK(targets.dtype() == DType::kInt64 && targets.shape() == expected, op, ": targets must be int64 ", expected,
             ", got ", targets.describe());
  ClassRows rows{x.dim() == 1 ? x.unsqueeze(0) : x, x.dim() == 1 ? targets.unsqueeze(0) : targets};
  detail::autocast_inputs("loss", {&rows.x});
  return rows;
}

Tensor triplet_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                    const DistanceFunction& distance, const TripletMarginOptions& options) {
  const Tensor to_positive = distance(anchor, positive);
  Tensor to_negative = distance(anchor, negative);
  if (options.swap) to_negative = minimum(to_negative, distance(positive, negative));
  return detail::reduce_losses(hinge(to_positive - to_negative + options.margin), options.reduction);
}

}  // namespace

Tensor multi_margin_loss(const Tensor& input, const Tensor& given, const MultiMarginOptions& options) {
  constexpr const char* kName = "multi_margin_loss";
  TERN_CHECK(options.p == 1 || options.p == 2, kName, ": p must be 1 or 2, got ", options.p);
  const auto [x, targets] = class_rows(kName, input, given, true);
  const int64_t classes = x.size(1);
  const Tensor index = targets.unsqueeze(1);
  const Tensor above = relu(options.margin - gather(x, 1, index) + x);
  Tensor terms = options.p == 2 ? square(above) : above;
  if (options.weight.defined()) {
    TERN_CHECK(options.weight.dim() == 1 && options.weight.size(0) == classes, kName, ": weight must be [", classes,
               "], got ", options.weight.shape());
    terms = terms * index_select(options.weight.detach().to(x.dtype()), 0, targets).unsqueeze(1);
  }
  const Tensor of_target = eq(arange(0, static_cast<double>(classes), 1, targets.options()), index);
  const Tensor losses = sum(where(of_target, 0.0, terms), {1}) / static_cast<double>(classes);
  return detail::reduce_losses(input.dim() == 1 ? losses.squeeze(0) : losses, options.reduction);
}

Tensor multilabel_margin_loss(const Tensor& input, const Tensor& given, LossReduction reduction) {
  const auto [x, targets] = class_rows("multilabel_margin_loss", input, given, false);
  const Tensor is_label = cumsum(targets == -1.0, 1) == 0.0, labels = where(is_label, targets, 0.0);
  const Tensor no_label = scatter_add(zeros_like(labels), 1, labels, is_label.to(DType::kInt64)) == 0.0;
  const Tensor above = relu(1.0 - gather(x, 1, labels).unsqueeze(2) + x.unsqueeze(1));  // [rows, labels, classes]
  const Tensor terms = where(logical_and(is_label.unsqueeze(2), no_label.unsqueeze(1)), above, 0.0);
  const Tensor losses = sum(terms, {1, 2}) / static_cast<double>(x.size(1));
  return detail::reduce_losses(input.dim() == 1 ? losses.squeeze(0) : losses, reduction);
}

Tensor cosine_embedding_loss(const Tensor& a, const Tensor& b, const Tensor& target,
                             const CosineEmbeddingOptions& options) {
  const auto [x, y] = detail::checked_pair("cosine_embedding_loss", a, b);
  TERN_CHECK(x.dim() >= 1 && target.shape() == x.shape().without(x.dim() - 1),
             "cosine_embedding_loss: the target of vectors ", x.shape(),
             " must have their shape without the last "
             "dimension, got ",
             target.shape());
  const auto squares = [](const Tensor& of) { return sum(square(of), {-1}) + 1e-12; };
  const Tensor cosine = sum(x * y, {-1}) / sqrt(squares(x) * squares(y));
  const Tensor apart = where(target == -1.0, hinge(cosine - options.margin), 0.0);
  return detail::reduce_losses(where(target == 1.0, 1.0 - cosine, apart), options.reduction);
}

Tensor margin_ranking_loss(const Tensor& a, const Tensor& b, const Tensor& target, const MarginOptions& options) {
  Tensor x = a, y = b, t = target;
  detail::autocast_inputs("loss", {&x, &y, &t});
  return detail::reduce_losses(hinge(options.margin - t * (x - y)), options.reduction);
}

Tensor hinge_embedding_loss(const Tensor& input, const Tensor& target, const MarginOptions& options) {
  const auto [x, t] = detail::checked_pair("hinge_embedding_loss", input, target);
  const Tensor apart = where(t == 1.0, 0.0, hinge(options.margin - x));
  return detail::reduce_losses(apart + where(t == -1.0, 0.0, x), options.reduction);
}

Tensor soft_margin_loss(const Tensor& input, const Tensor& target, LossReduction reduction) {
  const auto [x, t] = detail::checked_pair("soft_margin_loss", input, target);
  return detail::reduce_losses(softplus(neg(t * x)), reduction);
}

Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletMarginOptions& options) {
  const auto [a, p] = detail::checked_pair("triplet_margin_loss", anchor, positive);
  const Tensor n = detail::checked_pair("triplet_margin_loss", anchor, negative).target;
  const auto distance = [&](const Tensor& x, const Tensor& y) {
    return pairwise_distance(x, y, options.p, options.eps);
  };
  return triplet_loss(a, p, n, distance, options);
}

Tensor triplet_margin_with_distance_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                                         const DistanceFunction& distance, const TripletMarginOptions& options) {
  constexpr const char* kName = "triplet_margin_with_distance_loss";
  TERN_CHECK(options.margin > 0, kName, ": the margin must be above 0, got ", options.margin);
  const auto pairwise = [](const Tensor& x, const Tensor& y) { return pairwise_distance(x, y); };
  return triplet_loss(anchor, positive, negative, distance ? distance : DistanceFunction(pairwise), options);
}

}  // namespace tern
