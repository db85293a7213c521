#pragma once
// The stand-in of cuBLASLt, as tests see it. It takes what NVIDIA's documentation allows and computes it on the host
// when the stream's turn comes; what the library would reject, or what it is not documented to do, is rejected here.

#include <cstddef>
#include <cstdint>
#include <string>

namespace tern::standin {

/// Why the last call that failed was rejected; "" when none has.
std::string cublaslt_message();
/// Descriptors (of operations, layouts, preferences) and handles that have not been destroyed.
size_t live_cublaslt_objects();
/// The algorithms that the heuristic may return, in the order in which it holds them for fast.
enum class MatmulAlgorithm : uint64_t {
  kHuge = 1,  // needs 64 MiB of workspace
  kSplit,     // the inner dimension in four parts, added in fp32; long inner dimensions and small results alone
  kInPlace,   // the same in D itself, in another order at every call
  kAligned,   // pointers, leading dimensions and batch strides are multiples of 16 bytes
  kGeneral,   // everything
};
/// Of the last product that was queued; 0 before the first.
MatmulAlgorithm last_matmul_algorithm();
/// The last product's epilogue (cublasLtEpilogue_t) and compute type (cublasComputeType_t).
int last_matmul_epilogue();
int last_matmul_compute_type();
/// Makes an algorithm take `milliseconds` longer, for tests of measured choices; 0 undoes it.
void slow_down(MatmulAlgorithm algorithm, int milliseconds);

}  // namespace tern::standin
