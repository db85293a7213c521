// Safetensors files. The first byte selects whether the length before the header is corrected.

#include <cstring>

#include "tern/core/io/safetensors.h"
#include "tern/tests/fuzz/state_file.h"

void tern::fuzz::try_input(std::string_view input) {
  if (input.empty()) return;
  const auto first = static_cast<uint8_t>(input[0]);
  std::string bytes(input.substr(1));
  if (first % 2 == 1 && bytes.size() > 8) {
    const uint64_t end = bytes.rfind('}'), length = end == std::string::npos || end < 8 ? 0 : end - 7;
    std::memcpy(bytes.data(), &length, sizeof length);
  }
  const std::string path = write_file("input.safetensors", bytes);
  read([&] {
    for (const NamedTensor& entry : load_safetensors(path).tensors) touch(entry.tensor);
  });
  read([&] { touch(load_state_file(path)); });
}
