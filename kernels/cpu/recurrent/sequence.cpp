// The CPU has no library of recurrent layers: recurrent.cpp computes them.

#include "tern/kernels/recurrent/sequence.h"

#include "tern/kernels/base/check.h"

namespace tern::kernels::TERN_CPU {

RecurrentSequenceSizes recurrent_sequence_sizes(Stream, const RecurrentSequence&, bool) { return {}; }
bool recurrent_sequence_forward(Stream, const RecurrentSequence&, View, View, View, void*, void*) { return false; }
void recurrent_sequence_backward(Stream, const RecurrentSequence&, ConstView, const RecurrentSequenceGradients&, void*,
                                 void*) {
  fail("recurrent: the CPU has no library of whole sequences");
}

}  // namespace tern::kernels::TERN_CPU
