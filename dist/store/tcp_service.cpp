#include "tern/dist/store/tcp_service.h"

#include <algorithm>
#include <charconv>

namespace tern::dist::tcp {
namespace {

constexpr auto kHelloTime = std::chrono::seconds(5);
/// Time for a member to read its answer: as long as a client waits for one.
constexpr auto kSendTime = std::chrono::seconds(60);
/// Memory overhead of a key in addition to the bytes of key and value.
constexpr size_t kKeyCost = 128;

size_t cost(const std::string& key, const std::string& value) { return key.size() + value.size() + kKeyCost; }

}  // namespace

Connection& Service::open(Clock::time_point now) {
  now_ = now;
  if (strangers_ >= kMaxStrangers) drop_stranger();
  Connection& c = connections_.emplace_back();
  c.opened_ = c.last_sent_ = now;
  ++strangers_;
  return c;
}

bool Service::drop_stranger() {
  for (const auto state : {Connection::State::kSilent, Connection::State::kProving})
    for (Connection& c : connections_)
      if (c.state_ == state && !c.closing_) {
        lost(c);
        return true;
      }
  return false;
}

void Service::close(Connection& c) {
  if (!c.closing_ && !c.is_member()) --strangers_;
  c.closing_ = true;
}

void Service::lost(Connection& c) {
  close(c);
  forget_out(c);
}

void Service::forget_out(Connection& c) {
  unsent_ -= c.out_.size();
  c.out_ = {};
  c.sent_ = 0;
}

std::list<Connection>::iterator Service::remove(std::list<Connection>::iterator c) {
  lost(*c);
  if (c->is_member()) {
    Rank& rank = ranks_[c->rank_];
    if (--rank.connections == 0 && !rank.finished) gone_.insert(c->rank_);
  }
  return connections_.erase(c);
}

void Service::receive(Connection& c, std::string_view bytes, Clock::time_point now) {
  now_ = now;
  if (c.closing_ || (c.is_member() && !failure_.empty())) return;
  c.in_ += bytes;
  handle_messages(c);
}

void Service::sent(Connection& c, size_t bytes, Clock::time_point now) {
  now_ = c.last_sent_ = now;
  c.sent_ += bytes;
  if (!c.out().empty()) return;
  forget_out(c);
  handle_messages(c);
}

void Service::handle_messages(Connection& c) {
  // The next message is parsed after the answer to the previous one is sent: at most one answer is pending.
  while (!c.closing_ && c.out_.empty() && c.in_.size() >= 4) {
    uint32_t size = 0;
    std::memcpy(&size, c.in_.data(), 4);
    // A client that sends while it waits violates the protocol.
    if (size > (c.is_member() ? kMaxMessage : kMaxHello) || !c.keys_.empty()) return close(c);
    if (c.in_.size() < 4 + size_t{size}) return;
    const std::string message = c.in_.substr(4, size);
    c.in_.erase(0, 4 + size_t{size});
    const bool understood = c.state_ == Connection::State::kSilent    ? greet(c, message)
                            : c.state_ == Connection::State::kProving ? admit(c, message)
                                                                      : serve(c, message);
    if (!understood) close(c);
  }
}

void Service::answer(Connection& c, const Writer& writer) {
  const std::string message = writer.framed();
  if (c.out_.empty()) c.last_sent_ = now_;
  c.out_ += message;
  unsent_ += message.size();
}

bool Service::refuse_and_close(Connection& c, const std::string& why) {
  refuse(c, why);
  close(c);
  return true;
}

bool Service::greet(Connection& c, const std::string& message) {
  Reader reader(message);
  const std::string magic = reader.string();
  if (magic != kMagic && magic.starts_with("tern store "))
    return refuse_and_close(c, "it is of another version of Tern: all ranks of a job run the same");
  if (magic != kMagic) return false;
  const std::string job = reader.string();
  const auto rank = reader.number<int32_t>(), size = reader.number<int32_t>();
  c.process_ = reader.number<uint64_t>();
  const std::string its_nonce = reader.string();
  if (!reader.complete() || its_nonce.size() != kNonceBytes) return false;
  if (job != owner_.job) return refuse_and_close(c, "it serves another job");
  if (size != owner_.size)
    return refuse_and_close(c, detail::concatenate("it serves a job of ", owner_.size, " ranks, and rank ", rank,
                                                   " says that there are ", size));
  if (rank < 0 || rank >= size)
    return refuse_and_close(c, detail::concatenate("rank ", rank, " is not in [0, ", size, ")"));
  c.rank_ = rank;
  c.state_ = Connection::State::kProving;
  const std::string own_nonce = nonce();
  c.expected_proof_ = proof(owner_.secret, Side::kClient, message, own_nonce);
  answer(c, Writer()
                .number(Answer::kOk)
                .string(kMagic)
                .string(own_nonce)
                .string(proof(owner_.secret, Side::kServer, message, own_nonce)));
  return true;
}

bool Service::admit(Connection& c, const std::string& message) {
  Reader reader(message);
  const std::string its_proof = reader.string();
  if (!reader.complete()) return false;
  if (!equal_proofs(its_proof, c.expected_proof_))
    return refuse_and_close(c, "its secret is another: TERN_DIST_SECRET must be the same in all ranks of the job");
  if (!failure_.empty()) return refuse_and_close(c, "rank 0's store has failed: " + failure_);
  const auto known = ranks_.find(c.rank_);
  if (known != ranks_.end() && known->second.process != c.process_)
    return refuse_and_close(
        c, detail::concatenate("rank ", c.rank_, " is connected already: two processes claim to be rank ", c.rank_));
  if (known != ranks_.end() && known->second.connections >= kMaxConnectionsOfRank)
    return refuse_and_close(c, detail::concatenate("rank ", c.rank_, " has ", kMaxConnectionsOfRank,
                                                   " connections already, as many as one rank may have"));
  Rank& rank = ranks_[c.rank_];
  rank.process = c.process_;
  ++rank.connections;
  gone_.erase(c.rank_);  // the same process again: its first attempt to connect was interrupted
  c.state_ = Connection::State::kMember;
  --strangers_;
  answer_ok(c);
  return true;
}

std::string Service::store(const std::string& key, const std::string& value) {
  if (key.size() > Store::kMaxKeyBytes)
    return detail::concatenate("a key of ", key.size(), " bytes; one may have ", Store::kMaxKeyBytes);
  if (key.size() + value.size() > Store::kMaxBytes)
    return detail::concatenate("a value of ", value.size(), " bytes; with its key it may have ", Store::kMaxBytes);
  const auto found = values_.find(key);
  const size_t before = found == values_.end() ? 0 : cost(key, found->second), after = cost(key, value);
  if (found == values_.end() && values_.size() >= limits_.keys)
    return detail::concatenate("the store is full: it has ", values_.size(), " keys, as many as it may");
  if (stored_ - before + after > limits_.stored)
    return detail::concatenate("the store is full: it has ", stored_, " bytes, and ", after - std::min(before, after),
                               " more are over its limit of ", limits_.stored);
  if (found == values_.end())
    values_.emplace(key, value);
  else
    found->second = value;
  stored_ += after - before;
  return "";
}

void Service::erase(const std::string& key) {
  const auto found = values_.find(key);
  if (found == values_.end()) return;
  stored_ -= cost(key, found->second);
  values_.erase(found);
}

/// False if the message is malformed.
bool Service::serve(Connection& c, const std::string& message) {
  Reader reader(message);
  switch (static_cast<Request>(reader.number<uint8_t>())) {
    case Request::kSet: {
      const std::string key = reader.string(), value = reader.string();
      if (!reader.complete()) return false;
      const std::string problem = store(key, value);
      problem.empty() ? answer_ok(c) : refuse(c, problem);
      return true;
    }
    case Request::kErase: {
      const std::string key = reader.string();
      if (!reader.complete()) return false;
      erase(key);
      answer_ok(c);
      return true;
    }
    case Request::kAdd: {
      const std::string key = reader.string();
      const auto amount = reader.number<int64_t>();
      if (!reader.complete()) return false;
      int64_t before = 0;
      if (const auto found = values_.find(key); found != values_.end())
        std::from_chars(found->second.data(), found->second.data() + found->second.size(), before);
      const auto sum = static_cast<int64_t>(static_cast<uint64_t>(before) + static_cast<uint64_t>(amount));
      const std::string problem = store(key, std::to_string(sum));
      problem.empty() ? answer(c, Writer().number(Answer::kOk).number(sum)) : refuse(c, problem);
      return true;
    }
    case Request::kGone: {
      if (!reader.complete()) return false;
      Writer writer;
      writer.number(Answer::kOk).number(static_cast<uint32_t>(gone_.size()));
      for (const int rank : gone_) writer.number(static_cast<int32_t>(rank));
      answer(c, writer);
      return true;
    }
    case Request::kFinish:
      if (!reader.complete()) return false;
      ranks_[c.rank_].finished = true;
      answer_ok(c);
      return true;
    case Request::kWait:
      return start_waiting(c, reader);
  }
  return false;
}

bool Service::start_waiting(Connection& c, Reader& reader) {
  const auto milliseconds = reader.number<int64_t>();
  const auto count = reader.number<uint32_t>();
  if (!reader.good() || count == 0 || count > kMaxKeys || milliseconds < 0) return false;
  std::vector<std::string> keys;
  for (uint32_t i = 0; i < count && reader.good(); ++i) keys.push_back(reader.string());
  if (!reader.complete()) return false;
  c.keys_ = std::move(keys);
  c.deadline_ = now_ + std::chrono::milliseconds(std::min<int64_t>(milliseconds, int64_t{1} << 40));
  try_answer(c);
  return true;
}

/// Answers a waiting client if all its keys have values or its time is over.
void Service::try_answer(Connection& c) {
  size_t bytes = sizeof(uint32_t) + sizeof(Answer);  // size of the answer written below
  bool all = true;
  for (const std::string& key : c.keys_) {
    const auto found = values_.find(key);
    all = all && found != values_.end();
    bytes += 1 + (found != values_.end() ? sizeof(uint32_t) + found->second.size() : 0);
  }
  if (!all && now_ < c.deadline_) return;
  if (bytes > limits_.answer) {
    refuse(c, detail::concatenate("a request for ", c.keys_.size(), " keys, whose answer has ", bytes,
                                  " bytes; the store gives ", limits_.answer, " at a time: ask for fewer keys"));
    c.keys_.clear();
    return;
  }
  c.is_over_limit_ = unsent_ > 0 && unsent_ + bytes > limits_.unsent;
  if (c.is_over_limit_) return;
  Writer writer;
  writer.number(Answer::kOk);
  for (const std::string& key : c.keys_) {
    const auto found = values_.find(key);
    writer.number(static_cast<uint8_t>(found != values_.end()));
    if (found != values_.end()) writer.string(found->second);
  }
  c.keys_ = {};
  answer(c, writer);
}

void Service::advance(Clock::time_point now) {
  now_ = now;
  for (Connection& c : connections_) {
    if (c.closing_) continue;
    if (!c.keys_.empty()) try_answer(c);
    if (!c.is_member() && now > c.opened_ + kHelloTime) lost(c);
    if (!c.out_.empty() && now > c.last_sent_ + kSendTime) lost(c);
  }
}

Clock::time_point Service::next_deadline(Clock::time_point next) const {
  for (const Connection& c : connections_) {
    if (!c.keys_.empty() && !c.is_over_limit_) next = std::min(next, c.deadline_);
    if (!c.is_member()) next = std::min(next, c.opened_ + kHelloTime);
    if (!c.out_.empty()) next = std::min(next, c.last_sent_ + kSendTime);
  }
  return next;
}

void Service::fail(const std::string& reason) {
  values_.clear();
  stored_ = 0;
  failure_ = reason;
  for (Connection& c : connections_) {
    c.keys_ = {};
    c.in_ = {};
    // Also for members without a pending request: it then answers their next one. Clients send no more after it.
    if (c.is_member() && !c.closing_) answer(c, Writer().number(Answer::kFailed).string(failure_));
  }
}

}  // namespace tern::dist::tcp
