#pragma once
// The stand-in cuDNN, as tests see it: graphs of attention through the backend API. Every descriptor is checked
// (attributes, types, counts, finalised before use), the operations are computed one by one in double precision, and
// what has another form is CUDNN_STATUS_NOT_SUPPORTED.

#include <cstddef>
#include <cstdint>
#include <string>

namespace tern::standin {

/// Why the last call failed.
std::string cudnn_message();
/// Descriptors that live.
size_t live_cudnn_descriptors();
/// Workspace that plans ask for, and whether the first suggestion says that its bits may differ.
void set_cudnn_engines(int64_t workspace_bytes, bool first_is_nondeterministic);
/// Which suggestion the last execution used, from 0.
int last_cudnn_engine();

}  // namespace tern::standin
