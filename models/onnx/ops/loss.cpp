// Losses.

#include "tern/kernels/base/check.h"
#include "tern/models/onnx/registry.h"

namespace tern::onnx {
namespace {

LossReduction loss_reduction_of(const Call& c) {
  const std::string name = c.text("reduction", "mean");
  TERN_CHECK(name == "mean" || name == "sum" || name == "none", "the reduction '", name, "'");
  return name == "mean" ? LossReduction::kMean : name == "sum" ? LossReduction::kSum : LossReduction::kNone;
}

void negative_log_likelihood(Call& c) {
  c.set(nll_loss(c.in(0), c.in(1).to(int64),
                 {.weight = c.in_or_none(2),
                  .ignore_index = c.integer("ignore_index", INT64_MIN),
                  .reduction = loss_reduction_of(c)}));
}

void softmax_cross_entropy(Call& c) {
  const Tensor x = c.in(0);
  c.set(0, cross_entropy(x, c.in(1).to(int64),
                         {.weight = c.in_or_none(2),
                          .ignore_index = c.integer("ignore_index", INT64_MIN),
                          .reduction = loss_reduction_of(c)})
               .to(x.dtype()));
  if (c.wants(1)) c.set(1, log_softmax(x, 1));
}

}  // namespace

void add_loss_ops(Rows& rows) {
  const Rows own = {
      {"NegativeLogLikelihoodLoss", 12, negative_log_likelihood},
      {"SoftmaxCrossEntropyLoss", 12, softmax_cross_entropy},
  };
  rows.insert(rows.end(), own.begin(), own.end());
}

}  // namespace tern::onnx
