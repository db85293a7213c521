#pragma once
// A second way to compute attention, which may take calls from Tern's own kernels.

#include "tern/kernels/attention.h"

namespace tern::kernels::cuda {

/// `forward` and `backward` return false for calls that they leave to Tern's kernels, having changed nothing. The
/// workspaces are asked for without tensors, hence for every call that they may take.
struct AttentionAlternative {
  int64_t (*forward_workspace)(Stream stream, const AttentionParams& params, DType dtype);
  bool (*forward)(Stream stream, const AttentionParams& params, ConstView q, ConstView k, ConstView v, View out,
                  View log_sum_exp, void* workspace);
  int64_t (*backward_workspace)(Stream stream, const AttentionParams& params, DType dtype);
  bool (*backward)(Stream stream, const AttentionParams& params, ConstView q, ConstView k, ConstView v, ConstView out,
                   ConstView dout, ConstView log_sum_exp, View dq, View dk, View dv, void* workspace);
};

/// From now on asked first; null: nobody is, as at first. It must live as long as the process.
void set_attention_alternative(const AttentionAlternative* alternative);
const AttentionAlternative* attention_alternative();

/// Tern's own kernels: what attention_forward() and attention_backward() do without an alternative.
void own_attention_forward(Stream stream, const AttentionParams& params, ConstView q, ConstView k, ConstView v,
                           View out, View log_sum_exp);
void own_attention_backward(Stream stream, const AttentionParams& params, ConstView q, ConstView k, ConstView v,
                            ConstView out, ConstView dout, ConstView log_sum_exp, View dq, View dk, View dv, View dbias,
                            void* workspace);

}  // namespace tern::kernels::cuda
