#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <thread>

#include "tern/dist/store/tcp_service.h"

namespace tern::dist {
namespace {

using tcp::Clock;
using tcp::Connection;
constexpr auto kLingering = std::chrono::seconds(2);
/// Time until the next accept() if no descriptors are left and no stranger can be closed.
constexpr auto kAcceptPause = std::chrono::milliseconds(200);
/// Connections accepted per round, so that existing ones are served in between. Fewer than kMaxStrangers: a rank's
/// hello is read before later connections can evict it.
constexpr int kAcceptedAtOnce = 32;
constexpr int kPortTries = 16;

/// A listening socket, or -1 and errno.
int listen_at(const std::string& address, int port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_PASSIVE;
  if (getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    errno = EADDRNOTAVAIL;
    return -1;
  }
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int on = 1;
  if (fd >= 0) {
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (found->ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  }
  const bool listens = fd >= 0 && bind(fd, found->ai_addr, found->ai_addrlen) == 0 && ::listen(fd, 1024) == 0;
  const int error = errno;
  if (!listens && fd >= 0) close(fd);
  freeaddrinfo(found);
  errno = error;
  return listens ? fd : -1;
}

int port_of(int socket) {
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &length);
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                                           : reinterpret_cast<sockaddr_in&>(bound).sin_port);
}

/// Each rank has two connections, and a few more while it searches for missing ranks.
void allow_descriptors(int ranks) {
  rlimit limit{};
  const auto wanted = static_cast<rlim_t>(4) * static_cast<rlim_t>(ranks) + tcp::kMaxStrangers + 256;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

class TcpStoreServer::Loop {
 public:
  Loop(const std::vector<std::string>& addresses, int port, const Member& owner) : service_(owner) {
    int error = listen_at_all(addresses, port);
    for (int i = 1; error == EADDRINUSE && port == 0 && i < kPortTries; ++i) error = listen_at_all(addresses, port);
    if (error == 0 && pipe2(wake_, O_CLOEXEC | O_NONBLOCK) != 0) error = errno;
    if (error != 0) {
      close_listeners();
      TERN_CHECK(error != EADDRINUSE, "store: port ", port,
                 " is in use on this machine: end the job that has it, or choose another (MASTER_PORT)");
      fail("store: port ", port, " cannot be opened at ", addresses.empty() ? "no address" : addresses[0], ": ",
           std::strerror(error));
    }
    allow_descriptors(owner.size);
    thread_ = std::thread([this] { run(); });
  }

  ~Loop() {
    const char byte = 0;
    while (write(wake_[1], &byte, 1) < 0 && errno == EINTR) continue;
    thread_.join();
    for (const int fd : wake_) close(fd);
  }

  int port() const { return port_; }
  const std::vector<std::string>& addresses() const { return addresses_; }

 private:
  /// Uses the same port at every address; addresses that this machine no longer has are skipped. Returns errno.
  int listen_at_all(const std::vector<std::string>& addresses, int port) {
    close_listeners();
    port_ = port;
    int problem = EADDRNOTAVAIL;
    for (const std::string& address : addresses) {
      const int fd = listen_at(address, port_);
      if (fd < 0) {
        problem = errno;
        if (problem == EADDRNOTAVAIL || problem == EAFNOSUPPORT) continue;
        close_listeners();
        return problem;
      }
      port_ = port_of(fd);
      listeners_.push_back(fd);
      addresses_.push_back(address);
    }
    return listeners_.empty() ? problem : 0;
  }

  void close_listeners() {
    for (const int fd : listeners_) close(fd);
    listeners_.clear();
    addresses_.clear();
  }

  /// The thread's main function. An unrecoverable error, such as lack of memory, becomes an error of all ranks: they
  /// are answered that the store has failed; if even that is impossible, their connections are closed.
  void run() noexcept {
    try {
      serve();
    } catch (const std::exception& error) {
      try {
        service_.fail(error.what());
        serve();
      } catch (const std::exception&) {
      }
    }
    for (const Connection& c : service_.connections()) close(c.socket);
    for (const int fd : listeners_) close(fd);
  }

  void serve() {
    std::vector<pollfd> polled;
    for (;;) {
      const bool accepts = Clock::now() >= accepts_from_;
      polled.assign(1, {leaving_ ? -1 : wake_[0], POLLIN, 0});
      for (const int fd : listeners_) polled.push_back({accepts ? fd : -1, POLLIN, 0});
      for (const Connection& c : service_.connections())
        polled.push_back({c.socket, static_cast<short>(c.may_send_request() ? POLLIN : POLLOUT), 0});
      poll(polled.data(), polled.size(), milliseconds_to_wait());
      if (polled[0].revents != 0 && !leaving_) leaving_ = Clock::now() + kLingering;
      size_t i = 1 + listeners_.size();
      for (Connection& c : service_.connections())
        if (polled[i++].revents != 0) exchange(c);
      service_.advance(Clock::now());
      flush_all();
      if (leaving_ && (service_.connections().empty() || Clock::now() > *leaving_)) return;
      for (size_t l = 0; l < listeners_.size(); ++l)
        if (polled[1 + l].revents != 0) accept_some(listeners_[l]);
    }
  }

  int milliseconds_to_wait() const {
    auto next = service_.next_deadline(leaving_ ? *leaving_ : Clock::now() + std::chrono::hours(1));
    if (accepts_from_ > Clock::now()) next = std::min(next, accepts_from_);
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(next - Clock::now()).count();
    return static_cast<int>(std::max<int64_t>(left, 0) + 1);
  }

  void accept_some(int listener) {
    for (int i = 0; i < kAcceptedAtOnce; ++i) {
      const int accepted = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (accepted < 0) {
        const bool lacks_something = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
        if (!lacks_something) return;
        // Frees a stranger's descriptor for the next pending connection, which may be a rank. Without one, existing
        // clients are still served.
        if (!service_.drop_stranger()) accepts_from_ = Clock::now() + kAcceptPause;
        return flush_all();
      }
      const int on = 1;
      setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      service_.open(Clock::now()).socket = accepted;
    }
  }

  void exchange(Connection& c) {
    if (c.may_send_request()) {
      char buffer[1 << 14];
      const ssize_t n = recv(c.socket, buffer, sizeof buffer, 0);
      if (n > 0)
        service_.receive(c, std::string_view(buffer, static_cast<size_t>(n)), Clock::now());
      else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        service_.lost(c);
    }
    flush(c);
  }

  void flush(Connection& c) {
    while (!c.out().empty()) {
      const ssize_t n = send(c.socket, c.out().data(), c.out().size(), MSG_NOSIGNAL);
      if (n > 0)
        service_.sent(c, static_cast<size_t>(n), Clock::now());
      else if (n < 0 && errno == EINTR)
        continue;
      else if (n < 0 && errno != EAGAIN)
        service_.lost(c);
      else
        return;
    }
  }

  /// Also closes the connections marked as closing, after one last attempt to send their output.
  void flush_all() {
    auto& connections = service_.connections();
    for (auto c = connections.begin(); c != connections.end();) {
      flush(*c);
      if (!c->closing()) {
        ++c;
        continue;
      }
      close(c->socket);
      c = service_.remove(c);
    }
  }

  tcp::Service service_;
  std::vector<int> listeners_;
  std::vector<std::string> addresses_;
  int port_ = 0;
  int wake_[2] = {-1, -1};
  Clock::time_point accepts_from_;
  std::optional<Clock::time_point> leaving_;  // deadline of the shutdown
  std::thread thread_;
};

TcpStoreServer::TcpStoreServer(const std::vector<std::string>& addresses, int port, const Member& owner)
    : loop_(std::make_unique<Loop>(addresses, port, owner)) {}
TcpStoreServer::~TcpStoreServer() = default;
int TcpStoreServer::port() const { return loop_->port(); }
const std::vector<std::string>& TcpStoreServer::addresses() const { return loop_->addresses(); }

}  // namespace tern::dist
