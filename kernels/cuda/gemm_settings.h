#pragma once
// How cuBLASLt computes matrix products on CUDA: settings of the whole process. No CUDA header is needed here; the
// functions exist where TERN_CUDA is on (kernels/kernel.h).

#include <string>

namespace tern::kernels::cuda {

/// Whether fp32 products may round their inputs to TF32 (10 mantissa bits) for the tensor cores. Off at first: fp32
/// is computed in fp32.
void set_tf32(bool on);
bool tf32();

/// Whether the algorithm for a product that has not been seen yet is chosen by timing cuBLASLt's candidates on the
/// device, once for each kind of product; not inside a stream capture. Off at first: then cuBLASLt's fixed heuristic
/// chooses. Timing allocates memory for the result when the product adds to what is there, and waits for the stream.
void set_autotune(bool on);
bool autotune();

/// What autotune has chosen, and what restore_gemm_choices() took in, as text that another process can restore;
/// empty when nothing was.
std::string gemm_choices();
/// Uses these choices from now on for products that have not been seen yet, also with autotune off, on devices of the
/// same kind. Throws Error when the text is malformed or was made with another version of cuBLASLt; nothing is taken
/// in then.
void restore_gemm_choices(const std::string& text);

}  // namespace tern::kernels::cuda
