#pragma once
// A small key-value store shared by all ranks of a job: they find each other through it, compare calls and report that
// they are alive. It never carries tensors. Rank 0's process serves a TcpStore; a FileStore is a folder that all ranks
// can access.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tern/kernels/base/check.h"

namespace tern::dist {

/// Another rank is missing, has failed or calls something else; the message names it. If a launcher also has the error
/// of that rank, it shows that one instead.
class PeerError : public Error {
 public:
  using Error::Error;
};

/// Identity of a store's client. A server refuses ranks of other jobs, clients without the secret, and a second process
/// of the same rank.
struct Member {
  int rank = 0, size = 1;
  std::string job;          // equal in all ranks of a job, unique to the job
  std::string secret = {};  // shared by the ranks of a job only; never sent; "": none
};

/// 128 random bits, in hexadecimal digits.
std::string random_secret();

/// May be used by several threads, which then wait for each other; another() opens a separate connection. Keys are any
/// text of at most kMaxKeyBytes; a key and its value together take at most kMaxBytes. Throws Error if they take more,
/// if the store is full (a TcpStore holds 2^20 keys and 256 MiB), and for a request whose answer exceeds 64.5 MiB;
/// PeerError if the store is unreachable or has failed.
class Store {
 public:
  static constexpr size_t kMaxBytes = size_t{1} << 20;
  static constexpr size_t kMaxKeyBytes = size_t{4} << 10;

  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// Returns when every key has a value; after `seconds`, with the values that exist. 0 seconds: does not wait.
  virtual std::vector<std::optional<std::string>> wait(const std::vector<std::string>& keys, double seconds) = 0;
  /// Atomically adds to the number under the key (0 if absent) and returns the sum; no two callers get the same sum.
  virtual int64_t add(const std::string& key, int64_t amount) = 0;
  virtual void erase(const std::string& key) = 0;
  /// Another connection to the same store. Throws PeerError if it cannot connect within `seconds`.
  virtual std::unique_ptr<Store> another(double seconds = 60) = 0;
  /// Makes waiting calls of other threads, and all later calls, fail with an error.
  virtual void interrupt() {}
  /// Marks this rank as finished normally. If its connections end without this call, the others count it as failed.
  virtual void finish() {}
  /// Ranks whose process ended without finish(). Always empty in a FileStore, which cannot detect it.
  virtual std::vector<int> failed_ranks() { return {}; }

  /// The value of one key. Throws PeerError if it is not set in time.
  std::string get(const std::string& key, double seconds);
  /// Every one of `ranks` submits a value; returns all of them in that order. `rank` is the caller's. `key` is used
  /// once. Throws PeerError "<key>: ranks 2, 3 have not arrived within 60 s", or earlier with the text of failure(),
  /// which is "" as long as they may still join.
  std::vector<std::string> exchange(const std::string& key, const std::vector<int>& ranks, int rank,
                                    const std::string& value, double seconds,
                                    const std::function<std::string()>& failure = {});
  /// exchange(), and throws PeerError on every rank if the values are not all equal, with the first line in which one
  /// differs from the first rank's.
  void compare(const std::string& key, const std::vector<int>& ranks, int rank, const std::string& value,
               double seconds, const std::function<std::string()>& failure = {});
};

/// Throws Error if the key or value exceeds a store's limits.
void check_entry(const std::string& key, const std::string& value);

/// "rank 3" or "ranks 1, 3 and 4".
std::string rank_list(const std::vector<int>& ranks);

/// Serves a store from a thread. Drops connections that do not speak the protocol or do not prove within 5 s that they
/// belong to the job; earlier if there are many of them.
class TcpStoreServer {
 public:
  /// Listens at those of the numeric addresses (addresses.h) that this machine has; port 0: any free one. Throws Error
  /// if the port is in use.
  TcpStoreServer(const std::vector<std::string>& addresses, int port, const Member& owner);
  /// Keeps answering connected clients for a short time, since they may not have read the last answer yet.
  ~TcpStoreServer();
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;
  int port() const;
  /// The addresses at which it listens.
  const std::vector<std::string>& addresses() const;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

/// A connection to a TcpStoreServer. Retries for `seconds` while nothing listens. Throws PeerError if the master does
/// not answer, Error if the other side is not a store, belongs to another job, or already has this rank. `hosts` are
/// names or addresses of the same server, tried in turn.
std::unique_ptr<Store> connect_tcp_store(const std::vector<std::string>& hosts, int port, const Member& member,
                                         double seconds);

/// A store in a folder on a file system shared by all ranks. Throws Error if the folder cannot be written, or already
/// has this rank of the same job.
std::unique_ptr<Store> open_file_store(const std::string& folder, const Member& member);

}  // namespace tern::dist
