#include "tern/dist/collectives/nccl.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "tern/core/device/backend.h"
#include "tern/core/memory/stream.h"
#include "tern/dist/cuda/nccl_library.h"

namespace tern::dist::nccl {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kWatchInterval = std::chrono::milliseconds(100);
constexpr size_t kMaxWatched = 4096;  // beyond this many, finished calls are dropped before their deadline

/// A queued call; done when the device has passed the event.
class QueuedCall final : public Work::State {
 public:
  QueuedCall(std::shared_ptr<Session> session, Device device)
      : session_(std::move(session)), device_(device), event_(device) {}
  void wait() override {
    if (session_->has_failed()) throw PeerError(session_->failure());
    event_.make_wait(current_stream(device_));
  }
  bool done() override { return !captured_ && event_.done(); }
  void record(kernels::Stream stream, bool captured) {
    captured_ = captured;
    event_.record(stream);
  }

 private:
  std::shared_ptr<Session> session_;
  Device device_;
  Event event_;
  bool captured_ = false;
};

/// A group's NCCL communicator, and a thread that aborts it on a failure or timeout: NCCL's kernels would spin forever.
class Handle {
 public:
  Handle(std::shared_ptr<Session> session, std::string name, std::vector<int> ranks, void* comm)
      : session_(std::move(session)), name_(std::move(name)), ranks_(std::move(ranks)), comm_(comm) {
    thread_ = std::thread([this] { watch(); });
  }
  ~Handle() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    thread_.join();
    // Destroying waits for queued work, which never completes after a rank has failed.
    if (comm_) (session_->has_failed() ? cuda::nccl::abort : cuda::nccl::destroy)(comm_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  /// Runs f(comm) unless the group was aborted, and watches the call for a timeout if `watched`.
  template <class F>
  void queue(const Call& call, const std::shared_ptr<QueuedCall>& state, bool watched, F&& f) {
    std::lock_guard<std::mutex> lock(mutex_);
    check();
    f(comm_);
    if (!watched) return;
    const auto timeout = std::chrono::duration<double>(session_->options().timeout_seconds);
    watched_.push_back({state, Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout), call.number,
                        call.is_pairwise()
                            ? detail::concatenate(name_of(call.operation), " with rank ", call.peer, ", ", call.text())
                            : call.text(),
                        call.is_pairwise()});
    while (watched_.size() > kMaxWatched && watched_.front().state->done()) watched_.pop_front();
  }

  /// Throws PeerError if a failure of the group has been detected: results may be missing then.
  void check_now() {
    std::lock_guard<std::mutex> lock(mutex_);
    check();
  }

 private:
  void check() {
    if (comm_) note_asynchronous_error();
    if (session_->has_failed()) throw PeerError(session_->failure());
  }
  void note_asynchronous_error() {
    if (const std::string error = cuda::nccl::asynchronous_error(comm_); !error.empty())
      session_->set_failure("group " + name_ + ": NCCL: " + error + "; a rank has failed, or the connection to it");
  }

  struct Watched {
    std::shared_ptr<QueuedCall> state;
    Clock::time_point deadline;
    int64_t number;
    std::string text;
    bool pairwise;
  };

  void watch() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!stopping_ && comm_) {
      wake_.wait_for(lock, kWatchInterval, [this] { return stopping_; });
      if (stopping_) return;
      try {
        look(lock);
      } catch (const std::exception& error) {  // the device is lost
        session_->set_failure(error.what());
      }
      if (session_->has_failed() && comm_) cuda::nccl::abort(std::exchange(comm_, nullptr));
    }
  }

  void look(std::unique_lock<std::mutex>& lock) {
    note_asynchronous_error();
    // An event is queried only at its deadline.
    while (!watched_.empty() && Clock::now() > watched_.front().deadline) {
      const Watched first = watched_.front();
      if (first.state->done()) {
        watched_.pop_front();
        continue;
      }
      lock.unlock();  // other threads may queue meanwhile
      session_->set_failure(first.pairwise ? detail::concatenate("group ", name_, ": ", first.text, ", message ",
                                                                 first.number, " is not complete within ",
                                                                 session_->options().timeout_seconds, " s")
                                           : session_->describe_missing(name_, ranks_, first.number, first.text));
      lock.lock();
      return;
    }
  }

  std::shared_ptr<Session> session_;
  std::string name_;
  std::vector<int> ranks_;
  std::mutex mutex_;
  std::condition_variable wake_;
  void* comm_;  // null: aborted
  std::deque<Watched> watched_;
  bool stopping_ = false;
  std::thread thread_;
};

