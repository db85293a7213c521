#pragma once
// A small key-value store that all ranks of a job share: they find each other through it, compare what they call, and
// tell that they live. Tensors never pass through it. Rank 0 serves a TcpStore from its process; a FileStore is a
// folder that all ranks see.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tern/core/check.h"

namespace tern::dist {

/// Another rank is missing, has failed or does something else: the message names it. A launcher that has the error of
/// that rank shows it instead.
class PeerError : public Error {
 public:
  using Error::Error;
};

/// Who asks for a store. A server refuses another job's ranks, who does not know the secret, and a second process of
/// the same rank.
struct Member {
  int rank = 0, size = 1;
  std::string job;          // the same word in all ranks of a job, and in no other job
  std::string secret = {};  // the same in all ranks of a job, and known to nobody else; never sent; "": none
};

/// 128 random bits, in hexadecimal digits.
std::string random_secret();

/// Safe for use by several threads, which then wait for each other; another() is a connection of its own. Keys are
/// any text of at most kMaxKeyBytes; a key and its value take at most kMaxBytes together. Throws Error when they take
/// more, when the store is full (a TcpStore holds 2^20 keys and 256 MiB), and for a request whose answer exceeds 64.5
/// MiB; PeerError when the store cannot be reached any more or has failed.
class Store {
 public:
  static constexpr size_t kMaxBytes = size_t{1} << 20;
  static constexpr size_t kMaxKeyBytes = size_t{4} << 10;

  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// The values, as soon as every key has one; after `seconds` those that are there. 0 seconds: what is there now.
  virtual std::vector<std::optional<std::string>> wait(const std::vector<std::string>& keys, double seconds) = 0;
  /// Adds to the number under the key (0 when there is none) and returns the sum; no two callers see the same one.
  virtual int64_t add(const std::string& key, int64_t amount) = 0;
  virtual void erase(const std::string& key) = 0;
  /// Another connection to the same store. Throws PeerError when there is none within `seconds`.
  virtual std::unique_ptr<Store> another(double seconds = 60) = 0;
  /// Calls of other threads that wait for the store return with an error, and later ones too.
  virtual void interrupt() {}
  /// This rank has finished in order. A rank whose connections end without it is told to the others by gone().
  virtual void finish() {}
  /// Ranks whose process ended without finish(). Always empty in a FileStore, which cannot know.
  virtual std::vector<int> gone() { return {}; }

  /// The value of one key. Throws PeerError when nobody has set it in time.
  std::string get(const std::string& key, double seconds);
  /// Every one of `ranks` brings a value; the result is all of them in that order. `rank` is the caller's. `key` is
  /// used once. Throws PeerError "<key>: ranks 2, 3 have not come within 60 s", or sooner with what failure() says,
  /// which is "" as long as they may still come.
  std::vector<std::string> exchange(const std::string& key, const std::vector<int>& ranks, int rank,
                                    const std::string& value, double seconds,
                                    const std::function<std::string()>& failure = {});
  /// exchange(), and throws PeerError on every rank when the values are not all the same, with the first line in which
  /// one differs from the first rank's.
  void compare(const std::string& key, const std::vector<int>& ranks, int rank, const std::string& value,
               double seconds, const std::function<std::string()>& failure = {});
};

/// Throws Error when a store does not take such a key or value.
void check_entry(const std::string& key, const std::string& value);

/// "rank 3" or "ranks 1, 3 and 4".
std::string rank_list(const std::vector<int>& ranks);

/// Serves a store from a thread. Whatever connects and does not speak the protocol is dropped, and so is who does not
/// show within 5 s that it belongs to the job, or sooner when many such connect.
class TcpStoreServer {
 public:
  /// Listens at these addresses, in digits (addresses.h), those of them that this machine has; port 0: any that is
  /// free. Throws Error when the port is in use.
  TcpStoreServer(const std::vector<std::string>& addresses, int port, const Member& owner);
  /// Answers those who are connected for a little longer, until they go: they may not have read the last word yet.
  ~TcpStoreServer();
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;
  int port() const;
  /// Where it listens.
  const std::vector<std::string>& addresses() const;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

/// A connection to a TcpStoreServer. Tries until `seconds` are over while nobody listens. Throws PeerError when the
/// master does not answer, Error when what answers is no store, or that of another job, or says that this rank is there
/// already. `hosts` are tried in turn: names or addresses of the same server.
std::unique_ptr<Store> connect_tcp_store(const std::vector<std::string>& hosts, int port, const Member& member,
                                         double seconds);

/// A store in a folder on a file system that all ranks share. Throws Error when the folder cannot be written, or holds
/// this rank of the same job already.
std::unique_ptr<Store> open_file_store(const std::string& folder, const Member& member);

}  // namespace tern::dist
