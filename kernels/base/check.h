#pragma once
// Errors. Every failure a caller can cause is a tern::Error whose message says what was wrong, what was expected,
// what was given and, where known, what to do. Input never reaches exit, abort or assert.

#include <cstddef>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tern {

/// Base of every exception that Tern throws on bad input or a failed resource.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}
};

/// Memory could not be allocated. The message lists what holds the memory and what to try.
class OutOfMemoryError : public Error {
 public:
  using Error::Error;
};

/// A device failed so that this process can no longer use it; the contents of its memory are lost.
class DeviceError : public Error {
 public:
  using Error::Error;
};

namespace detail {
/// One value of a message and the function that prints it. Each message compiles to a list of these; the code that
/// prints the list is compiled once.
struct MessagePart {
  const void* value;
  void (*write)(std::ostream& out, const void* value);
};
template <class T>
void write_part(std::ostream& out, const void* value) {
  out << *static_cast<const T*>(value);
}
inline void write_text(std::ostream& out, const void* text) { out << static_cast<const char*>(text); }
template <class T>
MessagePart message_part(const T& value) {
  return {&value, write_part<T>};
}
template <size_t kSize>
MessagePart message_part(const char (&text)[kSize]) {  // one function for literals of every length
  return {text, write_text};
}
inline std::string join_parts(const MessagePart* parts, size_t count) {
  std::ostringstream out;
  for (size_t i = 0; i < count; ++i) parts[i].write(out, parts[i].value);
  return out.str();
}
[[noreturn]] inline void fail_with(const MessagePart* parts, size_t count) { throw Error(join_parts(parts, count)); }

/// The parts streamed one after another.
template <class... Parts>
std::string concatenate(const Parts&... parts) {
  const MessagePart list[] = {message_part(parts)...};
  return join_parts(list, sizeof...(parts));
}
/// The file name without its folder: messages do not show where the program was built.
constexpr std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }
}  // namespace detail

/// Throws Error with the parts streamed one after another: fail("linear: expected ", n, " columns").
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  const detail::MessagePart list[] = {detail::message_part(parts)...};
  detail::fail_with(list, sizeof...(parts));
}

/// Throws DeviceError with `what`, its meaning and what to do.
[[noreturn]] inline void fail_device(const std::string& what) {
  throw DeviceError(what +
                    "; the GPU can no longer be used by this process and what it computed since the last copy to the "
                    "host is lost: start again from the last checkpoint (with CUDA_LAUNCH_BLOCKING=1 the error names "
                    "the call that caused it)");
}

}  // namespace tern

/// Throws tern::Error with the streamed parts when the condition is false; the parts are only evaluated then.
/// A macro because a function would evaluate the message on every successful check.
#define TERN_CHECK(condition, ...)               \
  do {                                           \
    if (!(condition)) ::tern::fail(__VA_ARGS__); \
  } while (false)
