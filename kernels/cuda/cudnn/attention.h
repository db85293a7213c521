#pragma once
// cuDNN's fused attention, which replaces Tern's kernels where --autotune has measured it to be faster. This header
// needs no CUDA header; the functions exist where TERN_CUDA is on.
//
// cuDNN supports self-attention on packed sequences in bf16 and fp16, head_dim a multiple of 8 up to 128, as many key
// heads as query heads, causal or not; no dropout (Tern's masks come from its keyed generator), window, bias or key
// mask. Tern's kernels are used until autotune has timed both, once for each kind of call: no better rule has been
// measured yet. Backward is the variant without atomic additions, so that results are always the same bits.

#include <string>

namespace tern::kernels::cuda {

/// on: for each new kind of call both implementations are timed, outside stream captures, and the faster one is used
/// from then on. Without cuDNN 9.10 or newer nothing is timed. Off by default. Timing waits for the stream.
void set_attention_autotune(bool on);

/// The choices so far as text that another process can restore; empty when there are none.
std::string attention_choices();
/// Uses these choices from now on, also with autotune off, on devices of the same kind. Throws Error when the text is
/// malformed or was made with another version of cuDNN, and then changes nothing.
void restore_attention_choices(const std::string& text);

}  // namespace tern::kernels::cuda
