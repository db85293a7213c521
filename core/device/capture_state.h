#pragma once
// Whether the calling thread records a step (core/autograd/captured_step.h): what needs the host is then not possible.

namespace tern::detail {

/// True while this thread records a step.
bool is_recording();
/// Throws Error "<what> is not possible in a captured step: ..." while this thread records one.
void forbid_while_recording(const char* what);
/// For CapturedStep alone.
void set_recording(bool value);

}  // namespace tern::detail
