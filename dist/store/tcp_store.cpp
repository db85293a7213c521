#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <mutex>
#include <random>
#include <thread>

#include "tern/dist/store/store.h"
#include "tern/dist/store/tcp_protocol.h"

namespace tern::dist {
namespace {

using Clock = std::chrono::steady_clock;
/// For answers that need no waiting; long, because the server may lack a free core.
constexpr auto kAnswerTime = std::chrono::seconds(60);
constexpr auto kGreetingTime = std::chrono::seconds(5), kMinGreetingTime = std::chrono::seconds(1);

Clock::duration as_duration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(std::min(seconds, 1e8)));
}

/// A random id of this process.
uint64_t process_number() {
  static const uint64_t number = [] {
    std::random_device random;
    return (uint64_t{random()} << 32) ^ random() ^ (static_cast<uint64_t>(getpid()) << 16);
  }();
  return number;
}

/// A connected socket whose operations have deadlines.
class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() { close(fd_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  /// False if the other side has disconnected or the deadline has passed; problem() then says which.
  bool send_all(const std::string& bytes, Clock::time_point deadline) {
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t n = send(fd_, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
      if (n > 0)
        done += static_cast<size_t>(n);
      else if (!may_go_on(n, POLLOUT, deadline))
        return false;
    }
    return true;
  }
  bool receive(size_t bytes, std::string& text, Clock::time_point deadline) {
    text.resize(bytes);
    for (size_t done = 0; done < bytes;) {
      const ssize_t n = recv(fd_, text.data() + done, bytes - done, 0);
      if (n > 0)
        done += static_cast<size_t>(n);
      else if (!may_go_on(n, POLLIN, deadline))
        return false;
    }
    return true;
  }
  const std::string& problem() const { return problem_; }
  /// Wakes up threads that wait for it.
  void shut_down() const { shutdown(fd_, SHUT_RDWR); }

 private:
  bool may_go_on(ssize_t n, short events, Clock::time_point deadline) {
    if (n == 0) {
      problem_ = "the connection was closed";
      return false;
    }
    if (errno != EAGAIN && errno != EINTR) {
      problem_ = std::strerror(errno);
      return false;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) {
      problem_ = "no answer";
      return false;
    }
    pollfd polled{fd_, events, 0};
    poll(&polled, 1, static_cast<int>(std::min<int64_t>(left + 1, 1'000'000)));
    return true;
  }

  int fd_;
  std::string problem_;
};

/// Connects to one address; returns -1 and sets errno on failure.
int connect_socket(const addrinfo& address, Clock::time_point deadline) {
  const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  int error = 0;
  if (connect(fd, address.ai_addr, address.ai_addrlen) != 0) {
    error = errno;
    if (error == EINPROGRESS) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
      pollfd polled{fd, POLLOUT, 0};
      socklen_t length = sizeof error;
      if (poll(&polled, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000))) == 0)
        error = ETIMEDOUT;
      else
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    }
  }
  if (error != 0) {
    close(fd);
    errno = error;
    return -1;
  }
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

