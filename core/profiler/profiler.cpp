#include "tern/core/profiler/profiler.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <mutex>
#include <set>
#include <utility>

#include "tern/core/device/backend.h"
#include "tern/core/memory/allocator.h"
#include "tern/core/profiler/device_profiler.h"
#include "tern/core/tensor.h"
#include "tern/kernels/base/check.h"

namespace tern {
namespace detail {

constinit std::atomic<uint32_t> profile_listeners{kEnvironmentUnread};

namespace {

/// The records of one thread in a session. Only stop() locks the mutex from another thread.
struct ThreadLog {
  uint64_t session = 0;
  size_t number = 0;
  std::mutex mutex;
  bool stopped = false;
  int64_t top = -1;  // the innermost open record
  ProfileThread thread;
};

}  // namespace

struct ProfileSession {
  ProfilerOptions options;
  uint64_t number = 0;
  int64_t begin_ns = 0;
  CachingAllocator* memory = nullptr;
  std::atomic<int64_t> recorded{0}, dropped{0};
  std::vector<std::shared_ptr<ThreadLog>> logs;  // appended under session_mutex
};

namespace {

std::mutex session_mutex;
std::shared_ptr<ProfileSession> running;  // guarded by session_mutex
std::atomic<uint64_t> running_number{0};  // number of `running`; 0: none
thread_local std::shared_ptr<ThreadLog> this_thread_log;
thread_local std::shared_ptr<ProfileSession> this_thread_session;

int64_t steady_nanoseconds() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

/// Stores names made at run time until the program ends.
const char* interned(const std::string& name) {
  static std::mutex mutex;
  static std::set<std::string> names;
  const std::lock_guard lock(mutex);
  return names.insert(name).first->c_str();
}

/// Checks once whether an NVTX tool is attached.
uint32_t read_environment() {
  const char* wanted = std::getenv("TERN_NVTX");
  const bool injected = std::getenv("NVTX_INJECTION64_PATH") != nullptr;
  const bool nvtx = cuda::in_this_program() && (injected || (wanted && std::string(wanted) == "1"));
  if (nvtx) profile_listeners.fetch_or(kNvtxListens);
  return profile_listeners.fetch_and(~kEnvironmentUnread) & ~kEnvironmentUnread;
}

/// This thread's log in the running session; null when no session runs.
ThreadLog* current_log() {
  const uint64_t number = running_number.load(std::memory_order_acquire);
  if (number == 0) return nullptr;
  if (this_thread_log && this_thread_log->session == number) return this_thread_log.get();
  const std::lock_guard lock(session_mutex);
  if (!running) return nullptr;
  auto log = std::make_shared<ThreadLog>();
  log->session = running->number;
  log->number = running->logs.size();
  log->thread.id = static_cast<int64_t>(syscall(SYS_gettid));
  log->thread.name = log->thread.id == getpid() ? "main" : "thread " + std::to_string(log->number);
  running->logs.push_back(log);
  this_thread_log = std::move(log);
  this_thread_session = running;
  return this_thread_log.get();
}

/// Calls body(record) for the innermost open range of this thread.
template <class Body>
void on_top(Body&& body) {
  if (!profiling()) return;
  ThreadLog* log = current_log();
  // When ranges are dropped, the innermost record is not the innermost range.
  if (!log || this_thread_session->dropped.load(std::memory_order_relaxed) > 0) return;
  const std::lock_guard lock(log->mutex);
  if (!log->stopped && log->top >= 0) body(log->thread.records[static_cast<size_t>(log->top)]);
}

/// Bytes of the distinct elements of a tensor.
double bytes_of(const Tensor& x) {
  double count = static_cast<double>(size_of(x.dtype()));
  for (int d = 0; d < x.dim(); ++d)
    if (x.strides()[d] != 0 || x.shape()[d] == 0) count *= static_cast<double>(x.shape()[d]);
  return count;
}

}  // namespace
}  // namespace detail

void ProfileRange::open(const std::string& name, RangeKind kind) {
  if (detail::profile_listeners.load(std::memory_order_relaxed) & detail::kEnvironmentUnread)
    if (detail::read_environment() == 0) return;
  open(name.empty() ? "root module" : detail::interned(name), kind);
}

void ProfileRange::open(const char* name, RangeKind kind) {
  uint32_t listeners = detail::profile_listeners.load(std::memory_order_relaxed);
  if (listeners & detail::kEnvironmentUnread) listeners = detail::read_environment();
  if (listeners & detail::kNvtxListens) {
    nvtx_ = true;
    cuda::nvtx_push(kind == RangeKind::kBackward ? detail::interned(std::string(name) + " backward") : name);
  }
  if (!(listeners & detail::kProfilerListens)) return;
  detail::ThreadLog* log = detail::current_log();
  if (!log) return;
  detail::ProfileSession& session = *detail::this_thread_session;
  if (session.recorded.fetch_add(1, std::memory_order_relaxed) >= session.options.max_ranges) {
    session.dropped.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const std::lock_guard lock(log->mutex);
  if (log->stopped) return;
  detail::ProfileRecord record;
  record.name = name;
  record.kind = kind;
  record.parent = log->top;
  index_ = static_cast<int64_t>(log->thread.records.size());
  log->thread.records.push_back(record);
  log->top = index_;
  session_ = log->session;
  if (session.options.device_profiler)
    session.options.device_profiler->open(detail::profile_range_id(log->number, index_));
  // Set last, so that the profiler's overhead counts for the enclosing range.
  log->thread.records.back().begin_ns = session.options.clock();
}

void ProfileRange::close() {
  if (nvtx_) cuda::nvtx_pop();
  detail::ThreadLog* log = detail::this_thread_log.get();
  if (session_ == 0 || !log || log->session != session_) return;
  detail::ProfileSession& session = *detail::this_thread_session;
  const int64_t now = session.options.clock();
  const std::lock_guard lock(log->mutex);
  if (log->stopped) return;
  detail::ProfileRecord& record = log->thread.records[static_cast<size_t>(index_)];
  record.end_ns = now;
  record.live_bytes = session.memory->statistics().live_bytes;
  log->top = record.parent;
  if (session.options.device_profiler)
    session.options.device_profiler->close(detail::profile_range_id(log->number, index_));
}

void ProfileRange::count_tensors(const Tensor* const* inputs, int input_count, const Tensor* outputs,
                                 size_t output_count) const {
  const auto shares = [](const Tensor& a, const Tensor& b) {
    return a.defined() && b.defined() && a.storage() == b.storage();
  };
  double bytes = 0;
  for (size_t o = 0; o < output_count; ++o) {
    bool view = false;
    for (int i = 0; i < input_count; ++i) view = view || shares(*inputs[i], outputs[o]);
    if (outputs[o].defined() && !view) bytes += detail::bytes_of(outputs[o]);
  }
  for (int i = 0; i < input_count; ++i) {
    if (!inputs[i]->defined()) continue;
    bool counted = false;
    for (size_t o = 0; o < output_count; ++o) counted = counted || shares(*inputs[i], outputs[o]);
    for (int k = 0; k < i; ++k)
      counted = counted || (shares(*inputs[k], *inputs[i]) && inputs[k]->raw_data() == inputs[i]->raw_data() &&
                            inputs[k]->shape() == inputs[i]->shape());
    if (!counted) bytes += detail::bytes_of(*inputs[i]);
  }
  detail::on_top([&](detail::ProfileRecord& record) {
    if (!record.bytes_given) record.bytes = bytes;
  });
}

void profile_flops(double flops, DType dtype) {
  detail::on_top([&](detail::ProfileRecord& record) {
    record.flops += flops;
    record.dtype = dtype;
  });
}

void profile_bytes(double bytes) {
  detail::on_top([&](detail::ProfileRecord& record) {
    record.bytes = bytes;
    record.bytes_given = true;
  });
}

Profiler::Profiler(const ProfilerOptions& options) : session_(std::make_shared<detail::ProfileSession>()) {
  static std::atomic<uint64_t> next{1};
  TERN_CHECK(options.max_ranges >= 0, "profiler: max_ranges must be >= 0, got ", options.max_ranges);
  session_->options = options;
  if (!options.clock) session_->options.clock = detail::steady_nanoseconds;
  session_->memory = &allocator(options.device);
  const std::lock_guard lock(detail::session_mutex);
  TERN_CHECK(!detail::running, "profiler: another one is running in this process; stop it first");
  session_->number = next++;
  if (options.device_profiler) options.device_profiler->start(session_->options.clock);
  session_->begin_ns = session_->options.clock();
  detail::running = session_;
  detail::running_number.store(session_->number, std::memory_order_release);
  detail::profile_listeners.fetch_or(detail::kProfilerListens);
}

namespace {
/// Ends the session: no range writes to its logs afterwards.
void end_session(detail::ProfileSession& session) {
  const std::lock_guard lock(detail::session_mutex);
  detail::profile_listeners.fetch_and(~detail::kProfilerListens);
  detail::running_number.store(0, std::memory_order_release);
  detail::running.reset();
  for (const auto& log : session.logs) {
    const std::lock_guard log_lock(log->mutex);
    log->stopped = true;
  }
}
}  // namespace

Profiler::~Profiler() {
  if (session_) end_session(*session_);
}

ProfileReport Profiler::stop() {
  TERN_CHECK(session_, "profiler: stop() was already called");
  const std::shared_ptr<detail::ProfileSession> session = std::exchange(session_, nullptr);
  const int64_t end_ns = session->options.clock();
  end_session(*session);
  const std::shared_ptr<DeviceProfiler> device = std::move(session->options.device_profiler);
  detail::DeviceTimeline timeline;
  if (device) timeline = device->finish();
  std::vector<detail::ProfileThread> threads;
  for (const auto& log : session->logs) threads.push_back(std::move(log->thread));
  return {std::move(threads),        std::move(timeline), device != nullptr,
          session->options.roofline, session->begin_ns,   end_ns,
          session->dropped};
}

}  // namespace tern