/// cuda::nccl::connect() never returns if another rank has failed. It therefore runs in a thread, which is detached in
/// that case.
void* join(const Session& session, const std::string& name, int index, const std::string& id, int size, int rank) {
  struct Joining {
    std::mutex mutex;
    std::condition_variable changed;
    bool ended = false, abandoned = false;
    void* comm = nullptr;
    std::exception_ptr error;
  };
  const auto joining = std::make_shared<Joining>();
  std::thread([=] {
    void* comm = nullptr;
    std::exception_ptr error;
    try {
      comm = cuda::nccl::connect(index, id, size, rank);
    } catch (...) {
      error = std::current_exception();
    }
    std::lock_guard<std::mutex> lock(joining->mutex);
    joining->ended = true;
    joining->comm = comm;
    joining->error = error;
    if (joining->abandoned && comm) cuda::nccl::abort(comm);
    joining->changed.notify_all();
  }).detach();
  std::unique_lock<std::mutex> lock(joining->mutex);
  const double seconds = session.options().timeout_seconds;
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  const auto give_up = [&](const std::string& why) {
    joining->abandoned = true;
    throw PeerError(why);
  };
  while (!joining->changed.wait_for(lock, kWatchInterval, [&] { return joining->ended; })) {
    if (session.has_failed()) give_up(session.failure());
    if (Clock::now() > deadline)
      give_up(detail::concatenate("group ", name, ": NCCL has not connected the ranks within ", seconds,
                                  " s: the network is slow or broken, NCCL_DEBUG=INFO shows more; TERN_DIST_TIMEOUT "
                                  "sets the seconds"));
  }
  if (joining->error) std::rethrow_exception(joining->error);
  return joining->comm;
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(const std::string& name, std::vector<int> world_ranks, int rank, Device device,
                   std::shared_ptr<Session> session)
      : Communicator(name, std::move(world_ranks), rank, device, std::move(session)), stream_(device) {
    handle_ = std::make_unique<Handle>(this->session(), name, this->world_ranks(), connect());
  }

  void barrier() override {
    begin_barrier();
    const Tensor one = zeros({1}, {.dtype = uint8, .device = device()});
    Call call{.operation = Operation::kAllReduce, .input = one, .output = one, .op = ReduceOp::kMax};
    start(call).wait();
    try {
      current_stream_synchronize();
    } catch (const DeviceError&) {
      handle_->check_now();  // throws the more specific error of a failed rank
      throw;
    }
    handle_->check_now();
  }

 protected:
  void settle() override {
    if (!cuda::is_capturing(current_stream(device()).handle)) synchronize(device());
  }

  Work start(const Call& call) override {
    const kernels::Stream current = current_stream(device()), group_stream = stream_.handle();
    Event before(device());
    before.record(current);
    before.make_wait(group_stream);
    auto state = std::make_shared<QueuedCall>(session(), device());
    const bool captured = cuda::is_capturing(group_stream.handle);
    handle_->queue(call, state, !captured, [&](void* comm) {
      cuda::nccl::queue(comm, call, group_stream.handle);
      for (const Tensor& tensor : {call.input, call.output})
        if (tensor.defined() && tensor.storage()) tensor.storage()->record_stream(group_stream);
      state->record(group_stream, captured);
    });
    return Work(std::move(state));
  }

  std::shared_ptr<Communicator> make_group(const std::string& name, std::vector<int> world_ranks, int rank) override {
    return std::make_shared<NcclCommunicator>(name, std::move(world_ranks), rank, device(), session());
  }

 private:
  void* connect() {
    settle();  // other ranks may wait for work queued here before they call make_group
    const std::string id = rank() == 0 ? cuda::nccl::unique_id() : "";
    const auto all = session()->exchange("group " + name(), world_ranks(), id);
    return join(*session(), name(), device().index, all[0], size(), rank());
  }

  void current_stream_synchronize() const {
    Event event(device());
    event.record();
    event.synchronize();
  }

  Stream stream_;
  std::unique_ptr<Handle> handle_;
};

}  // namespace

std::shared_ptr<Communicator> make_world_group(std::shared_ptr<Session> session, Device device) {
  std::vector<int> ranks;
  for (int r = 0; r < session->member().size; ++r) ranks.push_back(r);
  const int rank = session->member().rank;
  return std::make_shared<NcclCommunicator>("world", std::move(ranks), rank, device, std::move(session));
}

std::string version() { return "NCCL " + cuda::nccl::version(); }
const kernels::cuda::LibraryInfo& library() { return cuda::nccl::library().info(); }

}  // namespace tern::dist::nccl
