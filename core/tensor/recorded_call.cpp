#include "tern/core/tensor/recorded_call.h"

namespace tern::detail {
namespace {
thread_local TraceSink* sink_of_thread = nullptr;
}

TraceSink* active_trace() { return sink_of_thread; }
TraceScope::TraceScope(TraceSink* sink) : before_(std::exchange(sink_of_thread, sink)) {}
TraceScope::~TraceScope() { sink_of_thread = before_; }

}  // namespace tern::detail
