#pragma once
// The tests' interface to the stand-in cuDNN: graphs of attention and of convolutions through the backend API, and
// recurrent layers through the RNN API. Every descriptor is checked (attributes, types, counts, finalised before use)
// and the operations are computed one by one in double precision; graphs of another form give
// CUDNN_STATUS_NOT_SUPPORTED.

#include <cstddef>
#include <cstdint>
#include <string>

namespace tern::standin {

/// The reason for the last failed call.
std::string cudnn_message();
/// Sets the workspace size of plans, and whether the first suggestion for attention is marked as nondeterministic. Of
/// the five for convolutions the first is so always; the second rounds fp32 inputs to TF32 or, for 16 bits, is
/// Winograd's; the third sums in 16 bits; the others are without a note.
void set_cudnn_engines(int64_t workspace_bytes, bool first_is_nondeterministic);
/// Which graphs of convolutions, or recurrent layers, are not supported.
/// kEnds: what follows the sums. kWideGradients: those of a weight in fp32, from 16 bits. kRecurrentLayers: their
/// descriptor; kRecurrentCalls: the forward pass.
enum class CudnnRefuses { kNothing, kEnds, kWideGradients, kConvolutions, kRecurrentLayers, kRecurrentCalls };
void set_cudnn_refuses(CudnnRefuses what);
/// The index of the suggestion that the last execution used, from 0.
int last_cudnn_engine();
/// The number of operations in its graph.
int last_cudnn_operations();

/// The last recurrent layer that ran forward: cudnnMathType_t and cudnnRNNDataLayout_t.
struct RecurrentCall {
  int math = -1, layout = -1;
  bool training = false;
};
RecurrentCall last_recurrent_call();
/// Descriptors of the RNN API that were made and not destroyed.
int live_recurrent_descriptors();

}  // namespace tern::standin
