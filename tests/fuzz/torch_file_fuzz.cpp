// PyTorch files, zip and legacy format, as `tern` loads weights from them.

#include "tern/tests/fuzz/state_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tern;
  const std::string path = fuzz::write_file("input.pt", fuzz::text_of(data, size));
  for (const bool whole : {false, true}) fuzz::read([&] { fuzz::touch(load_state_file(path, {.whole = whole})); });
  return 0;
}
