#include "tern/core/device/capture_state.h"

#include "tern/kernels/base/check.h"

namespace tern::detail {
namespace {

thread_local bool recording = false;

}  // namespace

bool is_recording() { return recording; }

void forbid_while_recording(const char* what) {
  TERN_CHECK(!recording, what,
             " is not possible in a captured step: replays do not pass through the host. Return the tensor from the "
             "step and read it outside, or pass what comes from the host as an input");
}

void set_recording(bool value) { recording = value; }

}  // namespace tern::detail
