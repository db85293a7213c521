// Self-attention with its projection is the CPU's: here the projection goes through memory.

#include "tern/core/check.h"
#include "tern/kernels/attention.h"

namespace tern::kernels::cuda {

bool self_attention_pays(Stream, const AttentionParams&, ConstView, ConstView) { return false; }

int64_t self_attention_workspace(Stream, const AttentionParams&, ConstView, ConstView) { return 0; }

void self_attention_forward(Stream, const AttentionParams&, ConstView, ConstView, ConstView, View, void*) {
  fail("self_attention_forward: only the CPU has it; call linear_forward and attention_forward");
}

}  // namespace tern::kernels::cuda
