#pragma once
// An interface for a second implementation of attention, which can replace Tern's kernels for some calls.

#include "tern/kernels/attention.h"

namespace tern::kernels::cuda {

/// `forward` and `backward` return false and change nothing for calls that Tern's kernels must compute. The workspace
/// sizes are computed without tensors and hence must cover every call that they may accept.
struct AttentionAlternative {
  int64_t (*forward_workspace)(Stream stream, const AttentionParams& params, DType dtype);
  bool (*forward)(Stream stream, const AttentionParams& params, ConstView q, ConstView k, ConstView v, View out,
                  View log_sum_exp, void* workspace);
  int64_t (*backward_workspace)(Stream stream, const AttentionParams& params, DType dtype);
  bool (*backward)(Stream stream, const AttentionParams& params, ConstView q, ConstView k, ConstView v, ConstView out,
                   ConstView dout, ConstView log_sum_exp, View dq, View dk, View dv, void* workspace);
};

/// Every later attention call first tries this alternative; null, the default: none. It must never be destroyed.
void set_attention_alternative(const AttentionAlternative* alternative);
const AttentionAlternative* attention_alternative();

/// Tern's kernels, which attention_forward() and attention_backward() call when there is no alternative.
void tern_attention_forward(Stream stream, const AttentionParams& params, ConstView q, ConstView k, ConstView v,
                            View out, View log_sum_exp);
void tern_attention_backward(Stream stream, const AttentionParams& params, ConstView q, ConstView k, ConstView v,
                             ConstView out, ConstView dout, ConstView log_sum_exp, View dq, View dk, View dv,
                             View dbias, void* workspace);

}  // namespace tern::kernels::cuda
