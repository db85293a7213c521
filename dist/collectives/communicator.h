#pragma once
// Communicators: how the processes of a data-parallel job exchange tensors. World (world.h) creates the group of all
// processes; split() and subgroup() derive others from it.
//
// Order. All ranks of a group call its operations in the same order, with tensors of equal shape and dtype. Calls of
// different groups may be interleaved in any order, and any number may be in progress. send and receive are counted per
// pair of ranks and direction, and may be interleaved with the other calls in any order.
//
// Devices. A group has one kind of device: MPI groups take tensors on the CPU, NCCL groups on this process's GPU.
//   CPU   The plain functions return when the result is complete. *_async returns at once; a separate thread moves the
//         data, and Work::wait() returns when the tensor may be used again. Until then it must not be written, and a
//         result must not be read.
//   CUDA  Nothing here waits for the device. An operation runs on the group's stream, after all work that was queued on
//         the current stream before the call; Work::wait() makes the current stream wait for it, so the rules are those
//         of the CPU with "the current stream" for "the caller". The plain functions are the async ones followed by
//         wait(). Works in a captured step if wait() is called within it too.
//
// Numbers. On the CPU every element is reduced in rank order, starting with rank 0; 16-bit values are summed in float32
// and rounded once. Results are bit-equal on all ranks and from run to run, for any tensor size. NCCL chooses an order
// by size and number of ranks, and repeats it. On the CPU max and min give NaN if any rank has NaN; integer sums wrap.
//
// Failure. If a rank does not call within the timeout, ends, or (in check mode) calls something else, all ranks that
// wait for it throw a PeerError with its rank and the call; on CUDA the next call or wait() throws it. After that no
// group of the process can be used.

#include <memory>
#include <string>
#include <vector>

#include "tern/core/tensor.h"
#include "tern/dist/store/store.h"

namespace tern::dist {

enum class ReduceOp { kSum, kMean, kMax, kMin };

/// An operation in progress. Copies share it. A default-constructed one is done.
class Work {
 public:
  class State {
   public:
    virtual ~State() = default;
    virtual void wait() = 0;
    virtual bool done() = 0;
  };

  Work() = default;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}
  /// CPU: returns when the operation is done. CUDA: returns at once; work queued later on the current stream runs after
  /// it. Rethrows the error of a failed operation. May be called again, and by other threads.
  void wait() const {
    if (state_) state_->wait();
  }
  /// Whether wait() would return at once (CUDA: whether the device has finished; false while a step is captured).
  bool done() const { return !state_ || state_->done(); }

 private:
  std::shared_ptr<State> state_;
};

struct GroupOptions {
  /// Timeout of every operation, from its call.
  double timeout_seconds = 600;
  /// All ranks compare number, operation, shape, dtype, reduction and root before each operation. Slow: every call
  /// waits for all ranks.
  bool check = false;
};
/// The options, overridden by TERN_DIST_TIMEOUT (seconds) and TERN_DIST_CHECK (0 or 1) if set in the environment.
/// Throws Error on other values.
GroupOptions with_environment(GroupOptions options);

struct Call;
class Session;

