#pragma once
// The thread that makes all calls of MPI, and the operations that it runs. An operation is a small state machine:
// begin() posts messages, advance() polls them and posts the next. All started operations run concurrently, so no order
// of calls among groups can make ranks wait for each other.

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "tern/dist/loop/session.h"
#include "tern/dist/mpi/functions.h"

namespace tern::dist::mpi {

/// Loads libtern_mpi.so: the file that TERN_MPI_LIBRARY names, else from the folder of libtern.so, or from ../lib of
/// the program's, or where the dynamic linker looks. Throws Error when it is missing (it is only built where MPI is
/// installed and TERN_MPI is on) or MPI's own libraries are.
const Functions& load_functions();

/// Messages that belong together. Their buffers must stay valid until done() is true.
class Transfers {
 public:
  explicit Transfers(const Functions& functions) : functions_(functions) {}
  void send(const void* data, int64_t bytes, int to, int tag);
  void receive(void* data, int64_t bytes, int from, int tag);
  /// True when all are done. Throws PeerError when a message has another length than expected.
  bool done();

 private:
  struct Message {
    Request request;
    int64_t bytes;
    int peer;
    bool receives;
  };
  const Functions& functions_;
  std::vector<Message> waiting_;
  uint32_t asked_ = 0;
};

/// The state of a call: counts its operations that have ended and wakes the thread that waits for it.
class CallState final : public Work::State {
 public:
  /// `operations`: how many it consists of.
  CallState(Call call, std::string group, std::vector<int> ranks, int operations);
  void wait() override;
  bool done() override;
  /// One of its operations is complete.
  void operation_done();
  void fail(const std::string& message);

  const Call call;  // keeps its tensors alive as long as their messages
  const std::string group;
  const std::vector<int> ranks;  // of the group, in the world

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int left_;
  std::string error_;
};

class Machine {
 public:
  explicit Machine(std::shared_ptr<CallState> call) : call_(std::move(call)) {}
  virtual ~Machine() = default;
  virtual void begin() = 0;
  /// True when it is complete. Throws PeerError.
  virtual bool advance() = 0;
  CallState& call() { return *call_; }

 private:
  std::shared_ptr<CallState> call_;
};

/// Starts MPI and its thread; one in a process, once.
class Engine : public std::enable_shared_from_this<Engine> {
 public:
  /// Throws Error when MPI is missing or does not start, PeerError when not all ranks have started after `seconds`.
  static std::shared_ptr<Engine> start(double seconds);
  /// Ends the thread without waiting for other ranks, unless finish() was called.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const Functions& functions() const { return functions_; }

  /// From then on calls fail at their timeout and when a rank ends.
  void set_session(std::shared_ptr<Session> session);
  /// Machines of one lane start in the order given, at most `together` of them at a time. All ranks submit to a lane in
  /// the same order.
  void submit(int64_t lane, int together, std::vector<std::unique_ptr<Machine>> machines);
  /// Rank 0's text on every rank, for the time before there is a store. Throws PeerError after `seconds`.
  std::string broadcast_text(const std::string& text, double seconds);
  /// Ends MPI in order: returns when all ranks have called it. Throws PeerError after `seconds`.
  void finish(double seconds);

 private:
  Engine();
  struct Lane {
    std::deque<std::unique_ptr<Machine>> waiting;
    int on_the_way = 0, together = 1;
  };
  struct Active {
    std::unique_ptr<Machine> machine;
    int64_t lane;
    std::chrono::steady_clock::time_point deadline;
  };
  void run();
  bool start_waiting();
  bool advance_all();
  void check_time();
  void fail_all(const std::string& message);
  void finish_operation(size_t index);
  /// Runs f on MPI's thread and returns when f has returned; throws what f throws. False after `seconds`: then the
  /// thread is blocked in MPI, and it and this engine stay until the process ends.
  bool on_thread(const std::function<void()>& f, double seconds);

  const Functions& functions_;
  int rank_ = 0, size_ = 1;
  std::mutex mutex_;
  std::condition_variable wake_, answered_;
  std::map<int64_t, Lane> lanes_;
  std::function<void()> task_;
  std::exception_ptr task_error_;
  bool task_done_ = false, stopping_ = false, has_work_ = false;
  std::shared_ptr<Session> session_;

  // Used by the thread alone.
  std::vector<Active> active_;
  std::vector<std::unique_ptr<Machine>> abandoned_;  // failed with unfinished messages, which may still write

  std::thread thread_;
};

}  // namespace tern::dist::mpi
