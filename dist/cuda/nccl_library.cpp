#include "tern/dist/cuda/nccl_library.h"

#include <type_traits>

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
  decltype(&ncclGetErrorString) GetErrorString;
  decltype(&ncclGetLastError) GetLastError;
  decltype(&ncclGetUniqueId) GetUniqueId;
  decltype(&ncclCommInitRank) CommInitRank;
  decltype(&ncclCommDestroy) CommDestroy;
  decltype(&ncclCommAbort) CommAbort;
  decltype(&ncclCommGetAsyncError) CommGetAsyncError;
  decltype(&ncclAllReduce) AllReduce;
  decltype(&ncclReduceScatter) ReduceScatter;
  decltype(&ncclAllGather) AllGather;
  decltype(&ncclBroadcast) Broadcast;
  decltype(&ncclSend) Send;
  decltype(&ncclRecv) Recv;
};

const Functions& functions() {
  static const Functions found = [] {
    Functions f = {};
#define TERN_FIND(name) f.name = library().function<std::remove_pointer_t<decltype(f.name)>>("nccl" #name)
    TERN_FIND(GetErrorString);
    TERN_FIND(GetLastError);
    TERN_FIND(GetUniqueId);
    TERN_FIND(CommInitRank);
    TERN_FIND(CommDestroy);
    TERN_FIND(CommAbort);
    TERN_FIND(CommGetAsyncError);
    TERN_FIND(AllReduce);
    TERN_FIND(ReduceScatter);
    TERN_FIND(AllGather);
    TERN_FIND(Broadcast);
    TERN_FIND(Send);
    TERN_FIND(Recv);
#undef TERN_FIND
    return f;
  }();
  return found;
}

void check(ncclResult_t result, const char* what, void* group = nullptr) {
  if (result == ncclSuccess) return;
  const std::string words = functions().GetErrorString(result);  // some mention NCCL_DEBUG
  const char* const more = functions().GetLastError(static_cast<ncclComm_t>(group));
  fail("NCCL: ", what, ": ", words, more && *more ? "; " : "", more ? more : "",
       words.find("NCCL_DEBUG") == std::string::npos ? "; NCCL_DEBUG=INFO shows more" : "");
}

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return ncclFloat64;
    case DType::kFloat32:
      return ncclFloat32;
    case DType::kBFloat16:
      return ncclBfloat16;
    case DType::kFloat16:
      return ncclFloat16;
    case DType::kInt64:
      return ncclInt64;
    case DType::kInt32:
      return ncclInt32;
    default:
      return ncclUint8;
  }
}

ncclRedOp_t operation_of(Reduction op) {
  constexpr ncclRedOp_t kOperations[] = {ncclSum, ncclAvg, ncclMax, ncclMin};
  return kOperations[static_cast<int>(op)];
}

ncclComm_t as_group(void* group) { return static_cast<ncclComm_t>(group); }
cudaStream_t as_stream(void* stream) { return static_cast<cudaStream_t>(stream); }

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
  functions().CommDestroy(as_group(group));
}
void abort(void* group) noexcept {
  adopt_device();
  functions().CommAbort(as_group(group));
}

std::string asynchronous_error(void* group) {
  ncclResult_t error = ncclSuccess;
  check(functions().CommGetAsyncError(as_group(group), &error), "ncclCommGetAsyncError", group);
  return error == ncclSuccess || error == ncclInProgress ? "" : functions().GetErrorString(error);
}

void all_reduce(void* group, const void* from, void* to, int64_t count, DType dtype, Reduction op, void* stream) {
  check(functions().AllReduce(from, to, static_cast<size_t>(count), type_of(dtype), operation_of(op), as_group(group),
                              as_stream(stream)),
        "ncclAllReduce", group);
}

void reduce_scatter(void* group, const void* from, void* to, int64_t count, DType dtype, Reduction op, void* stream) {
  check(functions().ReduceScatter(from, to, static_cast<size_t>(count), type_of(dtype), operation_of(op),
                                  as_group(group), as_stream(stream)),
        "ncclReduceScatter", group);
}

void all_gather(void* group, const void* from, void* to, int64_t count, DType dtype, void* stream) {
  check(functions().AllGather(from, to, static_cast<size_t>(count), type_of(dtype), as_group(group), as_stream(stream)),
        "ncclAllGather", group);
}

void broadcast(void* group, void* data, int64_t count, DType dtype, int root, void* stream) {
  check(functions().Broadcast(data, data, static_cast<size_t>(count), type_of(dtype), root, as_group(group),
                              as_stream(stream)),
        "ncclBroadcast", group);
}

void send(void* group, const void* data, int64_t count, DType dtype, int to, void* stream) {
  check(functions().Send(data, static_cast<size_t>(count), type_of(dtype), to, as_group(group), as_stream(stream)),
        "ncclSend", group);
}

void receive(void* group, void* data, int64_t count, DType dtype, int from, void* stream) {
  check(functions().Recv(data, static_cast<size_t>(count), type_of(dtype), from, as_group(group), as_stream(stream)),
        "ncclRecv", group);
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
void all_reduce(void*, const void*, void*, int64_t, DType, Reduction, void*) { fail_without_header(); }
void reduce_scatter(void*, const void*, void*, int64_t, DType, Reduction, void*) { fail_without_header(); }
void all_gather(void*, const void*, void*, int64_t, DType, void*) { fail_without_header(); }
void broadcast(void*, void*, int64_t, DType, int, void*) { fail_without_header(); }
void send(void*, const void*, int64_t, DType, int, void*) { fail_without_header(); }
void receive(void*, void*, int64_t, DType, int, void*) { fail_without_header(); }
#endif

}  // namespace tern::cuda::nccl
