#include "tern/dist/mpi/engine.h"

#include <dlfcn.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace tern::dist::mpi {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kLibraryFile = "libtern_mpi.so";

std::vector<std::string> library_candidates() {
  if (const char* named = std::getenv("TERN_MPI_LIBRARY"); named && *named) return {named};
  std::vector<std::string> candidates;
  Dl_info here;  // of libtern.so, where this function is in it
  if (dladdr(reinterpret_cast<const void*>(&load_functions), &here) != 0 && here.dli_fname != nullptr)
    candidates.push_back((fs::path(here.dli_fname).parent_path() / kLibraryFile).string());
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) candidates.push_back((program.parent_path() / ".." / "lib" / kLibraryFile).string());
  candidates.emplace_back(kLibraryFile);
  return candidates;
}

/// The thread polls MPI without a pause for as long as a message between two cores takes, then with pauses of an eighth
/// of the time that it has waited: the delay is small compared with the message's own time, and waiting for a slow link
/// or for a rank that computes uses little processor time. It sleeps and never yields: on a loaded machine every yield
/// costs a time slice of another program.
constexpr auto kBusyTime = std::chrono::microseconds(30);
constexpr Clock::duration kShortestPause = std::chrono::microseconds(10),
                          kLongestPause = std::chrono::microseconds(250);
constexpr auto kTimeCheck = std::chrono::milliseconds(50);

}  // namespace

const Functions& load_functions() {
  static const Functions* const functions = [] {
    std::string reasons;
    for (const std::string& file : library_candidates()) {
      std::error_code error;
      if (file.find('/') != std::string::npos && !fs::exists(file, error)) {
        reasons += (reasons.empty() ? "" : "; ") + file + ": no such file";
        continue;
      }
      // GLOBAL: MPI's own plug-ins look for its symbols in the process.
      void* const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
      void* const found = handle ? dlsym(handle, kFunctionsName) : nullptr;
      if (found) {
        const Functions* table = reinterpret_cast<const Functions* (*)()>(found)();
        if (table->version == kFunctionsVersion) return table;
        reasons += (reasons.empty() ? "" : "; ") + file + ": is of another version of Tern";
        continue;
      }
      const char* const reason = dlerror();
      reasons += (reasons.empty() ? "" : "; ") + (reason ? std::string(reason) : file + ": cannot be loaded");
    }
    fail("MPI is needed to train with several processes on the CPU, and ", kLibraryFile,
         " could not be loaded: install OpenMPI (Debian: apt-get install libopenmpi-dev openmpi-bin) and build Tern "
         "again, with TERN_MPI=ON (",
         reasons, ")");
  }();
  return *functions;
}

// --- Transfers ---

namespace {
void check_mpi(const char* error) { TERN_CHECK(!error, "MPI: ", error); }
constexpr int64_t kMaxMessage = int64_t{1} << 30;
constexpr uint32_t kAskedForAll = 64;
}  // namespace

void Transfers::send(const void* data, int64_t bytes, int to, int tag) {
  do {  // an empty message is sent too
    const int64_t part = std::min(bytes, kMaxMessage);
    waiting_.push_back({{}, part, to, false});
    check_mpi(functions_.send(data, part, to, tag, &waiting_.back().request));
    data = static_cast<const char*>(data) + part;
    bytes -= part;
  } while (bytes > 0);
}

void Transfers::receive(void* data, int64_t bytes, int from, int tag) {
  do {
    const int64_t part = std::min(bytes, kMaxMessage);
    waiting_.push_back({{}, part, from, true});
    check_mpi(functions_.receive(data, part, from, tag, &waiting_.back().request));
    data = static_cast<char*>(data) + part;
    bytes -= part;
  } while (bytes > 0);
}

bool Transfers::done() {
  // Every poll makes MPI progress all messages, which is expensive. So the loop stops at the first message that is not
  // done, except for a few polls of all of them, which find a failure behind it.
  const bool all = ++asked_ % kAskedForAll == 0;
  for (size_t i = waiting_.size(); i-- > 0;) {
    Message& message = waiting_[i];
    bool done = false;
    int64_t bytes = message.bytes;
    if (const char* error = functions_.test(&message.request, &done, &bytes))
      throw PeerError(detail::concatenate(message.receives ? "a message from rank " : "a message to rank ",
                                          message.peer, " failed: ", error,
                                          "; if the ranks make different calls, TERN_DIST_CHECK=1 names the first"));
    if (!done && !all) return false;
    if (!done) continue;
    if (message.receives && bytes != message.bytes)
      throw PeerError(detail::concatenate("rank ", message.peer, " has sent ", bytes, " bytes instead of ",
                                          message.bytes,
                                          ": the ranks make different calls; TERN_DIST_CHECK=1 names the first"));
    message = waiting_.back();
    waiting_.pop_back();
  }
  return waiting_.empty();
}

