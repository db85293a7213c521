#pragma once
// How devices compute where there is a choice. ComputeSettings are CUDA's, of the whole process: on the CPU, and in a
// program without CUDA, they change nothing.

#include <string>

namespace tern {

struct ComputeSettings {
  /// fp32 matrix products, convolutions and recurrent layers may round their inputs to TF32 (10 bits of mantissa) for
  /// the tensor cores. It must not change between the forward and the backward pass of a recurrent layer.
  bool tf32 = false;
  /// true: the first call of each kind times its implementations, and later calls use the fastest: for a matrix product
  /// cuBLASLt's candidates, for a convolution cuDNN's deterministic engines and matrix products, for attention cuDNN
  /// and Tern's kernels. Timing waits for the stream, does not happen in captured steps, and allocates memory for
  /// results that are added to. false: the libraries' heuristics, and Tern's attention.
  bool autotune = false;
};

/// On the CPU: with true, arithmetic takes and gives 0 in place of denormal numbers, which many processors compute much
/// slower: ops of the calling thread, on whichever threads of the pool they run, as torch.set_flush_denormal. Off at
/// first, also in threads that exist before. Returns whether the processor can, which all with x86-64-v2 do.
bool set_flush_denormal(bool flush);

void set_compute_settings(const ComputeSettings& settings);
ComputeSettings compute_settings();

/// What autotune has chosen, and what restore_autotune_choices() took in, as text that another process can restore;
/// empty when nothing was.
std::string autotune_choices();
/// Uses these choices from now on for kinds that have not been seen yet, also with autotune off, on devices of the same
/// kind. Throws Error when the text is malformed or was made with another version of cuBLASLt or cuDNN, and in a
/// program without CUDA; what the other library takes is used all the same.
void restore_autotune_choices(const std::string& text);

}  // namespace tern
