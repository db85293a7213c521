// libtern_mpi.so: the only file of Tern that is compiled and linked with MPI.

#include <mpi.h>

#include <climits>
#include <cstdlib>
#include <cstring>

#include "tern/dist/mpi/functions.h"

namespace tern::dist::mpi {
namespace {

static_assert(sizeof(MPI_Request) <= sizeof(Request));

MPI_Comm messages = MPI_COMM_NULL;  // private: other code's messages in this process do not match ours

const char* text_of(int error) {
  if (error == MPI_SUCCESS) return nullptr;
  static char text[MPI_MAX_ERROR_STRING + 1];
  int length = 0;
  if (MPI_Error_string(error, text, &length) != MPI_SUCCESS) length = 0;
  text[length] = 0;
  return length > 0 ? text : "an unknown error of MPI";
}

MPI_Request load(const Request& request) {
  MPI_Request value;
  std::memcpy(&value, request.word, sizeof value);
  return value;
}
void store(Request& request, MPI_Request value) { std::memcpy(request.word, &value, sizeof value); }

const char* library() {
  static char text[MPI_MAX_LIBRARY_VERSION_STRING + 1];
  int length = 0;
  MPI_Get_library_version(text, &length);
  text[length] = 0;
  return text;
}

const char* initialize(int* rank, int* size) {
  int flag = 0, provided = 0;
  if (const char* error = text_of(MPI_Initialized(&flag))) return error;
  if (flag) return "MPI is in use already by other code of this process";
  // Without this Open MPI yields the processor when idle on a busy machine; here the caller sleeps instead.
  setenv("OMPI_MCA_mpi_yield_when_idle", "0", 1);
  // One thread makes all calls, but not the one that runs main: this needs SERIALIZED.
  if (const char* error = text_of(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided))) return error;
  if (provided < MPI_THREAD_SERIALIZED) return "this MPI was built without support for threads";
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (const char* error = text_of(MPI_Comm_rank(MPI_COMM_WORLD, rank))) return error;
  if (const char* error = text_of(MPI_Comm_size(MPI_COMM_WORLD, size))) return error;
  return text_of(MPI_Comm_dup(MPI_COMM_WORLD, &messages));
}

const char* finalize() { return text_of(MPI_Finalize()); }

const char* send(const void* data, int64_t bytes, int to, int tag, Request* request) {
  if (bytes > INT_MAX) return "a message is too large";
  MPI_Request made = MPI_REQUEST_NULL;
  const int error = MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, tag, messages, &made);
  store(*request, made);
  return text_of(error);
}

const char* receive(void* data, int64_t bytes, int from, int tag, Request* request) {
  if (bytes > INT_MAX) return "a message is too large";
  MPI_Request made = MPI_REQUEST_NULL;
  const int error = MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, from, tag, messages, &made);
  store(*request, made);
  return text_of(error);
}

const char* test(Request* request, bool* done, int64_t* bytes) {
  MPI_Request made = load(*request);
  MPI_Status status;
  int flag = 0, count = 0;
  const int error = MPI_Test(&made, &flag, &status);
  store(*request, made);
  *done = flag != 0;
  if (error != MPI_SUCCESS) return text_of(error);
  if (flag && MPI_Get_count(&status, MPI_BYTE, &count) == MPI_SUCCESS && count != MPI_UNDEFINED) *bytes = count;
  return nullptr;
}

}  // namespace
}  // namespace tern::dist::mpi

extern "C" __attribute__((visibility("default"))) const tern::dist::mpi::Functions* tern_mpi_functions() {
  using namespace tern::dist::mpi;
  static const Functions functions = {kFunctionsVersion, library, initialize, finalize, send, receive, test};
  return &functions;
}
