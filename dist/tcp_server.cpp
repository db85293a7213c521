#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <list>
#include <map>
#include <set>
#include <thread>

#include "tern/dist/store.h"
#include "tern/dist/tcp_protocol.h"

namespace tern::dist {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kHelloTime = std::chrono::seconds(10);
constexpr auto kLingering = std::chrono::seconds(2);
constexpr size_t kMaxConnections = 8192;

struct Connection {
  int socket = -1;
  std::string in, out;
  Clock::time_point opened = Clock::now();
  int rank = -1;  // unknown before the hello
  bool closing = false;

  // While it waits for keys.
  std::vector<std::string> keys;
  Clock::time_point deadline;
};

struct Rank {
  uint64_t process = 0;  // a number that one process drew
  int connections = 0;
  bool finished = false;
};

}  // namespace

class TcpStoreServer::Loop {
 public:
  Loop(int port, const Member& owner) : owner_(owner) {
    listener_ = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const bool six = listener_ >= 0;
    if (!six) listener_ = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    TERN_CHECK(listener_ >= 0, "store: no socket: ", std::strerror(errno));
    const int on = 1, off = 0;
    setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    int error = 0;
    if (six) {
      setsockopt(listener_, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
      sockaddr_in6 address{};
      address.sin6_family = AF_INET6;
      address.sin6_port = htons(static_cast<uint16_t>(port));
      if (bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) error = errno;
    } else {
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(static_cast<uint16_t>(port));
      if (bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) error = errno;
    }
    if (error == 0 && listen(listener_, 1024) != 0) error = errno;
    if (error != 0 || pipe2(wake_, O_CLOEXEC | O_NONBLOCK) != 0) {
      close(listener_);
      TERN_CHECK(error != EADDRINUSE, "store: port ", port,
                 " is in use on this machine: end the job that has it, or choose another (MASTER_PORT)");
      fail("store: port ", port, " cannot be opened: ", std::strerror(error != 0 ? error : errno));
    }
    sockaddr_storage bound{};
    socklen_t length = sizeof bound;
    getsockname(listener_, reinterpret_cast<sockaddr*>(&bound), &length);
    port_ = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                                              : reinterpret_cast<sockaddr_in&>(bound).sin_port);
    thread_ = std::thread([this] { run(); });
  }

  ~Loop() {
    const char byte = 0;
    while (write(wake_[1], &byte, 1) < 0 && errno == EINTR) continue;
    thread_.join();
    for (const Connection& c : connections_) close(c.socket);
    for (const int fd : {listener_, wake_[0], wake_[1]}) close(fd);
  }

  int port() const { return port_; }

 private:
  void run() {
    for (;;) {
      std::vector<pollfd> polled = {{leaving_ ? -1 : wake_[0], POLLIN, 0}, {listener_, POLLIN, 0}};
      for (const Connection& c : connections_)
        polled.push_back({c.socket, static_cast<short>(POLLIN | (c.out.empty() ? 0 : POLLOUT)), 0});
      poll(polled.data(), polled.size(), milliseconds_to_wait());
      if (polled[0].revents != 0 && !leaving_) {
        leaving_ = Clock::now() + kLingering;
      }
      size_t i = 2;
      for (Connection& c : connections_) {
        const short events = polled[i++].revents;
        if (events != 0) exchange(c, events);
      }
      const auto now = Clock::now();
      for (Connection& c : connections_) {
        if (!c.keys.empty()) try_answer(c, now);
        if (c.rank < 0 && now > c.opened + kHelloTime) c.closing = true;
      }
      remove_closed();
      if (leaving_ && (connections_.empty() || Clock::now() > *leaving_)) return;
      if (polled[1].revents != 0) accept_all();
    }
  }

  int milliseconds_to_wait() const {
    auto next = leaving_ ? *leaving_ : Clock::now() + std::chrono::hours(1);
    for (const Connection& c : connections_) {
      if (!c.keys.empty()) next = std::min(next, c.deadline);
      if (c.rank < 0) next = std::min(next, c.opened + kHelloTime);
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(next - Clock::now()).count();
    return static_cast<int>(std::max<int64_t>(left, 0) + 1);
  }

  void accept_all() {
    for (;;) {
      const int accepted = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (accepted < 0) {
        // Out of descriptors: let others end some instead of asking without pause.
        if (errno == EMFILE || errno == ENFILE) std::this_thread::sleep_for(std::chrono::milliseconds(50));
        return;
      }
      if (connections_.size() >= kMaxConnections) {
        close(accepted);
        continue;
      }
      const int on = 1;
      setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      connections_.emplace_back().socket = accepted;
    }
  }

  void exchange(Connection& c, short events) {
    if (events & (POLLIN | POLLERR | POLLHUP)) {
      char buffer[1 << 14];
      const ssize_t n = recv(c.socket, buffer, sizeof buffer, 0);
      if (n > 0) {
        c.in.append(buffer, static_cast<size_t>(n));
        handle_messages(c);
      } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        c.closing = true;
        c.out.clear();
      }
    }
    flush(c);
  }

  static void flush(Connection& c) {
    while (!c.out.empty()) {
      const ssize_t n = send(c.socket, c.out.data(), c.out.size(), MSG_NOSIGNAL);
      if (n <= 0) {
        if (n < 0 && errno != EAGAIN && errno != EINTR) c.closing = true, c.out.clear();
        return;
      }
      c.out.erase(0, static_cast<size_t>(n));
    }
  }

