// NCCL's collectives between threads or processes of one machine, through one file in shared memory. Each collective is
// two operations of its stream: a rank writes its data to the file once all ranks have read the previous data, and
// computes the result once all have written. Sums are in ascending order of ranks, rounded to the type at every step.
// Where ranks call different collectives at the same time, they get a device error; NCCL would hang. A message is one
// operation on each side; the sender's ends when the data is in the file. Unlike NCCL, collectives of one communicator
// on several streams are not ordered.

#if __has_include(<nccl.h>)
#include <fcntl.h>
#include <nccl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <span>

#include "tern/kernels/types.h"
#include "tern/tests/emulator/runtime/state.h"

namespace tern::standin {
namespace {

constexpr int kMaxRanks = 64;
constexpr off_t kControlBytes = 1 << 18;
// Parts of the file for each rank's and for each pair's data; only the parts in use take memory.
constexpr off_t kRankBytes = off_t{1} << 36, kPairBytes = off_t{1} << 32;

enum class Collective : int { kAllReduce, kBroadcast, kReduceScatter, kAllGather };

struct Call {
  Collective collective;
  uint64_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int root;

  bool operator==(const Call&) const = default;
};

struct Slot {
  std::atomic<int> taken;
  std::atomic<uint64_t> posted, finished;  // numbers of collectives
  Call call;
};

/// Messages from one rank to another; the file holds one at a time.
struct Pair {
  std::atomic<uint64_t> posted, taken;
  uint64_t count;
  ncclDataType_t type;
};

/// The start of the file. A new file contains zeros, which is a valid initial Control.
struct Control {
  std::atomic<int> joined, aborted;
  Slot slots[kMaxRanks];
  Pair pairs[kMaxRanks * kMaxRanks];  // index: from * kMaxRanks + to
};
static_assert(sizeof(Control) <= kControlBytes);

class Group {
 public:
  Group(int file, Control* control, int ranks, int rank) : file_(file), control_(control), ranks_(ranks), rank_(rank) {}
  ~Group() {
    munmap(control_, kControlBytes);
    close(file_);
  }
  Group(const Group&) = delete;

  int ranks() const { return ranks_; }
  int rank() const { return rank_; }
  bool complete() const { return control_->joined == ranks_; }
  bool aborted() const { return control_->aborted != 0; }
  void abort() { control_->aborted = 1; }

  bool may_post() const {
    return aborted() || every([&](const Slot& slot) { return slot.finished >= own_slot().posted; });
  }
  void post(const Call& call, const void* data, size_t bytes) {
    if (aborted()) return;
    own_slot().call = call;
    write(data_offset(rank_), data, bytes);
    ++own_slot().posted;
  }

  bool may_finish() const {
    return aborted() || every([&](const Slot& slot) { return slot.posted >= own_slot().posted; });
  }
  void read(int rank, size_t offset, void* data, size_t bytes) const {
    read_at(rank, data_offset(rank) + static_cast<off_t>(offset), data, bytes);
  }

  bool may_send(int to) const { return aborted() || pair(rank_, to).posted == pair(rank_, to).taken; }
  void send(int to, uint64_t count, ncclDataType_t type, const void* data, size_t bytes) {
    if (aborted()) return;
    Pair& p = pair(rank_, to);
    p.count = count;
    p.type = type;
    write(pair_offset(rank_, to), data, bytes);
    ++p.posted;
  }
  bool may_receive(int from) const { return aborted() || pair(from, rank_).posted > pair(from, rank_).taken; }
  void receive(int from, uint64_t count, ncclDataType_t type, void* data, size_t bytes) {
    if (aborted()) return;
    Pair& p = pair(from, rank_);
    if (p.count != count || p.type != type)
      throw DeviceError(cudaErrorLaunchFailure, "rank " + std::to_string(from) + " sends another count or type");
    read_at(from, pair_offset(from, rank_), data, bytes);
    ++p.taken;
  }
  void finish() { ++own_slot().finished; }
  /// A rank that made a different call, or -1.
  int disagreeing(const Call& call) const {
    const auto found = std::ranges::find_if(slots(), [&](const Slot& slot) { return slot.call != call; });
    return found == slots().end() ? -1 : static_cast<int>(found - slots().begin());
  }

