#pragma once
// What all groups of a process share: the store, the options, and the watch over the other ranks. A thread tells the
// store twice a second what this rank calls, and asks who has ended.

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "tern/dist/call.h"

namespace tern::dist {

class Session {
 public:
  /// Returns when all ranks have come. Throws PeerError naming those that have not within `start_seconds`, those that
  /// have ended meanwhile, and those whose `facts` (what must be the same everywhere) differ.
  Session(std::unique_ptr<Store> store, const Member& member, const GroupOptions& options, const std::string& facts,
          double start_seconds);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const GroupOptions& options() const { return options_; }
  const Member& member() const { return member_; }
  Store& store() { return *store_; }
  /// Ends the session in order: returns when all ranks have called it. Throws PeerError as exchange() does.
  void finish();

  /// What each of the world's `ranks`, this one among them, brings under the key, which is used once. Throws PeerError
  /// after the timeout, and as soon as a rank has failed.
  std::vector<std::string> exchange(const std::string& key, const std::vector<int>& ranks, const std::string& value);
  /// This rank is about to make the call.
  void note(const std::string& group, int64_t number, const std::string& text);
  /// check mode: compares the call with those of the other ranks.
  void compare(const std::string& group, const std::vector<int>& ranks, const Call& call, int other_world_rank);
  /// What to say when a call of this group has waited too long: which ranks have not made it, and what they last did.
  std::string describe_missing(const std::string& group, const std::vector<int>& ranks, int64_t number,
                               const std::string& text);
  /// Why no operation can succeed any more, or "".
  std::string failure() const;
  /// The first reason stays.
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
