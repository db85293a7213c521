#pragma once
// NCCL's functions in plain C++; the library is loaded on first use. Handles are ncclComm_t, streams cudaStream_t.
// Functions throw Error with NCCL's message when a call fails, or when the library is missing.

#include <string>

#include "tern/dist/collectives/call.h"
#include "tern/kernels/cuda/support/library.h"

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

/// Queues a call other than barrier on the stream. bool is reduced as the bytes 0 and 1.
void queue(void* group, const dist::Call& call, void* stream);

}  // namespace tern::cuda::nccl
