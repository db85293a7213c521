#include "tern/dist/cuda/nccl_library.h"

#include "tern/core/cuda/current_device.h"
#include "tern/core/device/backend.h"
#include "tern/kernels/base/check.h"

#if __has_include(<nccl.h>)
#include <nccl.h>
#endif

namespace tern::cuda::nccl {
namespace {

// Declared here like the library's symbol, so that `tern info` needs no NCCL header.
std::string version_of(void* probe) {
  int version = 0;
  if (reinterpret_cast<int (*)(int*)>(probe)(&version) != 0) return "of unknown version";
  return kernels::cuda::dotted_version(static_cast<size_t>(version));
}

}  // namespace

// Never destroyed: threads may still use it while the program ends.
kernels::cuda::SharedLibrary& library() {
  static auto& instance = *new kernels::cuda::SharedLibrary({"NCCL",
                                                             "training on several GPUs",
                                                             {"libnccl.so.2"},
                                                             "package libnccl2",
                                                             "TERN_NCCL",
                                                             "ncclGetVersion",
                                                             version_of});
  return instance;
}

std::string version() { return library().info().version; }

#if __has_include(<nccl.h>)

namespace {

/// The library's functions, named without "nccl".
struct Functions {
  TERN_LIBRARY_FUNCTION(library(), nccl, GetErrorString);
  TERN_LIBRARY_FUNCTION(library(), nccl, GetLastError);
  TERN_LIBRARY_FUNCTION(library(), nccl, GetUniqueId);
  TERN_LIBRARY_FUNCTION(library(), nccl, CommInitRank);
  TERN_LIBRARY_FUNCTION(library(), nccl, CommDestroy);
  TERN_LIBRARY_FUNCTION(library(), nccl, CommAbort);
  TERN_LIBRARY_FUNCTION(library(), nccl, CommGetAsyncError);
  TERN_LIBRARY_FUNCTION(library(), nccl, AllReduce);
  TERN_LIBRARY_FUNCTION(library(), nccl, ReduceScatter);
  TERN_LIBRARY_FUNCTION(library(), nccl, AllGather);
  TERN_LIBRARY_FUNCTION(library(), nccl, Broadcast);
  TERN_LIBRARY_FUNCTION(library(), nccl, Send);
  TERN_LIBRARY_FUNCTION(library(), nccl, Recv);
};

const Functions& functions() {
  static const Functions found{};
  return found;
}

void check(ncclResult_t result, const char* what, void* group = nullptr) {
  if (result == ncclSuccess) return;
  const std::string words = functions().GetErrorString(result);  // some mention NCCL_DEBUG
  const char* const more = functions().GetLastError(static_cast<ncclComm_t>(group));
  fail("NCCL: ", what, ": ", words, more && *more ? "; " : "", more ? more : "",
       words.find("NCCL_DEBUG") == std::string::npos ? "; NCCL_DEBUG=INFO shows more" : "");
}

}  // namespace

std::string unique_id() {
  ncclUniqueId id;
  check(functions().GetUniqueId(&id), "ncclGetUniqueId");
  return std::string(id.internal, sizeof id.internal);
}

void* connect(int index, const std::string& id, int ranks, int rank) {
  ncclUniqueId unique;
  TERN_CHECK(id.size() == sizeof unique.internal, "NCCL: the identifier has ", id.size(), " bytes instead of ",
             sizeof unique.internal);
  id.copy(unique.internal, id.size());
  current_stream(index);  // makes the device current, on which NCCL works
  ncclComm_t group = nullptr;
  check(functions().CommInitRank(&group, ranks, unique, rank), "ncclCommInitRank");
  return group;
}

// NCCL restores the device that was current before, and thereby initialises it.
void destroy(void* group) noexcept {
  adopt_device();
  functions().CommDestroy(static_cast<ncclComm_t>(group));
}
void abort(void* group) noexcept {
  adopt_device();
  functions().CommAbort(static_cast<ncclComm_t>(group));
}

std::string asynchronous_error(void* group) {
  ncclResult_t error = ncclSuccess;
  check(functions().CommGetAsyncError(static_cast<ncclComm_t>(group), &error), "ncclCommGetAsyncError", group);
  return error == ncclSuccess || error == ncclInProgress ? "" : functions().GetErrorString(error);
}

void queue(void* group, const dist::Call& call, void* stream) {
  constexpr ncclDataType_t kTypes[] = {ncclFloat64, ncclFloat32, ncclBfloat16, ncclFloat16,
                                       ncclInt64,   ncclInt32,   ncclUint8,    ncclUint8};  // as DType
  constexpr ncclRedOp_t kReductions[] = {ncclSum, ncclAvg, ncclMax, ncclMin};               // as ReduceOp
  const void* const from = call.input.defined() ? call.input.raw_data() : nullptr;
  void* const to = call.output.defined() ? call.output.raw_data() : nullptr;
  const bool scatters = call.operation == dist::Operation::kReduceScatter;  // NCCL counts the elements of a part
  const auto count = static_cast<size_t>((scatters ? call.output : call.tensor()).numel());
  const ncclDataType_t type = kTypes[static_cast<int>(call.tensor().dtype())];
  const ncclRedOp_t op = kReductions[static_cast<int>(call.op)];
  const auto comm = static_cast<ncclComm_t>(group);
  const auto queue = static_cast<cudaStream_t>(stream);
  const Functions& nccl = functions();
  if (count == 0) return;
  switch (call.operation) {
    case dist::Operation::kAllReduce:
      return check(nccl.AllReduce(from, to, count, type, op, comm, queue), "ncclAllReduce", group);
    case dist::Operation::kReduceScatter:
      return check(nccl.ReduceScatter(from, to, count, type, op, comm, queue), "ncclReduceScatter", group);
    case dist::Operation::kAllGather:
      return check(nccl.AllGather(from, to, count, type, comm, queue), "ncclAllGather", group);
    case dist::Operation::kBroadcast:
      return check(nccl.Broadcast(to, to, count, type, call.peer, comm, queue), "ncclBroadcast", group);
    case dist::Operation::kSend:
      return check(nccl.Send(from, count, type, call.peer, comm, queue), "ncclSend", group);
    default:
      return check(nccl.Recv(to, count, type, call.peer, comm, queue), "ncclRecv", group);
  }
}

#else

namespace {
[[noreturn]] void fail_without_header() {
  fail("this build cannot use NCCL: its header nccl.h was not there; install package libnccl-dev and build Tern again");
}
}  // namespace

std::string unique_id() { fail_without_header(); }
void* connect(int, const std::string&, int, int) { fail_without_header(); }
void destroy(void*) noexcept {}
void abort(void*) noexcept {}
std::string asynchronous_error(void*) { return ""; }
void queue(void*, const dist::Call&, void*) { fail_without_header(); }
#endif

}  // namespace tern::cuda::nccl