// --- CallState ---

CallState::CallState(Call c, std::string g, std::vector<int> r, int operations)
    : call(std::move(c)), group(std::move(g)), ranks(std::move(r)), left_(operations) {}

void CallState::wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return left_ <= 0 || !error_.empty(); });
  if (!error_.empty()) throw PeerError(error_);
}

bool CallState::done() {
  std::lock_guard<std::mutex> lock(mutex_);
  return left_ <= 0 || !error_.empty();
}

void CallState::operation_done() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (--left_ > 0) return;
  }
  changed_.notify_all();
}

void CallState::fail(const std::string& message) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (error_.empty()) error_ = message;
  }
  changed_.notify_all();
}

// --- Engine ---

Engine::Engine() : functions_(load_functions()) {
  static std::atomic<bool> used = false;
  TERN_CHECK(!used.exchange(true), "MPI was started by this process before; it can be started only once");
  thread_ = std::thread([this] { run(); });
}

std::shared_ptr<Engine> Engine::start(double seconds) {
  const std::shared_ptr<Engine> engine(new Engine);
  Engine* const e = engine.get();
  const auto initialize = [e] {
    const char* const error = e->functions_.initialize(&e->rank_, &e->size_);
    TERN_CHECK(!error, "MPI does not start: ", error);
  };
  if (!engine->on_thread(initialize, seconds))
    throw PeerError(detail::concatenate("MPI: not all ranks have reached its start within ", seconds,
                                        " s; see the output of the missing ranks"));
  return engine;
}

Engine::~Engine() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  // MPI may write to unfinished messages until the process ends: they are kept on purpose.
  static auto* const kept = new std::vector<std::unique_ptr<Machine>>;
  for (auto& machine : abandoned_) kept->push_back(std::move(machine));
  for (Active& active : active_) kept->push_back(std::move(active.machine));
}

void Engine::set_session(std::shared_ptr<Session> session) {
  std::lock_guard<std::mutex> lock(mutex_);
  session_ = std::move(session);
}

void Engine::submit(int64_t lane, int together, std::vector<std::unique_ptr<Machine>> machines) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Lane& queue = lanes_[lane];
    queue.together = together;
    for (auto& machine : machines) queue.waiting.push_back(std::move(machine));
    has_work_ = true;
  }
  wake_.notify_one();
}

bool Engine::on_thread(const std::function<void()>& f, double seconds) {
  std::unique_lock<std::mutex> lock(mutex_);
  task_ = f;
  task_done_ = false;
  task_error_ = nullptr;
  wake_.notify_one();
  if (!answered_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return task_done_; })) {
    static auto* const stuck = new std::vector<std::shared_ptr<Engine>>;
    stuck->push_back(shared_from_this());
    return false;
  }
  if (task_error_) std::rethrow_exception(std::exchange(task_error_, nullptr));
  return true;
}

std::string Engine::broadcast_text(const std::string& text, double seconds) {
  std::string result = text;
  const auto task = [&] {
    const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    const auto finish = [&](Transfers& transfers) {
      while (!transfers.done()) {
        if (Clock::now() > end)
          throw PeerError(
              detail::concatenate("MPI: no message between rank 0 and rank ", rank_, " within ", seconds, " s"));
        std::this_thread::sleep_for(kLongestPause);
      }
    };
    Transfers length(functions_), content(functions_);
    int64_t bytes = static_cast<int64_t>(result.size());
    for (int r = 1; r < size_ && rank_ == 0; ++r) length.send(&bytes, sizeof bytes, r, 0);
    if (rank_ != 0) length.receive(&bytes, sizeof bytes, 0, 0);
    finish(length);
    result.resize(static_cast<size_t>(bytes));
    for (int r = 1; r < size_ && rank_ == 0; ++r) content.send(result.data(), bytes, r, 0);
    if (rank_ != 0) content.receive(result.data(), bytes, 0, 0);
    finish(content);
  };
  TERN_CHECK(on_thread(task, 10 * seconds), "MPI: it does not answer");
  return result;
}

void Engine::finish(double seconds) {
  Engine* const e = this;
  const auto finalize = [e] {
    const char* const error = e->functions_.finalize();
    TERN_CHECK(!error, "MPI does not end: ", error);
  };
  if (!on_thread(finalize, seconds))
    throw PeerError(detail::concatenate("MPI: not all ranks have reached its end within ", seconds, " s"));
}