 private:
  std::span<const Slot> slots() const { return {control_->slots, static_cast<size_t>(ranks_)}; }
  template <class Condition>
  bool every(Condition&& holds) const {
    return std::ranges::all_of(slots(), holds);
  }
  void write(off_t offset, const void* data, size_t bytes) const {
    for (size_t done = 0; done < bytes;) {
      const ssize_t n =
          pwrite(file_, static_cast<const char*>(data) + done, bytes - done, offset + static_cast<off_t>(done));
      if (n <= 0) throw DeviceError(cudaErrorLaunchFailure, "the shared memory of the ranks is full");
      done += n;
    }
  }
  void read_at(int rank, off_t offset, void* data, size_t bytes) const {
    for (size_t done = 0; done < bytes;) {
      const ssize_t n = pread(file_, static_cast<char*>(data) + done, bytes - done, offset + static_cast<off_t>(done));
      if (n <= 0)
        throw DeviceError(cudaErrorLaunchFailure, "rank " + std::to_string(rank) + " has laid down too little");
      done += n;
    }
  }
  Slot& own_slot() const { return control_->slots[rank_]; }
  Pair& pair(int from, int to) const { return control_->pairs[from * kMaxRanks + to]; }
  static off_t data_offset(int rank) { return kControlBytes + rank * kRankBytes; }
  off_t pair_offset(int from, int to) const {
    return kControlBytes + ranks_ * kRankBytes + (off_t{from} * ranks_ + to) * kPairBytes;
  }

  int file_;
  Control* control_;
  int ranks_, rank_;
};

std::filesystem::path path_of(const ncclUniqueId& id) {
  std::error_code error;
  const std::filesystem::path shared = "/dev/shm";
  const std::string name(id.internal, strnlen(id.internal, sizeof id.internal));
  return (std::filesystem::is_directory(shared, error) ? shared : std::filesystem::temp_directory_path()) / name;
}

bool is_valid(const ncclUniqueId& id) {
  return std::string_view(id.internal, strnlen(id.internal, sizeof id.internal)).starts_with("tern-standin-nccl-");
}

ncclResult_t join(std::shared_ptr<Group>& group, int ranks, const ncclUniqueId& id, int rank) {
  if (ranks < 1 || ranks > kMaxRanks || rank < 0 || rank >= ranks || !is_valid(id)) return ncclInvalidArgument;
  const std::filesystem::path path = path_of(id);
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return ncclSystemError;
  void* memory = MAP_FAILED;
  if (ftruncate(file, kControlBytes + ranks * kRankBytes + off_t{ranks} * ranks * kPairBytes) == 0)
    memory = mmap(nullptr, kControlBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) {
    close(file);
    return ncclSystemError;
  }
  auto* const control = static_cast<Control*>(memory);
  const bool taken = control->slots[rank].taken.exchange(1) != 0;
  group = std::make_shared<Group>(file, control, ranks, rank);
  if (taken) return ncclInvalidUsage;
  if (++control->joined == ranks) unlink(path.c_str());  // all ranks have opened it
  return ncclSuccess;
}

ncclResult_t wait_for_all(const Group& group) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(configuration().patience_ms);
  while (!group.complete()) {
    if (std::chrono::steady_clock::now() > deadline) return ncclSystemError;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return ncclSuccess;
}

// --- numbers ---

template <class T, class Compute>
void reduce_into(T* sum, const T* values, size_t count, ncclRedOp_t op) {
  for (size_t i = 0; i < count; ++i) {
    const Compute a = static_cast<Compute>(sum[i]), b = static_cast<Compute>(values[i]);
    sum[i] = static_cast<T>(op == ncclProd  ? static_cast<Compute>(a * b)
                            : op == ncclMax ? std::max(a, b)
                            : op == ncclMin ? std::min(a, b)
                                            : static_cast<Compute>(a + b));
  }
}

template <class T, class Compute>
void divide(T* sum, size_t count, int ranks) {
  for (size_t i = 0; i < count; ++i)
    sum[i] = static_cast<T>(static_cast<Compute>(sum[i]) / static_cast<Compute>(ranks));
}

template <class F>
auto with_type(ncclDataType_t type, F&& f) {
  switch (type) {
    case ncclInt8:
      return f.template operator()<int8_t, int64_t>();
    case ncclUint8:
      return f.template operator()<uint8_t, int64_t>();
    case ncclInt32:
      return f.template operator()<int32_t, int64_t>();
    case ncclUint32:
      return f.template operator()<uint32_t, int64_t>();
    case ncclInt64:
      return f.template operator()<int64_t, int64_t>();
    case ncclUint64:
      return f.template operator()<uint64_t, uint64_t>();
    case ncclFloat16:
      return f.template operator()<Float16, float>();
    case ncclBfloat16:
      return f.template operator()<BFloat16, float>();
    case ncclFloat32:
      return f.template operator()<float, float>();
    default:
      return f.template operator()<double, double>();
  }
}

/// 0: a type that the stand-in lacks.
size_t size_of_type(ncclDataType_t type) {
  if (type < ncclInt8 || type > ncclBfloat16) return 0;
  return with_type(type, []<class T, class Compute>() { return sizeof(T); });
}

/// Reduces elements [first, first + count) of all ranks' data.
void reduce(const Group& group, const Call& call, size_t first, size_t count, void* result) {
  with_type(call.type, [&]<class T, class Compute>() {
    std::vector<T> values(count);
    T* const sum = static_cast<T*>(result);
    for (int r = 0; r < group.ranks(); ++r) {
      group.read(r, first * sizeof(T), r == 0 ? sum : values.data(), count * sizeof(T));
      if (r > 0) reduce_into<T, Compute>(sum, values.data(), count, call.op);
    }
    if (call.op == ncclAvg) divide<T, Compute>(sum, count, group.ranks());
  });
}

// --- collectives ---

const char* name_of(Collective collective) {
  constexpr const char* kNames[] = {"ncclAllReduce", "ncclBroadcast", "ncclReduceScatter", "ncclAllGather"};
  return kNames[static_cast<int>(collective)];
}

void take_result(Group& group, const Call& call, void* to) {
  if (group.aborted()) return;
  const int other = group.disagreeing(call);
  if (other >= 0)
    throw DeviceError(cudaErrorLaunchFailure, "rank " + std::to_string(other) + " calls another collective, or with " +
                                                  "another count, type, operation or root");
  const size_t bytes = call.count * size_of_type(call.type);
  const size_t ranks = group.ranks(), rank = group.rank();
  require_device_memory(to, call.collective == Collective::kAllGather ? bytes * ranks : bytes, "result");
  switch (call.collective) {
    case Collective::kAllReduce:
      reduce(group, call, 0, call.count, to);
      break;
    case Collective::kReduceScatter:
      reduce(group, call, rank * call.count, call.count, to);
      break;
    case Collective::kBroadcast:
      group.read(call.root, 0, to, bytes);
      break;
    case Collective::kAllGather:
      for (size_t r = 0; r < ranks; ++r) group.read(static_cast<int>(r), 0, static_cast<char*>(to) + r * bytes, bytes);
  }
  group.finish();
}

thread_local int group_depth = 0;
thread_local std::vector<std::function<ncclResult_t()>> group_calls;  // run by ncclGroupEnd()

/// Runs the call; inside a group, queues it for ncclGroupEnd().
ncclResult_t now_or_at_group_end(std::function<ncclResult_t()> call) {
  if (group_depth == 0) return call();
  group_calls.push_back(std::move(call));
  return ncclSuccess;
}

}  // namespace
}  // namespace tern::standin