class TcpStore final : public Store {
 public:
  TcpStore(std::vector<std::string> hosts, int port, Member member, double seconds)
      : hosts_(std::move(hosts)), port_(port), member_(std::move(member)) {
    const auto end = Clock::now() + as_duration(seconds);
    std::string problem;
    for (;;) {
      for (const std::string& host : hosts_) {
        try_host(host, end, problem);
        if (socket_) return;
      }
      if (Clock::now() >= end) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    throw PeerError(
        detail::concatenate("store: the master, ", where(), ", could not be reached within ", seconds, " s: ", problem,
                            "; check that rank 0 runs, and its address and port (MASTER_ADDR, MASTER_PORT)"));
  }

  void set(const std::string& key, const std::string& value) override {
    check_entry(key, value);
    ask(tcp::Writer().number(tcp::Request::kSet).string(key).string(value));
  }

  std::vector<std::optional<std::string>> wait(const std::vector<std::string>& keys, double seconds) override {
    if (keys.empty()) return {};
    TERN_CHECK(keys.size() <= tcp::kMaxKeys, "store: a request for ", keys.size(), " keys; it may ask for ",
               tcp::kMaxKeys);
    seconds = std::isfinite(seconds) ? std::clamp(seconds, 0.0, 1e8) : 1e8;
    tcp::Writer writer;
    writer.number(tcp::Request::kWait).number(static_cast<int64_t>(std::ceil(1e3 * seconds)));
    writer.number(static_cast<uint32_t>(keys.size()));
    for (const std::string& key : keys) writer.string(key);
    const std::string answer = ask(writer, as_duration(seconds));
    tcp::Reader reader(answer);
    std::vector<std::optional<std::string>> values(keys.size());
    for (auto& value : values)
      if (reader.number<uint8_t>() != 0) value = reader.string();
    check(reader.complete());
    return values;
  }

  int64_t add(const std::string& key, int64_t amount) override {
    const std::string answer = ask(tcp::Writer().number(tcp::Request::kAdd).string(key).number(amount));
    tcp::Reader reader(answer);
    const auto sum = reader.number<int64_t>();
    check(reader.complete());
    return sum;
  }

  void erase(const std::string& key) override { ask(tcp::Writer().number(tcp::Request::kErase).string(key)); }
  void finish() override { ask(tcp::Writer().number(tcp::Request::kFinish)); }

  std::vector<int> failed_ranks() override {
    const std::string answer = ask(tcp::Writer().number(tcp::Request::kGone));
    tcp::Reader reader(answer);
    const auto count = reader.number<uint32_t>();
    std::vector<int> ranks;
    for (uint32_t i = 0; i < count && reader.good(); ++i) ranks.push_back(reader.number<int32_t>());
    check(reader.complete());
    return ranks;
  }

  std::unique_ptr<Store> another(double seconds) override {
    return std::make_unique<TcpStore>(hosts_, port_, member_, seconds);
  }
  void interrupt() override {
    std::lock_guard<std::mutex> lock(socket_mutex_);
    if (socket_) socket_->shut_down();
  }

 private:
  std::string where() const {
    std::string text;
    for (const std::string& host : hosts_) text += (text.empty() ? "" : " or ") + host;
    return text + " port " + std::to_string(port_);
  }
  void check(bool understood) const { TERN_CHECK(understood, "store: ", where(), " sent an invalid answer"); }

  /// Sets socket_, or the problem if a retry may help. Throws Error otherwise.
  void try_host(const std::string& host, Clock::time_point end, std::string& problem) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    if (const int error = getaddrinfo(host.c_str(), std::to_string(port_).c_str(), &hints, &found)) {
      problem = host + ": " + gai_strerror(error);
      return;
    }
    // With several hosts, one that drops packets must not use up the time of the others.
    const auto deadline = hosts_.size() > 1 ? std::min(end, Clock::now() + std::chrono::seconds(3)) : end;
    for (const addrinfo* address = found; address && !socket_; address = address->ai_next) {
      const int fd = connect_socket(*address, deadline);
      if (fd < 0) {
        problem = std::strerror(errno);
        continue;
      }
      auto socket = std::make_unique<Socket>(fd);
      const Greeting greeting = greet(*socket, end, problem);
      if (greeting == Greeting::kDone) {
        socket_ = std::move(socket);
      } else if (greeting == Greeting::kRefused && hosts_.size() == 1) {
        freeaddrinfo(found);
        fail("store: ", where(), ": ", problem);
      }
    }
    freeaddrinfo(found);
  }

  enum class Greeting { kDone, kRefused, kNoAnswer };

