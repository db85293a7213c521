#include "tern/core/device/capture_state.h"

#include <atomic>

#include "tern/kernels/base/check.h"

namespace tern::detail {
namespace {

thread_local bool recording = false;
std::atomic<uint64_t> moves = 0;

}  // namespace

bool is_recording() { return recording; }

void forbid_while_recording(const char* what) {
  TERN_CHECK(!recording, what,
             " is not possible in a captured step: replays do not pass through the host. Return the tensor from the "
             "step and read it outside, or pass what comes from the host as an input");
}

void set_recording(bool value) { recording = value; }

void note_moved_weights() { ++moves; }

uint64_t moves_of_weights() { return moves; }

}  // namespace tern::detail
