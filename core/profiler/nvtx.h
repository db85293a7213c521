#pragma once
// NVTX ranges of the calling thread, for Nsight Systems and other tools. Without a tool a call does nothing.

namespace tern::cuda {

void nvtx_push(const char* name);
void nvtx_pop();

}  // namespace tern::cuda
