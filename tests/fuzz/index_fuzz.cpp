// The index of weights split over several files, *.index.json.

#include "tern/core/io/safetensors.h"
#include "tern/tests/fuzz/state_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tern;
  static const bool written = [] {
    save_safetensors({{"a", ones({2, 3})}, {"b", ones({1})}}, (fuzz::folder() / "one.safetensors").string());
    save_safetensors({{"c", ones({2})}}, (fuzz::folder() / "two.safetensors").string());
    return true;
  }();
  fuzz::require(written);
  fuzz::write_file("model.safetensors.index.json", fuzz::text_of(data, size));
  fuzz::read([&] { fuzz::touch(load_state_folder(fuzz::folder().string())); });
  return 0;
}
