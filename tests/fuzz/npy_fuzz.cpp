// NumPy's files: archives where the input begins as a zip archive, otherwise single arrays.

#include "tern/core/io/npy.h"
#include "tern/tests/fuzz/state_file.h"

void tern::fuzz::try_input(std::string_view input) {
  const std::string path = write_file("input.npy", input);
  read([&] { touch(load_npy(path)); });
  read([&] {
    for (const NamedTensor& entry : load_npz(path).tensors) touch(entry.tensor);
  });
  read([&] { touch(load_state_file(path)); });
}
