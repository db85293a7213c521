#pragma once
// What Tern asks of MPI, as plain functions. libtern_mpi.so, the one file that is linked with MPI, hands them out; the
// program loads it when it needs it, so that it starts on machines without MPI. All calls are made by one thread.

#include <cstdint>

namespace tern::dist::mpi {

/// Tags may be in [0, 2^22]: all MPIs have that many.
inline constexpr int kFunctionsVersion = 1;
inline constexpr const char* kFunctionsName = "tern_mpi_functions";

/// A transfer on its way: MPI's own word, whatever its type.
struct Request {
  uint64_t word[2] = {0, 0};
};

/// Functions that may fail return null or what MPI said, valid until the next call.
struct Functions {
  int version;
  const char* (*library)();  // "Open MPI v4.1.4"
  /// Joins the job that MPI's launcher started. Returns when all ranks have called it.
  const char* (*initialize)(int* rank, int* size);
  /// Waits for all ranks.
  const char* (*finalize)();
  const char* (*send)(const void* data, int64_t bytes, int to, int tag, Request* request);
  const char* (*receive)(void* data, int64_t bytes, int from, int tag, Request* request);
  /// `bytes`: received, of a receive that is done.
  const char* (*test)(Request* request, bool* done, int64_t* bytes);
};

}  // namespace tern::dist::mpi
