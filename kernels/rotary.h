#pragma once
// Rotary position embeddings (Su et al., RoFormer, arXiv:2104.09864): pairs of elements of each head are rotated by
// angles that grow with the token's position, so that the product of a query and a key depends on their distance.

#include "tern/kernels/index_fault.h"
#include "tern/kernels/kernel.h"

namespace tern::kernels {

/// The first 2 * pairs elements of each head are rotated, the others copied. Pair i is elements i and i + pairs, or,
/// interleaved, 2i and 2i + 1.
struct RotaryParams {
  static constexpr int64_t kMaxPairs = 128;
  int64_t pairs = 0;
  bool interleaved = false;
  bool inverse = false;          // by the negative angle
  double turns[kMaxPairs] = {};  // rotations of pair i from one position to the next: its frequency / (2 pi)
};

/// With angle a = 2 pi position turns[i], pair (x0, x1) becomes (x0 cos a - x1 sin a, x0 sin a + x1 cos a), in fp32
/// (fp64). The angle is computed in fp64 and reduced to one turn, so that it is as exact at large positions as at small
/// ones. x: floating [tokens, heads, head_dim], contiguous last dimension; positions: contiguous int64 or int32
/// [tokens]; y: contiguous, like x. A negative position is recorded in *fault and its token of y is 0.
TERN_KERNEL(void, rotary, Stream stream, const RotaryParams& params, ConstView x, ConstView positions, View y,
            IndexFault* fault);

}  // namespace tern::kernels
