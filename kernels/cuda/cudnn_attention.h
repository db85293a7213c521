#pragma once
// cuDNN's fused attention in place of Tern's own kernels, where --autotune has found it faster. A settings header: no
// CUDA header is needed, and the functions exist where TERN_CUDA is on.
//
// cuDNN takes: self-attention on packed sequences, bf16 and fp16, head_dim a multiple of 8 up to 128, as many key heads
// as query heads, causal or not; no dropout (Tern's masks come from its own keyed generator), window, bias or key mask.
// The rule: Tern's kernels, until autotune has timed both, once for each kind of call; no GPU has measured a better
// rule yet. Backward is the variant without atomic additions, so that results are the same bits every time.

#include <string>

#include "tern/kernels/cuda/support/library.h"

namespace tern::kernels::cuda {

/// Looks for the library if that has not been done; does not throw.
const LibraryInfo& cudnn_info();

/// Whether calls of a kind not seen yet are timed by both, outside stream captures; the faster one is used from then
/// on. Without cuDNN 9.10 or newer nothing is timed. Off at first. Timing waits for the stream.
void set_attention_autotune(bool on);

/// What was chosen, as text that another process can restore; empty when nothing was.
std::string attention_choices();
/// Uses these choices from now on, also with autotune off, on devices of the same kind. Throws Error when the text is
/// malformed or was made with another version of cuDNN; nothing is taken in then.
void restore_attention_choices(const std::string& text);

}  // namespace tern::kernels::cuda
