#pragma once
// The tests' interface to the stand-in cuBLASLt. It accepts what NVIDIA's documentation allows and computes it on the
// host when the stream reaches it; calls that the library would reject or does not document are rejected.

#include <cstddef>
#include <cstdint>
#include <string>

namespace tern::standin {

/// The reason for the last rejected call; "" if there was none.
std::string cublaslt_message();
/// Number of existing descriptors (of operations, layouts, preferences) and handles.
size_t live_cublaslt_objects();
/// The algorithms that the heuristic can return, in the order of their expected speed.
enum class MatmulAlgorithm : uint64_t {
  kHuge = 1,  // needs 64 MiB of workspace
  kSplit,     // the inner dimension in four parts, added in fp32; only for long inner dimensions and small results
  kInPlace,   // the same, added in D and in a different order at every call
  kAligned,   // requires pointers, leading dimensions and batch strides that are multiples of 16 bytes
  kGeneral,   // supports every product
};
/// The algorithm of the last queued product; 0 before the first.
MatmulAlgorithm last_matmul_algorithm();
/// The last product's epilogue (cublasLtEpilogue_t) and compute type (cublasComputeType_t).
int last_matmul_epilogue();
int last_matmul_compute_type();
/// Makes an algorithm take `milliseconds` longer, for tests of timed choices; 0 removes the delay.
void slow_down(MatmulAlgorithm algorithm, int milliseconds);

}  // namespace tern::standin
