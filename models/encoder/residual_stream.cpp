#include "tern/models/encoder/residual_stream.h"

#include <utility>

#include "tern/core/ops/ops.h"

namespace tern::models {

void ResidualStream::add(const RowChain& branch, const DropoutOptions& dropout) {
  compute_value();
  branch_ = branch;
  dropout_ = dropout;
}

void ResidualStream::normalize(const nn::LayerNorm& norm) {
  if (norm_) compute_value();
  norm_ = &norm;
}

Tensor ResidualStream::norm(const nn::LayerNorm& norm) {
  if (!branch_ || norm_) return norm.forward(value());
  const SumAndNorm result = norm.end(*branch_, value_, dropout_, true);
  branch_.reset();
  value_ = result.sum;
  return result.norm;
}

Tensor ResidualStream::value() {
  compute_value();
  return value_;
}

void ResidualStream::compute_value() {
  if (branch_ && norm_)
    value_ = norm_->end(*branch_, value_, dropout_, false).norm;
  else if (branch_)
    value_ = value_ + dropout(branch_->result(), dropout_);
  else if (norm_)
    value_ = norm_->forward(value_);
  branch_.reset();
  norm_ = nullptr;
}

ResidualStream::Parts ResidualStream::parts() {
  return {value_, branch_ ? branch_->result() : Tensor(), dropout_, norm_};
}

ResidualStream::ResidualStream(const Parts& parts) : value_(parts.value), dropout_(parts.dropout), norm_(parts.norm) {
  if (parts.branch.defined()) branch_.emplace(parts.branch);
}

}  // namespace tern::models
