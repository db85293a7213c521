#include <dnnl.h>

#include <cstdio>

#include "tern/kernels/gemm.h"

namespace tern::kernels::TERN_CPU {

const char* gemm_library(Stream) {
  static char text[32] = "";
  const dnnl_version_t* version = dnnl_version();
  std::snprintf(text, sizeof text, "oneDNN %d.%d.%d", version->major, version->minor, version->patch);
  return text;
}

}  // namespace tern::kernels::TERN_CPU
