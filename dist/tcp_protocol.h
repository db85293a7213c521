#pragma once
// What a TcpStore and its server say to each other. Every message is a length (4 bytes, little-endian) and as many
// bytes; a client sends one and waits for the answer. The first is Hello.

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

namespace tern::dist::tcp {

inline constexpr char kMagic[] = "tern store 1";
inline constexpr size_t kMaxMessage = (size_t{1} << 20) + (size_t{1} << 12);
inline constexpr size_t kMaxHello = 4096;  // of those who have not shown who they are
inline constexpr uint32_t kMaxKeys = 1 << 16;

enum class Request : uint8_t { kSet = 1, kWait, kAdd, kErase, kGone, kFinish };
enum class Answer : uint8_t { kOk = 1, kRefused };

/// Appends numbers and strings.
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
  /// The message with its length before it.
  std::string framed() const { return Writer().number(static_cast<uint32_t>(text_.size())).text_ + text_; }

 private:
  std::string text_;
};

/// Takes them off again. After the first that is not there, good() is false and the rest is empty.
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
  /// Nothing is left, and nothing was missing.
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

}  // namespace tern::dist::tcp
