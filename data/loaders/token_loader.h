#pragma once
// Batches of token sequences for the text models.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tern/data/datasets/token_set.h"
#include "tern/data/loaders/batch_loader.h"
#include "tern/data/samples/token_batch.h"

namespace tern::data {

struct TokenLoaderOptions {
  int32_t pad_id = 0;           // [PAD]
  bool fixed_capacity = false;  // see TokenBatch; off on the CPU, where it only adds work
  int workers = 2;              // 0: batches are made in the consumer's thread
  int64_t prefetch = 0;         // batches made ahead; 0: two per worker
  /// For targets other than a label of each sequence, and for masked words: changes each batch on the CPU. It may
  /// replace `labels` by any tensor and write into `tokens`. Called from several threads, so it must depend on the
  /// batch alone; with fixed_capacity all batches must get labels of one shape.
  std::function<void(TokenBatch& batch)> transform = {};
};

/// Yields the batches of a plan. Batches depend only on tokens, labels, plan, pad_id and transform, not on the workers.
class TokenLoader : public PlannedLoader<TokenBatch> {
 public:
  /// labels: [tokens.size()]; or empty, then all are kIgnoredLabel. Throws Error if sizes do not match or the plan has
  /// rows that do not exist.
  TokenLoader(std::shared_ptr<const TokenSet> tokens, std::vector<int32_t> labels, BatchPlan plan,
              const TokenLoaderOptions& options = {});

 private:
  struct State;
};

}  // namespace tern::data
