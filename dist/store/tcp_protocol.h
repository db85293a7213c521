#pragma once
// The protocol between a TcpStore and its server. Every message is a length (4 bytes, little-endian) and that many
// bytes. A connection begins with proofs that both sides know the job's secret, which itself is never sent:
//   client  magic, job, rank, size, process, nonce
//   server  kOk, magic, nonce, proof         or kRefused, reason
//   client  proof
//   server  kOk                              or kRefused, reason
// Then the client sends one request at a time and waits for the answer: kOk with values, kRefused with the reason why
// this request is not served, or kFailed with the reason why the store has failed for all.

#include <cstdint>
#include <cstring>
#include <string>

namespace tern::dist::tcp {

inline constexpr char kMagic[] = "tern store 2";
inline constexpr size_t kMaxMessage = (size_t{1} << 20) + (size_t{1} << 12);
inline constexpr size_t kMaxHello = 4096;  // maximum size before the client has proved its identity
inline constexpr size_t kNonceBytes = 16;
inline constexpr uint32_t kMaxKeys = 1 << 16;  // per request
inline constexpr int kMaxConnectionsOfRank = 32;
inline constexpr size_t kMaxStrangers = 128;  // connections that have not proved their identity

/// Limits on the memory that clients can make a server use; in bytes, except keys.
struct Limits {
  // To one request: 64 of the largest values, and 5 bytes around each of kMaxKeys.
  size_t answer = (size_t{64} << 20) + (size_t{512} << 10);
  size_t unsent = size_t{256} << 20;  // answers that wait to be sent, of all connections
  size_t stored = size_t{256} << 20;  // keys and values
  size_t keys = size_t{1} << 20;
};

enum class Request : uint8_t { kSet = 1, kWait, kAdd, kErase, kGone, kFinish };
enum class Answer : uint8_t { kOk = 1, kRefused, kFailed };

/// Serializes numbers and strings.
class Writer {
 public:
  template <class T>
  Writer& number(T value) {
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    text_.append(bytes, sizeof(T));
    return *this;
  }
  Writer& string(const std::string& value) {
    number(static_cast<uint32_t>(value.size()));
    text_ += value;
    return *this;
  }
  const std::string& text() const { return text_; }
  /// The message, prefixed with its length.
  std::string framed() const { return Writer().number(static_cast<uint32_t>(text_.size())).text_ + text_; }

 private:
  std::string text_;
};

/// Parses them in the same order. After the first missing one, good() is false and all further values are empty.
class Reader {
 public:
  explicit Reader(const std::string& text) : text_(text) {}
  template <class T>
  T number() {
    T value{};
    if (take(sizeof(T))) std::memcpy(&value, text_.data() + at_ - sizeof(T), sizeof(T));
    return value;
  }
  std::string string() {
    const auto size = number<uint32_t>();
    return take(size) ? text_.substr(at_ - size, size) : std::string();
  }
  bool good() const { return good_; }
  /// True if everything was read and nothing was missing.
  bool complete() const { return good_ && at_ == text_.size(); }

 private:
  bool take(size_t bytes) {
    good_ = good_ && bytes <= text_.size() - at_;
    if (good_) at_ += bytes;
    return good_;
  }
  const std::string& text_;
  size_t at_ = 0;
  bool good_ = true;
};

enum class Side : uint8_t { kServer = 1, kClient };
/// Random bytes.
std::string nonce();
/// Proves that `side` knows the secret: HMAC-SHA-256 of the hello and the server's nonce.
std::string proof(const std::string& secret, Side side, const std::string& hello, const std::string& server_nonce);
/// Constant-time comparison.
bool equal_proofs(const std::string& a, const std::string& b);

}  // namespace tern::dist::tcp
