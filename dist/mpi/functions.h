#pragma once
// The MPI operations that Tern uses, as plain functions. libtern_mpi.so, the only file linked with MPI, provides them;
// the program loads it on demand, so that it also starts on machines without MPI. One thread makes all calls.

#include <cstdint>

namespace tern::dist::mpi {

/// Tags may be in [0, 2^22], which every MPI supports.
inline constexpr int kFunctionsVersion = 1;
inline constexpr const char* kFunctionsName = "tern_mpi_functions";

/// A transfer in progress: the bytes of an MPI_Request of any implementation.
struct Request {
  uint64_t word[2] = {0, 0};
};

/// Functions that may fail return null or MPI's error text, valid until the next call.
struct Functions {
  int version;
  const char* (*library)();  // "Open MPI v4.1.4"
  /// Joins the job that the MPI launcher started. Returns when all ranks have called it.
  const char* (*initialize)(int* rank, int* size);
  /// Waits for all ranks.
  const char* (*finalize)();
  const char* (*send)(const void* data, int64_t bytes, int to, int tag, Request* request);
  const char* (*receive)(void* data, int64_t bytes, int from, int tag, Request* request);
  /// `bytes`: number received, set for a receive that is done.
  const char* (*test)(Request* request, bool* done, int64_t* bytes);
};

}  // namespace tern::dist::mpi
