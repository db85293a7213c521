// The index of weights split over several files, *.index.json.

#include "tern/core/io/safetensors.h"
#include "tern/tests/fuzz/state_file.h"

void tern::fuzz::try_input(std::string_view input) {
  static const bool written = [] {
    save_safetensors({{"a", ones({2, 3})}, {"b", ones({1})}}, (folder() / "one.safetensors").string());
    save_safetensors({{"c", ones({2})}}, (folder() / "two.safetensors").string());
    return true;
  }();
  require(written);
  write_file("model.safetensors.index.json", input);
  read([&] { touch(load_state_folder(folder().string())); });
}
