// Kernels that only the CPU has: each saves a way through memory between two others, which a GPU takes in any case.

#include "tern/core/check.h"
#include "tern/kernels/attention.h"
#include "tern/kernels/gemm.h"

namespace tern::kernels::cuda {
namespace {

[[noreturn]] void refuse(const char* kernel) {
  fail(kernel, ": only the CPU has this kernel; ask whether it pays first");
}

}  // namespace

bool self_attention_pays(Stream, const AttentionParams&, ConstView, ConstView) { return false; }
int64_t self_attention_workspace(Stream, const AttentionParams&, ConstView, ConstView) { return 0; }
void self_attention_forward(Stream, const AttentionParams&, ConstView, ConstView, ConstView, View, void*) {
  refuse("self_attention_forward");
}

bool linear_norm_pays(Stream, ConstView, ConstView) { return false; }
int64_t linear_norm_workspace(Stream, ConstView, ConstView) { return 0; }
void linear_norm(Stream, ConstView, ConstView, ConstView, const ResidualNorm&, void*) { refuse("linear_norm"); }

bool feed_forward_norm_pays(Stream, ConstView, ConstView, ConstView) { return false; }
int64_t feed_forward_norm_workspace(Stream, ConstView, ConstView, ConstView) { return 0; }
void feed_forward_norm(Stream, ConstView, ConstView, ConstView, Activation, ConstView, ConstView, const ResidualNorm&,
                       void*) {
  refuse("feed_forward_norm");
}

}  // namespace tern::kernels::cuda
