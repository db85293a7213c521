// Input of a store's server from strangers and from members that know the secret. The fuzz input is a list of steps: a
// byte for the action and connection, a byte with the length of the payload, and the payload.

#include "tern/dist/store/tcp_service.h"
#include "tern/tests/dist/tcp_stranger.h"
#include "tern/tests/fuzz/fuzz.h"

namespace tern::dist::tcp {
namespace {

const Member kOwner{0, 4, "job", "0123456789abcdef0123456789abcdef"};

// So small that an input can reach them.
constexpr Limits kLimits{.answer = 4000, .unsent = 9000, .stored = 5000, .keys = 20};

class Session {
 public:
  void step(uint8_t what, std::string_view bytes) {
    const size_t which = what >> 3;
    switch (what & 7) {
      case 0:
        open_.push_back(&service_.open(now_));
        break;
      case 1:
        join(static_cast<int>(which % 4));
        break;
      case 2:  // raw bytes
        if (Connection* c = at(which)) receive(*c, bytes);
        break;
      case 3:  // a framed message
        if (Connection* c = at(which)) receive(*c, Writer().string(std::string(bytes)).text());
        break;
      case 4:  // a request that repeats one key
        if (Connection* c = at(which)) {
          Writer writer;
          const uint32_t count = bytes.empty() ? 1 : 1 + 256u * static_cast<uint8_t>(bytes[0]);
          writer.number(Request::kWait).number(int64_t{which == 0 ? 0 : 5000}).number(count);
          for (uint32_t i = 0; i < count; ++i) writer.string(std::string(bytes));
          receive(*c, writer.framed());
        }
        break;
      case 5:
        if (Connection* c = at(which)) service_.sent(*c, c->out().size(), now_);
        break;
      case 6:
        now_ += std::chrono::milliseconds(1 + which * which * 100);
        break;
      default:
        if (which == 31) service_.fail("it was told to");
        if (Connection* c = at(which)) service_.lost(*c);
    }
    service_.advance(now_);
    remove_closed();
    check();
  }

 private:
  Connection* at(size_t which) { return open_.empty() ? nullptr : open_[which % open_.size()]; }
  void receive(Connection& c, std::string_view bytes) {
    if (c.may_send_request()) service_.receive(c, bytes, now_);
  }

  void join(int rank) {
    Connection& c = service_.open(now_);
    open_.push_back(&c);
    const Member member{rank, kOwner.size, kOwner.job, kOwner.secret};
    const std::string hello = hello_of(member);
    service_.receive(c, framed(hello), now_);
    const std::string answer(c.out().substr(4));
    Reader reader(answer);
    fuzz::require(reader.number<Answer>() == Answer::kOk && reader.string() == kMagic);
    service_.sent(c, c.out().size(), now_);
    service_.receive(c, framed(proof_for(member, hello, answer)), now_);
    service_.sent(c, c.out().size(), now_);
  }

  void remove_closed() {
    auto& all = service_.connections();
    for (auto c = all.begin(); c != all.end();) {
      if (!c->closing()) {
        ++c;
        continue;
      }
      std::erase(open_, &*c);
      c = service_.remove(c);
    }
  }

  void check() {
    size_t unsent = 0, strangers = 0;
    for (const Connection& c : service_.connections()) {
      unsent += c.out().size();
      strangers += !c.is_member();
    }
    fuzz::require(unsent <= kLimits.unsent + kLimits.answer && strangers <= kMaxStrangers);
  }

  Clock::time_point now_ = Clock::time_point() + std::chrono::hours(1);
  Service service_{kOwner, kLimits};
  std::vector<Connection*> open_;
};

}  // namespace
}  // namespace tern::dist::tcp

void tern::fuzz::try_input(std::string_view input) {
  dist::tcp::Session session;
  for (size_t at = 0; at + 2 <= input.size();) {
    const uint8_t what = static_cast<uint8_t>(input[at]);
    const size_t length = std::min<size_t>(static_cast<uint8_t>(input[at + 1]), input.size() - at - 2);
    session.step(what, input.substr(at + 2, length));
    at += 2 + length;
  }
}
