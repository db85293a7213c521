#include <execinfo.h>

#include <cstdlib>

#include "tern/models/cli/program.h"

int main(int argc, char** argv) {
  // One buffer size of cuBLAS, with which cuDNN's recurrent layers give the same bits in every run
  // (kernels/cuda/cudnn/recurrent.h). It must be set before a library of CUDA is loaded.
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
  // glibc opens its unwinder when an exception first passes through it, as from std::call_once, and aborts when there
  // is no memory for that. Now there is.
  void* frame = nullptr;
  backtrace(&frame, 1);
  return tern::cli::run_program({argv + 1, argv + argc});
}
