#pragma once
// Batches of token sequences for the text models.

#include <cstdint>
#include <memory>
#include <vector>

#include "tern/core/tensor.h"
#include "tern/data/datasets/token_set.h"
#include "tern/data/loader_stream.h"
#include "tern/data/samplers/batch_plan.h"

namespace tern::data {

/// Labels of sequences that only fill a batch up: the losses' default ignore_index.
inline constexpr int64_t kIgnoredLabel = -100;

/// Sequences one after another; sequence s has the token rows offsets[s] .. offsets[s + 1] - 1.
///
/// Packed: no padding. Padded: every sequence occupies S rows, S the longest of the batch (offsets 0, S, 2S, ...), and
/// key_mask is 0 on padding rows. In both forms a row's key is (data set row << 32 | position in its sequence), also on
/// padding rows, so that dropout keyed by it is the same for a sequence wherever and with whatever it is batched.
///
/// Fixed capacity makes every batch of a plan the same shape:
///  - packed: `batch_tokens` rows and most_sequences() sequences. The missing sequences are empty (offsets repeat the
///  end
///    of the last real one) with label kIgnoredLabel. The rows after the last offset belong to no sequence: token
///    pad_id, position 0, and negative keys of their own, (-1 << 32 | row). No row of a sequence depends on them, their
///    values are meaningless, and no gradient reaches them, since attention ends at the offsets and the loss reads
///    first_rows.
///  - padded: S is the plan's longest, and a batch has batch_size sequences; the missing ones are all padding with
///    label kIgnoredLabel and negative keys.
struct TokenBatch {
  Tensor tokens;              // int32 [rows]
  Tensor offsets;             // int32 [sequences + 1]
  Tensor first_rows;          // int64 [sequences]: the row of each sequence's first token; 0 for an empty sequence
  Tensor positions;           // int32 [rows]: 0, 1, 2, ... in each sequence
  Tensor row_keys;            // int64 [rows]
  Tensor labels;              // int64 [sequences]
  Tensor key_mask;            // uint8 [rows] when padded, undefined when packed
  std::vector<int32_t> rows;  // the data set's rows, one for each real sequence
  int64_t max_length = 0;     // longest sequence, padding included: a bound that attention may rely on
  int64_t real_tokens = 0;    // tokens that are not padding
  int64_t epoch = 0;
  int64_t step = 0;  // in the epoch

  int64_t sequences() const { return labels.size(0); }
  bool padded() const { return key_mask.defined(); }
  /// The batch on another device.
  TokenBatch to(Device device) const;
};

struct TokenLoaderOptions {
  int32_t pad_id = 0;           // [PAD]
  bool fixed_capacity = false;  // see TokenBatch; off on the CPU, where it only costs time
  int workers = 2;              // 0: in the consumer's thread
  int64_t prefetch = 0;         // batches ahead; 0: two for each worker
};

/// Hands out the batches of a plan. Batches depend on tokens, labels, plan and pad_id only, never on the workers.
class TokenLoader {
 public:
  /// labels: [tokens.size()]. Throws Error when sizes do not match or the plan names rows that do not exist.
  TokenLoader(std::shared_ptr<const TokenSet> tokens, std::vector<int32_t> labels, BatchPlan plan,
              const TokenLoaderOptions& options = {});
  TokenLoader(const TokenLoader&) = default;  // moving copies: no loader is left without its data set
  TokenLoader& operator=(const TokenLoader&) = default;

  const BatchPlan& plan() const;
  int64_t epochs() const { return plan().epochs(); }
  int64_t steps(int64_t epoch) const { return plan().steps(epoch); }

  /// The batches of an epoch: all, those from one on (to go on in the middle of it), or every n-th (for one of n
  /// processes). The stream may outlive the
  /// loader.
  BatchStream<TokenBatch> epoch(int64_t epoch, const BatchStripe& stripe = {}) const;
  /// One batch of it.
  TokenBatch batch(int64_t epoch, int64_t step) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace tern::data
