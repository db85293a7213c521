#pragma once
// Communicators: how the processes of a data-parallel job exchange tensors. World (world.h) makes the first one, of all
// processes; split() and subgroup() make others of it.
//
// Order. All ranks of a group call its operations in the same order, with tensors of equal shape and dtype. Calls of
// different groups may come in any order, and any number may be on their way at a time. send and receive are counted
// for each pair of ranks and direction, and may come between the others as they like.
//
// Devices. A group has one kind of device: MPI's takes tensors on the CPU, NCCL's on this process's GPU.
//   CPU   The plain functions return when the result is there. *_async returns at once; a thread of its own moves the
//         data meanwhile, and Work::wait() returns when the tensor may be used again. Until then nobody may write it,
//         and of a result nobody may read it.
//   CUDA  Nothing here waits for the device. An operation runs on the group's own stream, after all work that was
//         queued on the current stream before the call; Work::wait() makes the current stream wait for it, so the
//         rules are those of the CPU with "the current stream" for "the caller". The plain functions are the async ones
//         with wait() at once. Works in a captured step, if wait() is called within it too.
//
// Numbers. On the CPU every element is reduced in rank order, rank 0's first, 16-bit values in float32 and rounded
// once: bit-equal on all ranks and from run to run, whatever the size of the tensor. NCCL chooses an order by size and
// number of ranks, and repeats it. max and min give NaN where a rank has one on the CPU; integer sums wrap.
//
// Failure. A rank that does not come within the timeout, ends, or (in check mode) calls something else is a PeerError
// that names it and the call, on all ranks that wait for it; on CUDA it is thrown by the next call or wait(). After it
// the group, and every other, is of no more use.

#include <memory>
#include <string>
#include <vector>

#include "tern/core/tensor.h"
#include "tern/dist/store.h"

namespace tern::dist {

enum class ReduceOp { kSum, kMean, kMax, kMin };

/// An operation on its way. Copies share it. A default-constructed one is done.
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
  /// CPU: returns when it is done. CUDA: what is queued on the current stream later runs after it; returns at once.
  /// Throws what made it fail. May be called again, and by other threads.
  void wait() const {
    if (state_) state_->wait();
  }
  /// Whether wait() would not wait (CUDA: whether the device has passed it; false while a step is captured).
  bool done() const { return !state_ || state_->done(); }

 private:
  std::shared_ptr<State> state_;
};

struct GroupOptions {
  /// Of every operation, from its call.
  double timeout_seconds = 600;
  /// All ranks compare number, operation, shape, dtype, reduction and root before each operation. Slow: every call
  /// waits for all ranks.
  bool check = false;
};
/// The options with TERN_DIST_TIMEOUT (seconds) and TERN_DIST_CHECK (0 or 1) from the environment where they are set.
/// Throws Error when they are set to something else.
GroupOptions with_environment(GroupOptions options);

struct Call;
class Session;

/// A group of size() processes, numbered by rank in [0, size()). Safe for use by one thread at a time. Tensors must be
/// defined, of the group's device and, for *_async, contiguous (the plain functions copy others); they are written in
/// place and must not be recorded by autograd (use detach(), or NoGrad for leaves). Empty tensors are legal. Throws
/// Error when arguments are wrong.
class Communicator {
 public:
  virtual ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(world_ranks_.size()); }
  /// The ranks of this group in the world, by their rank here.
  const std::vector<int>& world_ranks() const { return world_ranks_; }
  /// Where its tensors are. A group of one takes tensors of any device.
  Device device() const { return device_; }
  /// "world", "world.2": the same in all its ranks, used in messages.
  const std::string& name() const { return name_; }

  /// Every rank's tensor becomes the reduction of all. kMean needs a floating dtype; bool takes kMax (any) and kMin
  /// (all) only.
  void all_reduce(Tensor& tensor, ReduceOp op = ReduceOp::kSum);
  Work all_reduce_async(const Tensor& tensor, ReduceOp op = ReduceOp::kSum);
  /// output [n...] of rank r becomes part r of the reduction of all inputs, which have size() times as many elements:
  /// elements [r * n, (r + 1) * n) in row-major order. output may not overlap input, except that it may be just that
  /// part of it.
  void reduce_scatter(Tensor& output, const Tensor& input, ReduceOp op = ReduceOp::kSum);
  Work reduce_scatter_async(const Tensor& output, const Tensor& input, ReduceOp op = ReduceOp::kSum);
  /// output, of size() times as many elements as input, becomes the inputs of all ranks in their order. input may be
  /// this rank's own part of output.
  void all_gather(Tensor& output, const Tensor& input);
  Work all_gather_async(const Tensor& output, const Tensor& input);
  /// The tensors of all ranks, in their order: new ones.
  std::vector<Tensor> all_gather(const Tensor& tensor);
  /// Every rank's tensor becomes that of `root`.
  void broadcast(Tensor& tensor, int root = 0);
  Work broadcast_async(const Tensor& tensor, int root = 0);
  /// To and from another rank; the receiver's tensor must have the shape and dtype of the sender's. send may return
  /// before the receiver has the data, or only then: two ranks that send to each other use the async functions.
  void send(const Tensor& tensor, int to);
  Work send_async(const Tensor& tensor, int to);
  void receive(Tensor& tensor, int from);
  Work receive_async(const Tensor& tensor, int from);
  /// Returns when every rank has called it. (CUDA: the host waits too.)
  virtual void barrier() = 0;

  /// Called by all ranks: those of equal colour become a group, ranked by key and then by their rank here. A negative
  /// colour gives null.
  std::shared_ptr<Communicator> split(int colour, int key = 0);
  /// Called by all ranks with the same list: the group of these, in this order; null for the others. Throws Error when
  /// a rank is outside or named twice.
  std::shared_ptr<Communicator> subgroup(const std::vector<int>& ranks);

 protected:
  /// session: null in a group of one without others to watch.
  Communicator(std::string name, std::vector<int> world_ranks, int rank, Device device,
               std::shared_ptr<Session> session);
  /// Starts a checked call on contiguous tensors; the backend keeps what it needs of the call until it is done.
  virtual Work start(const Call& call) = 0;
  /// Returns when what this rank has started is done, as far as the host does not see to that anyway: before it waits
  /// for others by other means.
  virtual void settle() {}
  /// `members`: ranks here, this one among them or not (then null). Called by all ranks of this group at the same
  /// place.
  virtual std::shared_ptr<Communicator> make_group(const std::string& name, const std::vector<int>& members) = 0;
  /// To be called by barrier() first: numbers and compares it like the other calls.
  Call begin_barrier();
  const std::shared_ptr<Session>& session() const { return session_; }

 private:
  Work begin(Call call);
  void check_tensor(const char* operation, const Tensor& tensor, bool written) const;

  std::string name_;
  std::vector<int> world_ranks_;
  int rank_;
  Device device_;
  std::shared_ptr<Session> session_;
  int64_t calls_ = 0, groups_ = 0;
  std::vector<int64_t> sent_, received_;  // calls of send and receive, by the other rank
};

/// The group of one process: every operation is the identity, on any device.
class SingleProcess final : public Communicator {
 public:
  SingleProcess();
  void barrier() override {}

 protected:
  Work start(const Call& call) override;
  std::shared_ptr<Communicator> make_group(const std::string& name, const std::vector<int>& members) override;
};

}  // namespace tern::dist
