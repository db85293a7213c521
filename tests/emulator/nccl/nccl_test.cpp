// The stand-in for NCCL: collectives between devices of one thread, between threads and between processes.

#if __has_include(<nccl.h>)
#include <nccl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <numeric>
#include <thread>

#include "tern/kernels/types.h"
#include "tern/tests/emulator/runtime/standin_test.h"

namespace tern::standin {
namespace {

void nccl_ok(ncclResult_t result) { ASSERT_EQ(result, ncclSuccess) << ncclGetErrorString(result); }

class Nccl : public StandIn {
 protected:
  void SetUp() override { configure({.devices = 3, .patience_ms = 10'000}); }
};

/// The communicators of one host thread for several devices.
struct Communicators : std::vector<ncclComm_t> {
  explicit Communicators(int count, const int* devices = nullptr) : vector(count) {
    nccl_ok(ncclCommInitAll(data(), count, devices));
  }
  Communicators(const Communicators&) = delete;
  ~Communicators() {
    for (ncclComm_t comm : *this) nccl_ok(ncclCommDestroy(comm));
  }
};

ncclUniqueId new_id() {
  ncclUniqueId id;
  nccl_ok(ncclGetUniqueId(&id));
  return id;
}

/// The data of a rank: rank + 1, rank + 2, ...
std::vector<float> own_values(int rank, size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), static_cast<float>(rank + 1));
  return values;
}

/// Runs every collective once, for one rank of `ranks`. `stream` may be null.
void run_rank(ncclComm_t comm, int rank, int ranks, cudaStream_t s) {
  constexpr size_t kCount = 7;
  float* const x = device_copy(own_values(rank, kCount * ranks));
  float* const y = device_array(kCount * ranks);
  const float rank_sum = static_cast<float>(ranks * (ranks + 1)) / 2, n = static_cast<float>(ranks);

  nccl_ok(ncclAllReduce(x, y, kCount, ncclFloat, ncclSum, comm, s));
  std::vector<float> got = host_copy(y, kCount, s);
  for (size_t i = 0; i < kCount; ++i) EXPECT_EQ(got[i], rank_sum + n * static_cast<float>(i));

  nccl_ok(ncclAllReduce(x, y, kCount, ncclFloat, ncclAvg, comm, s));
  EXPECT_EQ(host_copy(y, kCount, s)[2], rank_sum / n + 2);

  nccl_ok(ncclBroadcast(x, y, kCount, ncclFloat, ranks - 1, comm, s));
  EXPECT_EQ(host_copy(y, kCount, s), own_values(ranks - 1, kCount));

  nccl_ok(ncclReduceScatter(x, y, kCount, ncclFloat, ncclMax, comm, s));
  got = host_copy(y, kCount, s);
  for (size_t i = 0; i < kCount; ++i) EXPECT_EQ(got[i], n + static_cast<float>(rank * kCount + i));

  nccl_ok(ncclAllGather(x, y, kCount, ncclFloat, comm, s));
  got = host_copy(y, kCount * ranks, s);
  for (int r = 0; r < ranks; ++r) {
    const std::vector<float> part(got.begin() + r * kCount, got.begin() + (r + 1) * kCount);
    EXPECT_EQ(part, own_values(r, kCount));
  }

  nccl_ok(ncclAllReduce(x, x, kCount, ncclFloat, ncclSum, comm, s));  // in place
  EXPECT_EQ(host_copy(x, kCount, s)[0], rank_sum);
}

TEST_F(Nccl, Threads) {
  for (const int ranks : {1, 3}) {
    SCOPED_TRACE(testing::Message() << ranks << " ranks");
    const ncclUniqueId id = new_id();
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([=] {
        ok(cudaSetDevice(rank));
        ncclComm_t comm = nullptr;
        nccl_ok(ncclCommInitRank(&comm, ranks, id, rank));
        run_rank(comm, rank, ranks, new_stream());
        nccl_ok(ncclCommDestroy(comm));
      });
  }
}

TEST_F(Nccl, Processes) {
  const ncclUniqueId id = new_id();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  ncclComm_t comm = nullptr;
  nccl_ok(ncclCommInitRank(&comm, 2, id, child == 0 ? 1 : 0));
  run_rank(comm, child == 0 ? 1 : 0, 2, new_stream());
  if (child == 0) _exit(HasFailure() ? 1 : 0);
  nccl_ok(ncclCommDestroy(comm));
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

/// An all-reduce of all devices in a group by one host thread. Returns whether the result is right.
bool reduce_by_one_thread(const Order& order, bool in_group) {
  configure({.devices = 3});
  set_order(order);
  const Communicators comms(3);
  float* x[3];
  cudaStream_t s[3];
  for (int d = 0; d < 3; ++d) {
    ok(cudaSetDevice(d));
    s[d] = new_stream();
    x[d] = device_array(1);
    set(s[d], x[d], static_cast<float>(d + 1));
  }
  if (in_group) nccl_ok(ncclGroupStart());
  for (int d = 0; d < 3; ++d) nccl_ok(ncclAllReduce(x[d], x[d], 1, ncclFloat, ncclSum, comms[d], s[d]));
  if (in_group) nccl_ok(ncclGroupEnd());
  bool right = true;
  for (int d = 0; d < 3; ++d) right = right && read_one(x[d], s[d]) == 6;
  return right;
}

TEST_F(Nccl, OneThreadForAllDevices) {
  for (const Order& order : kOrders) {
    EXPECT_TRUE(reduce_by_one_thread(order, true));
    EXPECT_TRUE(reduce_by_one_thread(order, false));
  }
}

TEST_F(Nccl, Types) {
  const Communicators comms(2);
  const cudaStream_t s[2] = {new_stream(), new_stream()};
  const auto sum = [&]<class T>(ncclDataType_t type, ncclRedOp_t op, T first, T second) {
    T* const x[2] = {device_copy(std::vector<T>{first}), device_copy(std::vector<T>{second})};
    for (int r = 0; r < 2; ++r) nccl_ok(ncclAllReduce(x[r], x[r], 1, type, op, comms[r], s[r]));
    return host_copy(x[1], 1, s[1])[0];
  };
  EXPECT_EQ(sum(ncclInt8, ncclMin, int8_t{-5}, int8_t{3}), -5);
  EXPECT_EQ(sum(ncclUint8, ncclSum, uint8_t{200}, uint8_t{55}), 255);
  EXPECT_EQ(sum(ncclInt32, ncclProd, 7, -6), -42);
  EXPECT_EQ(sum(ncclInt64, ncclSum, int64_t{1} << 40, int64_t{1}), (int64_t{1} << 40) + 1);
  EXPECT_EQ(sum(ncclUint64, ncclMax, ~uint64_t{0}, uint64_t{1}), ~uint64_t{0});
  EXPECT_EQ(sum(ncclDouble, ncclAvg, 1.0, 2.0), 1.5);
  EXPECT_EQ(static_cast<float>(sum(ncclHalf, ncclSum, Float16(1.5f), Float16(2.0f))), 3.5f);
  EXPECT_EQ(static_cast<float>(sum(ncclBfloat16, ncclSum, BFloat16(256.0f), BFloat16(1.0f))), 256.0f);  // rounded
}

TEST_F(Nccl, Messages) {
  const Communicators comms(2);
  const cudaStream_t s[2] = {new_stream(), new_stream()};
  float* const a = device_copy(std::vector<float>{1, 2});
  float* const b = device_copy(std::vector<float>{0, 0, 0, 0});
  nccl_ok(ncclSend(a, 2, ncclFloat, 1, comms[0], s[0]));
  nccl_ok(ncclSend(a + 1, 1, ncclFloat, 1, comms[0], s[0]));
  nccl_ok(ncclRecv(b, 2, ncclFloat, 0, comms[1], s[1]));
  nccl_ok(ncclRecv(b + 3, 1, ncclFloat, 0, comms[1], s[1]));
  EXPECT_EQ(host_copy(b, 4, s[1]), (std::vector<float>{1, 2, 0, 2}));
  EXPECT_EQ(ncclSend(a, 1, ncclFloat, 2, comms[0], s[0]), ncclInvalidArgument);
  nccl_ok(ncclSend(a, 2, ncclFloat, 1, comms[0], s[0]));
  nccl_ok(ncclRecv(b, 1, ncclFloat, 0, comms[1], s[1]));
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  EXPECT_TRUE(has(device_error(), "rank 0 sends another count"));
}

TEST_F(Nccl, Graphs) {
  const Communicators comms(2);
  cudaStream_t s[2];
  float* x[2];
  cudaGraphExec_t executables[2];
  for (int r = 0; r < 2; ++r) {
    s[r] = new_stream();
    x[r] = device_copy(std::vector<float>{1});
    executables[r] = captured(s[r], [&] { nccl_ok(ncclAllReduce(x[r], x[r], 1, ncclFloat, ncclSum, comms[r], s[r])); });
  }
  for (int replay = 0; replay < 3; ++replay)
    for (int r = 0; r < 2; ++r) ok(cudaGraphLaunch(executables[r], s[r]));
  for (int r = 0; r < 2; ++r) EXPECT_EQ(read_one(x[r], s[r]), 8);
}

TEST_F(Nccl, RanksThatDisagreeAreAnError) {
  const Communicators comms(2);
  float *x = device_copy(own_values(0, 4)), *y = device_copy(own_values(1, 4));
  const cudaStream_t s = new_stream(), t = new_stream();
  nccl_ok(ncclAllReduce(x, x, 4, ncclFloat, ncclSum, comms[0], s));
  nccl_ok(ncclAllReduce(y, y, 3, ncclFloat, ncclSum, comms[1], t));
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  EXPECT_TRUE(has(device_error(), "ncclAllReduce: rank 1 calls another collective"));
}

TEST_F(Nccl, AMissingRankIsAnError) {
  configure({.patience_ms = 50});
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRank(&comm, 2, new_id(), 0), ncclSystemError);
  nccl_ok(ncclCommDestroy(comm));
  const int same[2] = {0, 0};
  const Communicators comms(2, same);
  float* x = device_copy(own_values(0, 4));
  nccl_ok(ncclAllReduce(x, x, 4, ncclFloat, ncclSum, comms[0], nullptr));
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchTimeout);
}

TEST_F(Nccl, AnAbortReleasesTheOthers) {
  ncclComm_t comms[2];
  nccl_ok(ncclCommInitAll(comms, 2, nullptr));
  float* x = device_copy(own_values(0, 4));
  nccl_ok(ncclAllReduce(x, x, 4, ncclFloat, ncclSum, comms[0], nullptr));
  nccl_ok(ncclCommAbort(comms[1]));
  ok(cudaDeviceSynchronize());
  ncclResult_t error = ncclSuccess;
  nccl_ok(ncclCommGetAsyncError(comms[0], &error));
  EXPECT_EQ(error, ncclRemoteError);
  nccl_ok(ncclCommDestroy(comms[0]));
}

TEST_F(Nccl, ArgumentsAreChecked) {
  ncclComm_t comm = nullptr;
  const ncclUniqueId id = new_id();
  EXPECT_EQ(ncclCommInitRank(&comm, 2, id, 2), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRank(&comm, 0, id, 0), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRank(&comm, 1, ncclUniqueId{}, 0), ncclInvalidArgument);
  nccl_ok(ncclCommInitRank(&comm, 1, id, 0));
  float* x = device_copy(own_values(0, 4));
  EXPECT_EQ(ncclAllReduce(x, x, 4, static_cast<ncclDataType_t>(11), ncclSum, comm, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclBroadcast(x, x, 4, ncclFloat, 1, comm, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclAllReduce(nullptr, x, 4, ncclFloat, ncclSum, comm, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclAllReduce(x, x, 4, ncclFloat, ncclSum, nullptr, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  nccl_ok(ncclAllReduce(x, x, 0, ncclFloat, ncclSum, comm, nullptr));
  fail_call("ncclAllReduce", 1, ncclSystemError);
  EXPECT_EQ(ncclAllReduce(x, x, 4, ncclFloat, ncclSum, comm, nullptr), ncclSystemError);
  EXPECT_EQ(counters().kernel_launches, 0u);
  ok(cudaDeviceSynchronize());
  nccl_ok(ncclAllReduce(x, x, 5, ncclFloat, ncclSum, comm, nullptr));  // one element more than allocated
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  EXPECT_TRUE(has(device_error(), "ncclAllReduce: data: 20 bytes"));
  nccl_ok(ncclCommDestroy(comm));
}

}  // namespace
}  // namespace tern::standin
#endif
