#pragma once
// The tests' interface to the stand-in cuDNN: graphs of attention through the backend API. Every descriptor is checked
// (attributes, types, counts, finalised before use) and the operations are computed one by one in double precision;
// graphs of another form give CUDNN_STATUS_NOT_SUPPORTED.

#include <cstddef>
#include <cstdint>
#include <string>

namespace tern::standin {

/// The reason for the last failed call.
std::string cudnn_message();
/// Sets the workspace size of plans, and whether the first suggestion is marked as nondeterministic.
void set_cudnn_engines(int64_t workspace_bytes, bool first_is_nondeterministic);
/// The index of the suggestion that the last execution used, from 0.
int last_cudnn_engine();

}  // namespace tern::standin
