// PyTorch files, zip and legacy format, as `tern` loads weights from them.

#include "tern/tests/fuzz/state_file.h"

void tern::fuzz::try_input(std::string_view input) {
  const std::string path = write_file("input.pt", input);
  for (const bool whole : {false, true}) read([&] { touch(load_state_file(path, {.whole = whole})); });
}
