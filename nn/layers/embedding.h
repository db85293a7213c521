#pragma once

#include "tern/nn/module.h"

namespace tern::nn {

struct EmbeddingOptions {
  int64_t padding_index = -1;    // this row starts as zeros and gets no gradient; -1: none
  Initializer weight_init = {};  // normal(0, 1) unless given
};

/// Rows of weight [count, width] by id: ids of any shape (int64 or int32) give ids.shape + [width].
class Embedding final : public Module {
 public:
  Embedding(const Scope& s, int64_t count, int64_t width, const EmbeddingOptions& options = {});

  Tensor forward(const Tensor& ids) const;

  const Parameter& weight() const { return weight_; }

 private:
  int64_t padding_index_;
  Parameter weight_;
};

}  // namespace tern::nn
