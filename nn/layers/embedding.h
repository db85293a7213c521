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

enum class BagMode { kSum, kMean, kMax };

struct EmbeddingBagOptions {
  BagMode mode = BagMode::kMean;
  int64_t padding_index = -1;        // ids that count as absent; their row starts as zeros; -1: none
  bool include_last_offset = false;  // offsets end with the number of ids
  Initializer weight_init = {};      // normal(0, 1) unless given
};

/// The sum, mean or maximum of rows of weight [count, width] over bags of ids; an empty bag gives zeros. Results and
/// rules are those of torch.nn.EmbeddingBag, except that equal maxima share their gradient. The rows of all bags,
/// padded to the longest, are in memory at once.
class EmbeddingBag final : public Module {
 public:
  EmbeddingBag(const Scope& s, int64_t count, int64_t width, const EmbeddingBagOptions& options = {});

  /// ids (int64 or int32): [bags, length] without offsets, or [n] with offsets (int64 [bags]), the place of each bag's
  /// first id: from 0, not decreasing, at most n; the host reads them. sample_weights: undefined or, with kSum, factors
  /// of the rows, of ids' shape. Result [bags, width].
  Tensor forward(const Tensor& ids, const Tensor& offsets = {}, const Tensor& sample_weights = {}) const;

  const Parameter& weight() const { return weight_; }

 private:
  EmbeddingBagOptions options_;
  Parameter weight_;
};

}  // namespace tern::nn
