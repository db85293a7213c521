#pragma once
// State shared by all groups of a process: the store, the options, and the failure watch. Twice a second a thread
// publishes this rank's current call in the store and queries which ranks have ended.

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "tern/dist/collectives/call.h"

namespace tern::dist {

class Session {
 public:
  /// Returns when all ranks have joined. Throws PeerError that names ranks that have not joined within `start_seconds`,
  /// have ended, or have different `facts` (text that must be equal in all ranks).
  Session(std::unique_ptr<Store> store, const Member& member, const GroupOptions& options, const std::string& facts,
          double start_seconds);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const GroupOptions& options() const { return options_; }
  const Member& member() const { return member_; }
  Store& store() { return *store_; }
  /// Ends the session normally: returns when all ranks have called it. Throws PeerError as exchange() does.
  void finish();

  /// The values that the given world `ranks`, which include this one, submit under the key. A key is used once. Throws
  /// PeerError after the timeout, and as soon as a rank has failed.
  std::vector<std::string> exchange(const std::string& key, const std::vector<int>& ranks, const std::string& value);
  /// Records that this rank is about to make the call.
  void note(const std::string& group, int64_t number, const std::string& text);
  /// check mode: compares the call with those of the other ranks.
  void compare(const std::string& group, const std::vector<int>& ranks, const Call& call, int other_world_rank);
  /// The message for a call of this group that timed out: the ranks that have not made it, and their last calls.
  std::string describe_missing(const std::string& group, const std::vector<int>& ranks, int64_t number,
                               const std::string& text);
  /// The reason why all further operations fail, or "".
  std::string failure() const;
  /// Keeps the first reason.
  void set_failure(const std::string& reason);
  bool has_failed() const { return failed_.load(std::memory_order_relaxed); }

 private:
  struct Place {
    int64_t number = 0;
    std::string text;
  };
  void watch();
  void stop_watching();
  std::string own_places() const;

  std::unique_ptr<Store> store_, watch_store_;
  Member member_;
  GroupOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::map<std::string, Place> places_;  // by group
  std::string failure_;
  std::atomic<bool> failed_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tern::dist
