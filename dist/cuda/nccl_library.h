#pragma once
// NCCL's functions in plain C++; the library is loaded on first use. Handles are ncclComm_t, streams cudaStream_t.
// Functions throw Error with NCCL's message when a call fails, or when the library is missing.

#include <cstdint>
#include <string>

#include "tern/kernels/cuda/support/library.h"
#include "tern/kernels/types.h"

namespace tern::cuda::nccl {

kernels::cuda::SharedLibrary& library();
/// "2.27.3".
std::string version();

/// The identifier, created by one rank, with which all ranks of a group connect: 128 bytes.
std::string unique_id();
/// Joins a group on device `index`. Returns when all its ranks have called it.
void* connect(int index, const std::string& id, int ranks, int rank);
/// Waits for queued work.
void destroy(void* group) noexcept;
/// Queued work ends without a result.
void abort(void* group) noexcept;
/// The group's asynchronous error, or "".
std::string asynchronous_error(void* group);

enum class Reduction { kSum, kMean, kMax, kMin };

// Queued on the stream; counts are in elements. bool is reduced as the bytes 0 and 1.
void all_reduce(void* group, const void* from, void* to, int64_t count, DType dtype, Reduction op, void* stream);
/// `count`: elements of one rank's part, the result.
void reduce_scatter(void* group, const void* from, void* to, int64_t count, DType dtype, Reduction op, void* stream);
/// `count`: elements of one rank's part, the input.
void all_gather(void* group, const void* from, void* to, int64_t count, DType dtype, void* stream);
void broadcast(void* group, void* data, int64_t count, DType dtype, int root, void* stream);
void send(void* group, const void* data, int64_t count, DType dtype, int to, void* stream);
void receive(void* group, void* data, int64_t count, DType dtype, int from, void* stream);

}  // namespace tern::cuda::nccl