struct ncclComm {
  std::shared_ptr<tern::standin::Group> group;
};

namespace tern::standin {
namespace {

ncclResult_t start(ncclComm_t comm, const Call& call, const void* from, void* to, cudaStream_t stream) {
  const char* const name = name_of(call.collective);
  if (const int fault = injected_fault(name)) return static_cast<ncclResult_t>(fault);
  if (!comm || size_of_type(call.type) == 0) return ncclInvalidArgument;
  const std::shared_ptr<Group> group = comm->group;
  if (call.op < ncclSum || call.op > ncclAvg || call.root < 0 || call.root >= group->ranks())
    return ncclInvalidArgument;
  if (call.count == 0) return ncclSuccess;
  const bool gives = call.collective != Collective::kBroadcast || group->rank() == call.root;
  if ((gives && !from) || !to) return ncclInvalidArgument;
  const size_t parts = call.collective == Collective::kReduceScatter ? group->ranks() : 1;
  const size_t bytes = gives ? parts * call.count * size_of_type(call.type) : 0;
  if (bytes > static_cast<size_t>(kRankBytes)) return ncclInvalidArgument;
  return now_or_at_group_end([=] {
    const auto post = [=] {
      if (bytes > 0) require_device_memory(from, bytes, "data");
      group->post(call, from, bytes);
    };
    const auto finish = [=] { take_result(*group, call, to); };
    if (enqueue_when(
            stream, name, [=] { return group->may_post(); }, post))
      return ncclUnhandledCudaError;
    if (enqueue_when(
            stream, name, [=] { return group->may_finish(); }, finish, false))
      return ncclUnhandledCudaError;
    return ncclSuccess;
  });
}

/// send: a message to `peer`; otherwise from it.
ncclResult_t start_message(const char* name, bool send, void* data, size_t count, ncclDataType_t type, int peer,
                           ncclComm_t comm, cudaStream_t stream) {
  if (const int fault = injected_fault(name)) return static_cast<ncclResult_t>(fault);
  const size_t bytes = count * size_of_type(type);
  if (!comm || size_of_type(type) == 0 || bytes > static_cast<size_t>(kPairBytes)) return ncclInvalidArgument;
  const std::shared_ptr<Group> group = comm->group;
  if (peer < 0 || peer >= group->ranks()) return ncclInvalidArgument;
  if (count == 0) return ncclSuccess;
  if (!data) return ncclInvalidArgument;
  return now_or_at_group_end([=] {
    const auto ready = [=] { return send ? group->may_send(peer) : group->may_receive(peer); };
    const auto work = [=] {
      require_device_memory(data, bytes, "data");
      if (send)
        group->send(peer, count, type, data, bytes);
      else
        group->receive(peer, count, type, data, bytes);
    };
    return enqueue_when(stream, name, ready, work) ? ncclUnhandledCudaError : ncclSuccess;
  });
}

}  // namespace
}  // namespace tern::standin