/// A group of size() processes, numbered by rank in [0, size()). May be used by one thread at a time. Tensors must be
/// defined, on the group's device and, for *_async, contiguous (the plain functions copy others); they are written in
/// place and must not be recorded by autograd (use detach(), or NoGrad for leaves). Empty tensors are allowed. Throws
/// Error on wrong arguments.
class Communicator {
 public:
  virtual ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(world_ranks_.size()); }
  /// The ranks of this group's members in the world, indexed by rank in this group.
  const std::vector<int>& world_ranks() const { return world_ranks_; }
  /// The device of its tensors. A group of one takes tensors of any device.
  Device device() const { return device_; }
  /// "world", "world.2": equal in all its ranks, used in messages.
  const std::string& name() const { return name_; }

  /// Replaces every rank's tensor by the reduction of all. kMean requires a floating dtype; bool takes only kMax (any)
  /// and kMin (all).
  void all_reduce(Tensor& tensor, ReduceOp op = ReduceOp::kSum);
  Work all_reduce_async(const Tensor& tensor, ReduceOp op = ReduceOp::kSum);
  /// output [n...] of rank r becomes part r of the reduction of all inputs, which have size() times as many elements:
  /// elements [r * n, (r + 1) * n) in row-major order. output must not overlap input, unless it is exactly that part.
  void reduce_scatter(Tensor& output, const Tensor& input, ReduceOp op = ReduceOp::kSum);
  Work reduce_scatter_async(const Tensor& output, const Tensor& input, ReduceOp op = ReduceOp::kSum);
  /// output, with size() times as many elements as input, becomes the concatenation of all ranks' inputs in rank order.
  /// input may be this rank's part of output.
  void all_gather(Tensor& output, const Tensor& input);
  Work all_gather_async(const Tensor& output, const Tensor& input);
  /// Returns new tensors: those of all ranks, in rank order.
  std::vector<Tensor> all_gather(const Tensor& tensor);
  /// Every rank's tensor becomes that of `root`.
  void broadcast(Tensor& tensor, int root = 0);
  Work broadcast_async(const Tensor& tensor, int root = 0);
  /// Point to point. The receiver's tensor must have the shape and dtype of the sender's. send may block until the
  /// receiver has the data: two ranks that send to each other use the async functions.
  void send(const Tensor& tensor, int to);
  Work send_async(const Tensor& tensor, int to);
  void receive(Tensor& tensor, int from);
  Work receive_async(const Tensor& tensor, int from);
  /// Returns when every rank has called it. (On CUDA the host waits too.)
  virtual void barrier() = 0;

  /// Called by all ranks: those of equal colour form a group, ordered by key and then by rank in this group. A negative
  /// colour gives null.
  std::shared_ptr<Communicator> split(int colour, int key = 0);
  /// Called by all ranks with the same list: the group of these ranks, in this order; null for the others. Throws Error
  /// if a rank is out of range or listed twice.
  std::shared_ptr<Communicator> subgroup(const std::vector<int>& ranks);

 protected:
  /// session: null in a group of one that has no other ranks to watch.
  Communicator(std::string name, std::vector<int> world_ranks, int rank, Device device,
               std::shared_ptr<Session> session);
  /// Starts a checked call on contiguous tensors; the backend keeps what it needs from the call until it is done.
  virtual Work start(const Call& call) = 0;
  /// Waits for the operations that this rank has started, unless the host tracks them anyway. Called before this rank
  /// waits for others by other means.
  virtual void settle() {}
  /// A group that includes this rank, as `rank`. Called by all its members at the same point.
  virtual std::shared_ptr<Communicator> make_group(const std::string& name, std::vector<int> world_ranks, int rank) = 0;
  /// barrier() must call it first: numbers and compares it like the other calls.
  Call begin_barrier();
  const std::shared_ptr<Session>& session() const { return session_; }

 private:
  Work begin(Call call);
  /// `members`: ranks in this group. Null if they do not include this rank.
  std::shared_ptr<Communicator> group_of(const std::string& name, const std::vector<int>& members);
  void check_tensor(const char* operation, const Tensor& tensor, bool written) const;

  std::string name_;
  std::vector<int> world_ranks_;
  int rank_;
  Device device_;
  std::shared_ptr<Session> session_;
  int64_t calls_ = 0, groups_ = 0;
  std::vector<int64_t> sent_, received_;  // calls of send and receive, indexed by the other rank
};

/// The group of one process: every operation is the identity, on any device.
class SingleProcess final : public Communicator {
 public:
  SingleProcess();
  void barrier() override {}

 protected:
  Work start(const Call& call) override;
  std::shared_ptr<Communicator> make_group(const std::string&, std::vector<int>, int) override {
    return std::make_shared<SingleProcess>();
  }
};

}  // namespace tern::dist
