#pragma once
// Whether the calling thread records a step (core/autograd/captured_step.h): what needs the host is then not possible;
// and whether a recorded step still works on the memory of the weights.

#include <cstdint>

namespace tern::detail {

/// True while this thread records a step.
bool is_recording();
/// Throws Error "<what> is not possible in a captured step: ..." while this thread records one.
void forbid_while_recording(const char* what);
/// For CapturedStep alone.
void set_recording(bool value);

/// To be called when tensors of a device that live on have got other memory, as nn::Module::to gives weights: a step
/// recorded before would go on with what they have left.
void note_moved_weights();
/// How often that was.
uint64_t moves_of_weights();

}  // namespace tern::detail