  void handle_messages(Connection& c) {
    while (!c.closing && c.in.size() >= 4) {
      uint32_t size = 0;
      std::memcpy(&size, c.in.data(), 4);
      if (size > (c.rank < 0 ? tcp::kMaxHello : tcp::kMaxMessage)) {
        c.closing = true;
        return;
      }
      if (c.in.size() < 4 + size_t{size}) return;
      const std::string message = c.in.substr(4, size);
      c.in.erase(0, 4 + size_t{size});
      // A client that speaks while it waits has no manners either.
      if (!c.keys.empty() || !(c.rank < 0 ? greet(c, message) : serve(c, message))) c.closing = true;
    }
  }

  static void refuse(Connection& c, const std::string& why) {
    c.out += tcp::Writer().number(tcp::Answer::kRefused).string(why).framed();
    flush(c);
    c.closing = true;
  }

  bool greet(Connection& c, const std::string& message) {
    tcp::Reader reader(message);
    if (reader.string() != tcp::kMagic) return false;
    const std::string job = reader.string();
    const auto rank = reader.number<int32_t>(), size = reader.number<int32_t>();
    const auto process = reader.number<uint64_t>();
    if (!reader.complete()) return false;
    if (job != owner_.job) {
      refuse(c, "it serves another job");
    } else if (size != owner_.size) {
      refuse(c, detail::concatenate("it serves a job of ", owner_.size, " ranks, and rank ", rank,
                                    " says that there are ", size));
    } else if (rank < 0 || rank >= size) {
      refuse(c, detail::concatenate("rank ", rank, " is not in [0, ", size, ")"));
    } else if (ranks_.contains(rank) && ranks_[rank].process != process) {
      refuse(c, detail::concatenate("rank ", rank, " is there already: two processes say that they are rank ", rank));
    } else {
      ranks_[rank].process = process;
      ++ranks_[rank].connections;
      gone_.erase(rank);  // the same process: its first try to connect was cut short
      c.rank = rank;
      answer(c, tcp::Writer().number(tcp::Answer::kOk).string(tcp::kMagic));
    }
    return true;
  }

  static void answer(Connection& c, const tcp::Writer& writer) {
    c.out += writer.framed();
    flush(c);
  }
  static void answer_ok(Connection& c) { answer(c, tcp::Writer().number(tcp::Answer::kOk)); }

  /// False: not understood.
  bool serve(Connection& c, const std::string& message) {
    tcp::Reader reader(message);
    switch (static_cast<tcp::Request>(reader.number<uint8_t>())) {
      case tcp::Request::kSet: {
        const std::string key = reader.string(), value = reader.string();
        if (!reader.complete()) return false;
        values_[key] = value;
        answer_ok(c);
        return true;
      }
      case tcp::Request::kErase: {
        const std::string key = reader.string();
        if (!reader.complete()) return false;
        values_.erase(key);
        answer_ok(c);
        return true;
      }
      case tcp::Request::kAdd: {
        const std::string key = reader.string();
        const auto amount = reader.number<int64_t>();
        if (!reader.complete()) return false;
        const int64_t sum = static_cast<int64_t>(static_cast<uint64_t>(std::atoll(values_[key].c_str())) +
                                                 static_cast<uint64_t>(amount));
        values_[key] = std::to_string(sum);
        answer(c, tcp::Writer().number(tcp::Answer::kOk).number(sum));
        return true;
      }
      case tcp::Request::kGone: {
        tcp::Writer writer;
        writer.number(tcp::Answer::kOk).number(static_cast<uint32_t>(gone_.size()));
        for (const int rank : gone_) writer.number(static_cast<int32_t>(rank));
        answer(c, writer);
        return reader.complete();
      }
      case tcp::Request::kFinish:
        ranks_[c.rank].finished = true;
        answer_ok(c);
        return reader.complete();
      case tcp::Request::kWait: {
        const auto milliseconds = reader.number<int64_t>();
        const auto count = reader.number<uint32_t>();
        if (!reader.good() || count == 0 || count > tcp::kMaxKeys || milliseconds < 0) return false;
        for (uint32_t i = 0; i < count && reader.good(); ++i) c.keys.push_back(reader.string());
        if (!reader.complete()) return false;
        c.deadline = Clock::now() + std::chrono::milliseconds(std::min<int64_t>(milliseconds, int64_t{1} << 40));
        try_answer(c, Clock::now());
        return true;
      }
    }
    return false;
  }

  /// Answers a client that waits if all its keys are there or its time is over.
  void try_answer(Connection& c, Clock::time_point now) {
    bool all = true;
    for (const std::string& key : c.keys) all = all && values_.contains(key);
    if (!all && now < c.deadline) return;
    tcp::Writer writer;
    writer.number(tcp::Answer::kOk);
    for (const std::string& key : c.keys) {
      const auto found = values_.find(key);
      writer.number(static_cast<uint8_t>(found != values_.end()));
      if (found != values_.end()) writer.string(found->second);
    }
    c.keys.clear();
    answer(c, writer);
  }

  void remove_closed() {
    for (auto c = connections_.begin(); c != connections_.end();) {
      if (!c->closing) {
        ++c;
        continue;
      }
      close(c->socket);
      if (c->rank >= 0) {
        Rank& rank = ranks_[c->rank];
        if (--rank.connections == 0 && !rank.finished) gone_.insert(c->rank);
      }
      c = connections_.erase(c);
    }
  }

  Member owner_;
  int listener_ = -1, port_ = 0;
  int wake_[2] = {-1, -1};
  std::list<Connection> connections_;
  std::map<std::string, std::string> values_;
  std::map<int, Rank> ranks_;
  std::set<int> gone_;
  std::optional<Clock::time_point> leaving_;  // when it ends at the latest
  std::thread thread_;
};

TcpStoreServer::TcpStoreServer(int port, const Member& owner) : loop_(std::make_unique<Loop>(port, owner)) {}
TcpStoreServer::~TcpStoreServer() = default;
int TcpStoreServer::port() const { return loop_->port(); }

}  // namespace tern::dist
