#pragma once
// NCCL's functions in plain C++, as dist asks for them; the library is loaded when it is first needed. Handles are
// ncclComm_t, streams cudaStream_t. Functions throw Error with NCCL's own words when a call fails, or when the library
// is missing.

#include <cstdint>
#include <string>

#include "tern/kernels/cuda/support/library.h"
#include "tern/kernels/types.h"

namespace tern::cuda::nccl {

kernels::cuda::SharedLibrary& library();
/// "2.27.3".
std::string version();

/// What one rank makes and all of a group need to find each other: 128 bytes.
std::string unique_id();
/// Joins a group on device `index`. Returns when all its ranks have called it.
void* connect(int index, const std::string& id, int ranks, int rank);
/// Waits for what is queued.
void destroy(void* group) noexcept;
/// What is queued ends without a result.
void abort(void* group) noexcept;
/// What has gone wrong since, or "".
std::string asynchronous_error(void* group);

enum class Reduction { kSum, kMean, kMax, kMin };

// Queued on the stream; counts are elements. bool is reduced as the bytes 0 and 1.
void all_reduce(void* group, const void* from, void* to, int64_t count, DType dtype, Reduction op, void* stream);
/// `count`: of one rank's part, the result.
void reduce_scatter(void* group, const void* from, void* to, int64_t count, DType dtype, Reduction op, void* stream);
/// `count`: of one rank's part, the input.
void all_gather(void* group, const void* from, void* to, int64_t count, DType dtype, void* stream);
void broadcast(void* group, void* data, int64_t count, DType dtype, int root, void* stream);
void send(void* group, const void* data, int64_t count, DType dtype, int to, void* stream);
void receive(void* group, void* data, int64_t count, DType dtype, int from, void* stream);

}  // namespace tern::cuda::nccl
