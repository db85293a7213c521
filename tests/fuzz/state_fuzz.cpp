// A checkpoint's state.json; the same input is also its checksums.json.

#include "tern/models/trainer/checkpoint.h"
#include "tern/tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tern;
  const std::string_view text = fuzz::text_of(data, size);
  std::filesystem::create_directories(fuzz::folder() / "checkpoints" / "step-00000001");
  fuzz::write_file("checkpoints/step-00000001/checksums.json", text);
  fuzz::write_file("state.json", text);
  fuzz::read([&] { models::load_checkpoint_position(fuzz::folder().string()); });
  fuzz::read([&] { models::newest_checkpoint((fuzz::folder() / "checkpoints").string(), {}); });
  return 0;
}
