// Safetensors files. The first byte selects whether the length before the header is corrected.

#include <cstring>

#include "tern/core/io/safetensors.h"
#include "tern/tests/fuzz/state_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tern;
  if (size < 1) return 0;
  std::string bytes(fuzz::text_of(data + 1, size - 1));
  if (data[0] % 2 == 1 && bytes.size() > 8) {
    const uint64_t end = bytes.rfind('}'), length = end == std::string::npos || end < 8 ? 0 : end - 7;
    std::memcpy(bytes.data(), &length, sizeof length);
  }
  const std::string path = fuzz::write_file("input.safetensors", bytes);
  fuzz::read([&] {
    for (const NamedTensor& entry : load_safetensors(path).tensors) fuzz::touch(entry.tensor);
  });
  fuzz::read([&] { fuzz::touch(load_state_file(path)); });
  return 0;
}
