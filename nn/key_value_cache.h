#pragma once
// The keys and values of past tokens, so that generation computes only the new ones.

#include <vector>

#include "tern/core/ops/attention/attention.h"

namespace tern::nn {

struct KeyValueCacheOptions {
  int64_t capacity = 0;  // tokens that a sequence may have; 0: any number, the memory doubles when it is full
  Device device = {};
};

/// Keys and values of the attention layers of a model for some sequences, each with its own number of tokens. A model
/// calls extend() once for the new tokens, and then, under NoGrad, attention() of each of its layers:
///
///   cache.extend(counts);                                  // new tokens of each sequence: a prompt, then 1, 1, ...
///   x = attention_layer.forward(x, cache, /*layer=*/0);    // nn::PackedAttention
///
/// The first call of a layer decides heads, head_dim and dtype. Memory: 2 * layers * sequences * room * kv_heads *
/// head_dim elements, where room is the capacity or, without one, 16 doubled until the longest sequence fits. While a
/// layer grows, its old and new memory exist together. Attention reads the cache in place, also where lengths differ.
class KeyValueCache {
 public:
  KeyValueCache(int64_t layers, int64_t sequences, const KeyValueCacheOptions& options = {});

  /// Announces the new tokens of each sequence; they follow its tokens so far. Throws Error when a sequence would have
  /// more than `capacity` tokens, and when a layer did not take the last step's tokens.
  void extend(const std::vector<int64_t>& counts);
  /// Adds the new tokens' keys and values, k, v: [new tokens, kv_heads, head_dim], and lets their queries q: [new
  /// tokens, heads, head_dim] attend to all keys of their sequences; result like q. New tokens are packed: those of the
  /// first sequence, of the second, ... Attention is causal, aligned at the last key: the last new token sees all
  /// tokens of its sequence. A window counts from the same positions. A bias is [sequences or 1, heads or 1, the most
  /// new tokens of a sequence, the most tokens of a sequence].
  Tensor attention(int64_t layer, const Tensor& q, const Tensor& k, const Tensor& v, AttentionOptions options = {});
  /// The new tokens' positions in their sequences: int64 [new tokens], what rotary() takes.
  const Tensor& positions() const { return step_.positions; }

  /// Forgets all tokens; the memory stays.
  void reset();
  /// Forgets the tokens of each sequence from this length on. Throws Error when a sequence is shorter. May undo an
  /// extend() whose attention() failed.
  void truncate(const std::vector<int64_t>& lengths);
  /// Sequence i becomes a copy of what was sequence sources[i]: the choices of a beam search. Their number may change.
  void select(const std::vector<int64_t>& sources);

  int64_t layers() const { return static_cast<int64_t>(layers_.size()); }
  int64_t sequences() const { return static_cast<int64_t>(lengths_.size()); }
  /// The tokens of each sequence, with the new ones.
  const std::vector<int64_t>& lengths() const { return lengths_; }
  /// The size of the memory that the layers have now.
  int64_t bytes() const;

 private:
  struct Layer {
    Tensor keys, values;  // [sequences, room, kv_heads, head_dim]; undefined before the first call
    bool written = true;  // has the new tokens
  };
  /// What all layers need to know of the new tokens.
  struct Step {
    SequenceLayout queries, keys;
    Tensor positions, rows;  // of the new tokens: in their sequences, and in the memory of all sequences
  };
  void check_complete(const char* what) const;
  int64_t room_for(int64_t tokens, int64_t sequences) const;
  Step step_from(const std::vector<int64_t>& lengths, const std::vector<int64_t>& counts, int64_t room) const;
  void begin(const std::vector<int64_t>& lengths, const std::vector<int64_t>& counts, bool written);
  Tensor with_unused_room(const Tensor& bias) const;
  void write(Layer& layer, const Tensor& k, const Tensor& v) const;

  std::vector<Layer> layers_;
  std::vector<int64_t> lengths_, before_;  // with and without the new tokens
  int64_t capacity_, room_;
  Device device_;
  Step step_;
};

}  // namespace tern::nn
