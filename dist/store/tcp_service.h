#pragma once
// The logic of a TcpStoreServer, without sockets: bytes of a connection in, bytes out. The limits on the memory that
// clients can use are in tcp_protocol.h.

#include <chrono>
#include <list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tern/dist/store/store.h"
#include "tern/dist/store/tcp_protocol.h"

namespace tern::dist::tcp {

using Clock = std::chrono::steady_clock;

class Connection {
 public:
  /// Pending output. Service::sent() removes it.
  std::string_view out() const { return std::string_view(out_).substr(sent_); }
  /// The owner of the sockets closes it when out() is sent or fails.
  bool closing() const { return closing_; }
  bool is_member() const { return state_ == State::kMember; }
  /// Whether more may be read from it: its last answer has been sent.
  bool may_send_request() const { return out_.empty() && !closing_; }
  int socket = -1;

 private:
  friend class Service;
  enum class State { kSilent, kProving, kMember };
  State state_ = State::kSilent;
  std::string in_, out_;
  size_t sent_ = 0;  // sent bytes of out_
  bool closing_ = false;
  Clock::time_point opened_, last_sent_;

  // Set by the hello.
  int rank_ = -1;
  uint64_t process_ = 0;
  std::string expected_proof_;

  // Set while it waits for keys.
  std::vector<std::string> keys_;
  Clock::time_point deadline_;
  bool is_over_limit_ = false;  // its answer is ready, but too much output is pending
};

class Service {
 public:
  explicit Service(const Member& owner, const Limits& limits = {}) : owner_(owner), limits_(limits) {}

  std::list<Connection>& connections() { return connections_; }
  /// Opens one. At most kMaxStrangers have not proved their identity: beyond that the longest-silent one is closed.
  Connection& open(Clock::time_point now);
  /// Closes the stranger that has been silent the longest. False if there is none.
  bool drop_stranger();
  void receive(Connection& c, std::string_view bytes, Clock::time_point now);
  /// Marks that many bytes of out() as sent.
  void sent(Connection& c, size_t bytes, Clock::time_point now);
  /// The other side has disconnected.
  void lost(Connection& c);
  /// Answers clients whose keys are complete or whose time is over; closes those that take too long.
  void advance(Clock::time_point now);
  /// Removes c before its socket is closed; returns the next one.
  std::list<Connection>::iterator remove(std::list<Connection>::iterator c);
  /// The latest time at which advance() must be called.
  Clock::time_point next_deadline(Clock::time_point otherwise) const;
  /// Sends every member the store's failure; nothing more is read from them, and no one is admitted. Frees keys and
  /// values.
  void fail(const std::string& reason);

 private:
  struct Rank {
    uint64_t process = 0;  // random id of the process
    int connections = 0;
    bool finished = false;
  };
  void handle_messages(Connection& c);
  bool greet(Connection& c, const std::string& message);
  bool admit(Connection& c, const std::string& message);
  bool serve(Connection& c, const std::string& message);
  bool start_waiting(Connection& c, Reader& reader);
  void try_answer(Connection& c);
  /// "" if the value was stored, otherwise the reason why not.
  std::string store(const std::string& key, const std::string& value);
  void erase(const std::string& key);
  void answer(Connection& c, const Writer& writer);
  void answer_ok(Connection& c) { answer(c, Writer().number(Answer::kOk)); }
  void refuse(Connection& c, const std::string& why) { answer(c, Writer().number(Answer::kRefused).string(why)); }
  /// Returns true: the message was understood.
  bool refuse_and_close(Connection& c, const std::string& why);
  void close(Connection& c);
  void forget_out(Connection& c);

  Member owner_;
  Limits limits_;
  std::list<Connection> connections_;
  size_t strangers_ = 0;  // of connections_, except closing ones
  std::map<std::string, std::string> values_;
  size_t stored_ = 0;  // bytes of values_
  size_t unsent_ = 0;  // bytes of all out_, freed when fully sent
  std::map<int, Rank> ranks_;
  std::set<int> gone_;
  std::string failure_;
  Clock::time_point now_;  // of the last call that gave it
};

}  // namespace tern::dist::tcp
