#pragma once
// Shared by the tests of stores, of sessions and of processes that fail.

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tern/data/datasets/files.h"
#include "tern/dist/store.h"
#include "tern/tests/errors.h"

namespace tern::dist {

using test::error_of;

inline void expect_in(const std::string& part, const std::string& text) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
}

inline const std::vector<std::string> kLoopback = {"127.0.0.1"};

/// A folder that its owner removes.
class Scratch : public data::TemporaryDirectory {
 public:
  Scratch() : TemporaryDirectory(std::filesystem::temp_directory_path(), "tern-dist-test") {}
};

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
