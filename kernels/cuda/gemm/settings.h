#pragma once
// Process-wide settings of matrix products on CUDA by cuBLASLt. This header needs no CUDA header; the functions exist
// where TERN_CUDA is on (kernels/kernel.h).

#include <string>

namespace tern::kernels::cuda {

/// Whether fp32 products may round their inputs to TF32 (10 mantissa bits) for the tensor cores. Off by default: fp32
/// is computed in fp32.
void set_tf32(bool on);
bool tf32();

/// on: for each new kind of product the algorithm is chosen by timing cuBLASLt's candidates on the device, but not
/// inside a stream capture. Off by default: cuBLASLt's fixed heuristic chooses. Timing allocates memory for the result
/// when the product adds to its output, and waits for the stream.
void set_autotune(bool on);
bool autotune();

/// The choices made by autotune and those restored by restore_gemm_choices(), as text that another process can restore;
/// empty when there are none.
std::string gemm_choices();
/// Uses these choices from now on for new kinds of product, also with autotune off, on devices of the same kind. Throws
/// Error when the text is malformed or was made with another version of cuBLASLt, and then changes nothing.
void restore_gemm_choices(const std::string& text);

}  // namespace tern::kernels::cuda