using namespace tern::standin;

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  constexpr const char* kTexts[] = {"no error",
                                    "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
                                    "unhandled system error (run with NCCL_DEBUG=INFO for details)",
                                    "internal error - please report this issue to the NCCL developers",
                                    "invalid argument (run with NCCL_DEBUG=WARN for details)",
                                    "invalid usage (run with NCCL_DEBUG=WARN for details)",
                                    "remote process exited or there was a network error",
                                    "NCCL operation in progress"};
  return result >= 0 && result < ncclNumResults ? kTexts[result] : "unknown result code";
}

const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (const int fault = injected_fault("ncclGetUniqueId")) return static_cast<ncclResult_t>(fault);
  if (!id) return ncclInvalidArgument;
  static std::atomic<unsigned> count = 0;
  std::random_device random;
  *id = {};
  std::snprintf(id->internal, sizeof id->internal, "tern-standin-nccl-%d-%u-%08x", getpid(), ++count, random());
  return ncclSuccess;
}

// Returns when all ranks have called it.
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  if (const int fault = injected_fault("ncclCommInitRank")) return static_cast<ncclResult_t>(fault);
  if (!comm) return ncclInvalidArgument;
  *comm = nullptr;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return ncclUnhandledCudaError;
  std::shared_ptr<Group> group;
  if (const ncclResult_t error = join(group, ranks, id, rank)) return error;
  *comm = new ncclComm{group};
  return now_or_at_group_end([group] { return wait_for_all(*group); });
}

ncclResult_t ncclCommInitAll(ncclComm_t* comms, int devices, const int* list) {
  ncclUniqueId id;
  int before = 0;
  if (!comms || devices < 1 || ncclGetUniqueId(&id) != ncclSuccess) return ncclInvalidArgument;
  if (cudaGetDevice(&before) != cudaSuccess) return ncclUnhandledCudaError;
  ncclResult_t result = ncclGroupStart();
  for (int i = 0; i < devices && result == ncclSuccess; ++i) {
    result = cudaSetDevice(list ? list[i] : i) == cudaSuccess ? ncclCommInitRank(&comms[i], devices, id, i)
                                                              : ncclInvalidArgument;
  }
  const ncclResult_t end = ncclGroupEnd();
  cudaSetDevice(before);
  return result != ncclSuccess ? result : end;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}

// The collectives of all ranks end without results.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm) comm->group->abort();
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  if (!comm || !error) return ncclInvalidArgument;
  *error = comm->group->aborted() ? ncclRemoteError : ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return start(comm, {Collective::kAllReduce, count, type, op, 0}, from, to, stream);
}

ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return start(comm, {Collective::kBroadcast, count, type, ncclSum, root}, from, to, stream);
}

ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return start(comm, {Collective::kReduceScatter, count, type, op, 0}, from, to, stream);
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return start(comm, {Collective::kAllGather, count, type, ncclSum, 0}, from, to, stream);
}

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return start_message("ncclSend", true, const_cast<void*>(from), count, type, peer, comm, stream);
}

ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return start_message("ncclRecv", false, to, count, type, peer, comm, stream);
}

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (group_depth == 0) return ncclInvalidUsage;
  if (--group_depth > 0) return ncclSuccess;
  ncclResult_t first = ncclSuccess;
  for (const auto& call : std::exchange(group_calls, {})) {
    const ncclResult_t result = call();
    if (first == ncclSuccess) first = result;
  }
  return first;
}

}  // extern "C"
#endif
