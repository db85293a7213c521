#include <cstdlib>

#include "tern/models/cli/program.h"

int main(int argc, char** argv) {
  // One buffer size of cuBLAS, with which cuDNN's recurrent layers give the same bits in every run
  // (kernels/cuda/cudnn/recurrent.h). It must be set before a library of CUDA is loaded.
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
  return tern::cli::run_program({argv + 1, argv + argc});
}
