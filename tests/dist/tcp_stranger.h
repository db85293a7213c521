#pragma once
// A connection that sends arbitrary bytes to a store's server, for tests of the server.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "tern/dist/store/store.h"
#include "tern/dist/store/tcp_protocol.h"

namespace tern::dist {

/// The first message of a rank.
inline std::string hello_of(const Member& member) {
  return tcp::Writer()
      .string(tcp::kMagic)
      .string(member.job)
      .number(static_cast<int32_t>(member.rank))
      .number(static_cast<int32_t>(member.size))
      .number(uint64_t{77})  // its process
      .string(std::string(tcp::kNonceBytes, 'n'))
      .text();
}

/// The second message: the reply to the server's answer to `hello`.
inline std::string proof_for(const Member& member, const std::string& hello, const std::string& answer) {
  tcp::Reader reader(answer);
  reader.number<tcp::Answer>();
  reader.string();
  return tcp::Writer().string(tcp::proof(member.secret, tcp::Side::kClient, hello, reader.string())).text();
}

inline std::string framed(const std::string& message) { return tcp::Writer().string(message).text(); }

class RawConnection {
 public:
  explicit RawConnection(int port, const std::string& address = "127.0.0.1") : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    if (inet_pton(AF_INET, address.c_str(), &to.sin_addr) != 1) std::abort();
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
    const timeval patience{60, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  ~RawConnection() { close(fd_); }
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;

  bool connected() const { return connected_; }
  void say(const std::string& bytes) const { send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  /// Receives one message; "" if the connection ends.
  std::string hear() const {
    uint32_t size = 0;
    std::string length = take(4);
    if (length.size() < 4) return "";
    std::memcpy(&size, length.data(), 4);
    return size > (uint32_t{1} << 27) ? "" : take(size);
  }
  /// The server's final answer to this member: "\1" if it was admitted.
  std::string join(const Member& member) const {
    const std::string hello = hello_of(member);
    say(framed(hello));
    const std::string answer = hear();
    if (answer.empty() || answer[0] != static_cast<char>(tcp::Answer::kOk)) return answer;
    say(framed(proof_for(member, hello, answer)));
    return hear();
  }

 private:
  std::string take(size_t bytes) const {
    std::string text(bytes, '\0');
    const ssize_t n = recv(fd_, text.data(), bytes, MSG_WAITALL);
    text.resize(n > 0 ? static_cast<size_t>(n) : 0);
    return text;
  }
  int fd_;
  bool connected_ = false;
};

struct Listening {
  std::string address;
  int port;
};
/// The listening sockets of this process.
inline std::vector<Listening> listening_sockets() {
  std::vector<Listening> found;
  for (int fd = 0; fd < 4096; ++fd) {
    int listens = 0;
    socklen_t size = sizeof listens;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || !listens) continue;
    sockaddr_storage address{};
    size = sizeof address;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) continue;
    char text[INET6_ADDRSTRLEN] = "";
    if (address.ss_family == AF_INET) {
      const auto& in = reinterpret_cast<const sockaddr_in&>(address);
      found.push_back({inet_ntop(AF_INET, &in.sin_addr, text, sizeof text), ntohs(in.sin_port)});
    } else if (address.ss_family == AF_INET6) {
      const auto& in = reinterpret_cast<const sockaddr_in6&>(address);
      found.push_back({inet_ntop(AF_INET6, &in.sin6_addr, text, sizeof text), ntohs(in.sin6_port)});
    }
  }
  return found;
}

}  // namespace tern::dist
