#include "tern/core/profiler/nvtx.h"

#include <nvtx3/nvToolsExt.h>

namespace tern::cuda {

void nvtx_push(const char* name) { nvtxRangePushA(name); }
void nvtx_pop() { nvtxRangePop(); }

}  // namespace tern::cuda
