#include "tern/models/cli/program.h"

int main(int argc, char** argv) { return tern::cli::run_program({argv + 1, argv + argc}); }
