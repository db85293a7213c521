#pragma once
// What a TcpStoreServer answers, without sockets: bytes of a connection in, bytes out. It bounds what its clients can
// make it keep; the numbers are in tcp_protocol.h.

#include <chrono>
#include <list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tern/dist/store.h"
#include "tern/dist/tcp_protocol.h"

namespace tern::dist::tcp {

using Clock = std::chrono::steady_clock;

class Connection {
 public:
  /// What is to be sent. Service::sent() takes it off.
  std::string_view out() const { return std::string_view(out_).substr(sent_); }
  /// Closed by the owner of the sockets when out() is sent or fails.
  bool closing() const { return closing_; }
  bool is_member() const { return state_ == State::kMember; }
  /// More may be read from it: it has read its last answer.
  bool may_speak() const { return out_.empty() && !closing_; }
  int socket = -1;

 private:
  friend class Service;
  enum class State { kSilent, kProving, kMember };
  State state_ = State::kSilent;
  std::string in_, out_;
  size_t sent_ = 0;  // of out_
  bool closing_ = false;
  Clock::time_point opened_, last_sent_;

  // From the hello on.
  int rank_ = -1;
  uint64_t process_ = 0;
  std::string expected_proof_;

  // While it waits for keys.
  std::vector<std::string> keys_;
  Clock::time_point deadline_;
  bool lacks_room_ = false;  // its answer is ready and too much waits to be sent
};

class Service {
 public:
  explicit Service(const Member& owner, const Limits& limits = {}) : owner_(owner), limits_(limits) {}

  std::list<Connection>& connections() { return connections_; }
  /// Opens one. Those that have not shown who they are may be kMaxStrangers: the longest-silent one gives way.
  Connection& open(Clock::time_point now);
  /// Closes the stranger that has been silent the longest. False: there is none.
  bool drop_stranger();
  void receive(Connection& c, std::string_view bytes, Clock::time_point now);
  /// That many bytes of out() are sent.
  void sent(Connection& c, size_t bytes, Clock::time_point now);
  /// The other side is gone.
  void lost(Connection& c);
  /// Answers those whose keys have come or whose time is over; closes those who take too long.
  void advance(Clock::time_point now);
  /// Forgets c, which closes; returns the next one.
  std::list<Connection>::iterator remove(std::list<Connection>::iterator c);
  /// When advance() has to be called at the latest.
  Clock::time_point next_deadline(Clock::time_point otherwise) const;
  /// Tells every member that the store has failed; nothing more is read from them, and nobody is admitted. Keys and
  /// values are given up.
  void fail(const std::string& reason);

 private:
  struct Rank {
    uint64_t process = 0;  // a number that one process drew
    int connections = 0;
    bool finished = false;
  };
  void handle_messages(Connection& c, Clock::time_point now);
  bool greet(Connection& c, const std::string& message);
  bool admit(Connection& c, const std::string& message);
  bool serve(Connection& c, const std::string& message, Clock::time_point now);
  bool start_waiting(Connection& c, Reader& reader, Clock::time_point now);
  void try_answer(Connection& c, Clock::time_point now);
  /// "" when the value was stored, else why not.
  std::string store(const std::string& key, const std::string& value);
  void erase(const std::string& key);
  void answer(Connection& c, const Writer& writer);
  void answer_ok(Connection& c) { answer(c, Writer().number(Answer::kOk)); }
  void refuse(Connection& c, const std::string& why) { answer(c, Writer().number(Answer::kRefused).string(why)); }
  void refuse_and_close(Connection& c, const std::string& why);
  void close(Connection& c);
  void forget_out(Connection& c);

  Member owner_;
  Limits limits_;
  std::list<Connection> connections_;
  size_t strangers_ = 0;  // of connections_, without those that close
  std::map<std::string, std::string> values_;
  size_t stored_ = 0;  // bytes of values_
  size_t unsent_ = 0;  // bytes of all out_, which go when the last is sent
  std::map<int, Rank> ranks_;
  std::set<int> gone_;
  std::string failure_;
  Clock::time_point now_;
};

}  // namespace tern::dist::tcp
