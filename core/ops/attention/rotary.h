#pragma once

#include "tern/core/tensor.h"

namespace tern {

struct RotaryOptions {
  double base = 10000;     // of the frequencies base^(-2i / rotary_dim)
  int64_t rotary_dim = 0;  // the first elements of each head, which are rotated: even, at most 256; 0: all
  bool interleaved =
      false;  // pairs are elements 2i and 2i + 1 (GPT-J); otherwise i and i + rotary_dim / 2 (Llama, NeoX)
};

/// Rotary position embeddings (Su et al., RoFormer, arXiv:2104.09864) of queries or keys x: floating [tokens, heads,
/// head_dim]. positions: int64 or int32 [tokens], of each token in its sequence, not negative (Error). Pair i of each
/// head is rotated by the angle positions[token] * base^(-2i / rotary_dim), which is computed in fp64 for every dtype.
/// Result like x.
Tensor rotary(const Tensor& x, const Tensor& positions, const RotaryOptions& options = {});

}  // namespace tern