void Engine::run() {
  prctl(PR_SET_TIMERSLACK, 1000);  // nanoseconds: makes short pauses exact
  auto last_event = Clock::now(), time_checked = last_event;
  for (;;) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      if (active_.empty()) wake_.wait(lock, [this] { return stopping_ || task_ || has_work_; });
      if (stopping_) return;
      if (task_) {
        const std::function<void()> task = std::exchange(task_, nullptr);
        lock.unlock();
        std::exception_ptr error;
        try {
          task();
        } catch (...) {
          error = std::current_exception();
        }
        lock.lock();
        task_error_ = error;
        task_done_ = true;
        answered_.notify_all();
        continue;
      }
    }
    const bool started = start_waiting();
    const bool advanced = advance_all();
    const auto now = Clock::now();
    if (advanced || started) {
      last_event = now;
      continue;
    }
    if (now > time_checked + kTimeCheck) {
      time_checked = now;
      check_time();
    }
    if (now > last_event + kBusyTime)
      std::this_thread::sleep_for(std::clamp((now - last_event) / 8, kShortestPause, kLongestPause));
  }
}

/// Starts waiting machines as far as their lanes allow. True when any was started.
bool Engine::start_waiting() {
  for (bool any = false;; any = true) {
    Active next;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      has_work_ = false;
      for (auto& [number, lane] : lanes_) {
        if (lane.waiting.empty() || lane.on_the_way >= lane.together) continue;
        next = {std::move(lane.waiting.front()), number, {}};
        lane.waiting.pop_front();
        ++lane.on_the_way;
        break;
      }
      if (!next.machine) return any;
      const double seconds = session_ ? session_->options().timeout_seconds : 600;
      next.deadline =
          Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    }
    active_.push_back(std::move(next));
    try {
      active_.back().machine->begin();
    } catch (const std::exception& error) {
      fail_all(error.what());
    }
  }
}

/// True when a machine ended.
bool Engine::advance_all() {
  bool any = false;
  for (size_t i = 0; i < active_.size();) {
    bool complete = false;
    try {
      complete = active_[i].machine->advance();
    } catch (const std::exception& error) {
      const CallState& call = active_[i].machine->call();
      fail_all(detail::concatenate("group ", call.group, ", call ", call.call.number, ", ", call.call.text(), ": ",
                                   error.what()));
      return true;
    }
    if (complete) {
      finish_operation(i);
      any = true;
    } else {
      ++i;
    }
  }
  return any;
}

void Engine::finish_operation(size_t index) {
  const std::unique_ptr<Machine> machine = std::move(active_[index].machine);
  const int64_t number = active_[index].lane;
  active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(index));
  {
    std::lock_guard<std::mutex> lock(mutex_);
    --lanes_[number].on_the_way;
    has_work_ = true;  // the lane may start its next machine now
  }
  machine->call().operation_done();
}

void Engine::check_time() {
  std::shared_ptr<Session> session;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    session = session_;
  }
  if (!session) return;
  if (session->has_failed()) return fail_all(session->failure());
  const auto now = Clock::now();
  for (const Active& active : active_) {
    if (now < active.deadline) continue;
    const CallState& call = active.machine->call();
    const Call& c = call.call;
    if (!c.is_pairwise()) return fail_all(session->describe_missing(call.group, call.ranks, c.number, c.text()));
    return fail_all(detail::concatenate("group ", call.group, ": ",
                                        c.operation == Operation::kSend ? "send to rank " : "receive from rank ",
                                        c.peer, ", message ", c.number, ", ", c.text(), ": rank ", c.peer,
                                        " (of the world: ", call.ranks[static_cast<size_t>(c.peer)],
                                        ") has not arrived within ", session->options().timeout_seconds, " s"));
  }
}

/// Fails all started and waiting machines.
void Engine::fail_all(const std::string& message) {
  std::vector<std::unique_ptr<Machine>> all;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (session_) session_->set_failure(message);
    for (auto& [number, lane] : lanes_) {
      for (auto& machine : lane.waiting) all.push_back(std::move(machine));
      lane.waiting.clear();
      lane.on_the_way = 0;
    }
  }
  for (auto& machine : all) machine->call().fail(message);
  for (Active& active : active_) {
    active.machine->call().fail(message);
    abandoned_.push_back(std::move(active.machine));
  }
  active_.clear();
}

}  // namespace tern::dist::mpi