  /// Proves to the server that this is a rank of the job, and checks the server's proof. No answer means that it had no
  /// room for another connection, or is not a store; a retry may help.
  Greeting greet(Socket& socket, Clock::time_point end, std::string& problem) const {
    const auto deadline = std::min(Clock::now() + kGreetingTime, std::max(end, Clock::now() + kMinGreetingTime));
    const std::string hello = tcp::Writer()
                                  .string(tcp::kMagic)
                                  .string(member_.job)
                                  .number(static_cast<int32_t>(member_.rank))
                                  .number(static_cast<int32_t>(member_.size))
                                  .number(process_number())
                                  .string(tcp::nonce())
                                  .text();
    const char* const stranger =
        "the service there is not a store of Tern: another program has the port; check MASTER_ADDR and MASTER_PORT";
    std::string text;
    const auto received = [&](size_t max_bytes, const std::string& sent) {
      uint32_t size = 0;
      if (!socket.send_all(tcp::Writer().string(sent).text(), deadline) || !socket.receive(4, text, deadline)) {
        problem = "it gives no answer to a new connection (" + socket.problem() + ")";
        return Greeting::kNoAnswer;
      }
      std::memcpy(&size, text.data(), 4);
      problem = stranger;
      return size <= max_bytes && socket.receive(size, text, deadline) ? Greeting::kDone : Greeting::kRefused;
    };
    const auto refused = [&](tcp::Reader& reader) {  // parses the reason after kRefused
      const std::string why = reader.string();
      problem = reader.complete() ? why : stranger;
      return Greeting::kRefused;
    };

    if (const Greeting first = received(tcp::kMaxHello, hello); first != Greeting::kDone) return first;
    tcp::Reader reader(text);
    const auto answer = reader.number<tcp::Answer>();
    if (answer == tcp::Answer::kRefused) return refused(reader);
    const std::string word = reader.string(), its_nonce = reader.string(), its_proof = reader.string();
    if (!reader.complete() || answer != tcp::Answer::kOk || word != tcp::kMagic) return Greeting::kRefused;
    if (!tcp::equal_proofs(its_proof, tcp::proof(member_.secret, tcp::Side::kServer, hello, its_nonce))) {
      problem = "its secret is another: TERN_DIST_SECRET must be the same in all ranks of the job";
      return Greeting::kRefused;
    }

    const std::string own_proof = tcp::proof(member_.secret, tcp::Side::kClient, hello, its_nonce);
    const Greeting second = received(tcp::kMaxHello, tcp::Writer().string(own_proof).text());
    if (second != Greeting::kDone) return second;
    tcp::Reader last(text);
    if (last.number<tcp::Answer>() == tcp::Answer::kOk && last.complete()) return Greeting::kDone;
    return refused(last);
  }

  /// The values of the answer.
  std::string ask(const tcp::Writer& request, Clock::duration extra = {}) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_.empty()) throw PeerError(failure_);
    const auto deadline = Clock::now() + kAnswerTime + extra;
    std::string text;
    uint32_t size = 0;
    bool good = socket_ && socket_->send_all(request.framed(), deadline) && socket_->receive(4, text, deadline);
    if (good) {
      std::memcpy(&size, text.data(), 4);
      // The values of many keys may exceed the limit of one message to the server.
      good = size <= tcp::Limits{}.answer + tcp::kMaxMessage && socket_->receive(size, text, deadline);
    }
    if (!good) {
      const std::string problem = socket_ ? socket_->problem() : "the connection is lost";
      std::lock_guard<std::mutex> replacing(socket_mutex_);
      socket_.reset();  // a late answer must not be taken for that of another request
      throw PeerError("store: rank 0, at " + where() + ", does not answer any more: " + problem);
    }
    tcp::Reader reader(text);
    const auto answer = reader.number<tcp::Answer>();
    if (answer == tcp::Answer::kOk) return text.substr(sizeof answer);
    const std::string why = reader.string();
    check(reader.complete());
    if (answer == tcp::Answer::kFailed) {
      failure_ = "store: rank 0, at " + where() + ", has failed: " + why;
      throw PeerError(failure_);
    }
    check(answer == tcp::Answer::kRefused);
    fail("store: ", why);
  }

  std::vector<std::string> hosts_;
  int port_;
  Member member_;
  std::mutex mutex_;         // one request at a time
  std::string failure_;      // the server's; it answers nothing after it
  std::mutex socket_mutex_;  // held while the socket is replaced or shut down
  std::unique_ptr<Socket> socket_;
};

}  // namespace

std::unique_ptr<Store> connect_tcp_store(const std::vector<std::string>& hosts, int port, const Member& member,
                                         double seconds) {
  TERN_CHECK(!hosts.empty() && port > 0 && port < 65536, "store: the master's address is '",
             hosts.empty() ? "" : hosts[0], "' port ", port, "; the port must be in [1, 65535]");
  return std::make_unique<TcpStore>(hosts, port, member, seconds);
}

}  // namespace tern::dist
