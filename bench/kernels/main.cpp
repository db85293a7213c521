// tern-bench-kernels: the rows of all files of this folder.

#include "tern/bench/benchmark.h"

int main(int argc, char** argv) { return tern::bench::run(argc, argv); }
