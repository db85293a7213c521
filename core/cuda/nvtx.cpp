#include <nvtx3/nvToolsExt.h>

#include "tern/core/device/backend.h"

namespace tern::cuda {

void nvtx_push(const char* name) { nvtxRangePushA(name); }
void nvtx_pop() { nvtxRangePop(); }

}  // namespace tern::cuda
