#pragma once
// Shared by the tests of stores, of sessions and of processes that fail.

#include <memory>

#include "tern/dist/store/store.h"
#include "tern/tests/errors.h"
#include "tern/tests/support/temporary_folder.h"

namespace tern::dist {

using test::error_of;
using test::expect_contains;
using test::expect_error;
using test::TemporaryFolder;

inline const std::vector<std::string> kLoopback = {"127.0.0.1"};

/// A job whose store is served by this process; any of its ranks may be connected from here.
class TcpJob {
 public:
  explicit TcpJob(int size, const std::string& secret = "")
      : size_(size), secret_(secret), server_(kLoopback, 0, member(0)) {}
  Member member(int rank) const { return {rank, size_, "job", secret_}; }
  int port() const { return server_.port(); }
  std::unique_ptr<Store> connect(int rank, double seconds = 10) const { return connect(member(rank), seconds); }
  std::unique_ptr<Store> connect(const Member& other, double seconds = 10) const {
    return connect_tcp_store(kLoopback, port(), other, seconds);
  }

 private:
  int size_;
  std::string secret_;
  TcpStoreServer server_;
};

}  // namespace tern::dist
