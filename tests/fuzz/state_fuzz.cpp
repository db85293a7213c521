// A checkpoint's state.json; the same input is also its checksums.json.

#include "tern/models/trainer/checkpoint.h"
#include "tern/tests/fuzz/fuzz.h"

void tern::fuzz::try_input(std::string_view text) {
  std::filesystem::create_directories(folder() / "checkpoints" / "step-00000001");
  write_file("checkpoints/step-00000001/checksums.json", text);
  write_file("state.json", text);
  read([&] { models::load_checkpoint_position(folder().string()); });
  read([&] { models::newest_checkpoint((folder() / "checkpoints").string(), {}); });
}
