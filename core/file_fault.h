#pragma once
// Memory that files are mapped to, and what happens when a file is cut shorter meanwhile: the system answers the next
// access with SIGBUS, whose default ends the process. Here the access gets zeros instead, and the memory counts as
// lost: check_lost_files() and verify_mapped_memory() then throw. Internal to core.
//
// The handler of SIGBUS is installed with the first mapping. A SIGBUS that is about other memory, or was sent by a
// process, goes to the handler that was there before, or does what the system does by default. A handler that a program
// installs later is left in its place: then what this file promises is up to it.

#include <atomic>
#include <cstddef>
#include <string>

namespace tern {
namespace detail {
struct WatchedMemory;  // what the handler looks at
extern std::atomic<int> lost_files;
void fail_lost_files();
}  // namespace detail

/// Watches memory that a file of `bytes` bytes is mapped to, until it is destroyed; then the memory must still be
/// mapped. `descriptor` must stay open. Thread-safe.
class WatchedMapping {
 public:
  WatchedMapping(std::string path, int descriptor, void* begin, size_t bytes);
  ~WatchedMapping();
  WatchedMapping(const WatchedMapping&) = delete;
  WatchedMapping& operator=(const WatchedMapping&) = delete;

  /// Throws Error when memory was lost, or the file is now shorter. The latter alone shows the loss of less than a
  /// page, which the system makes zero without a signal.
  void check() const;

 private:
  detail::WatchedMemory* memory_;
};

/// Throws Error while the memory of any mapped file is lost, naming the file: a computation that began since may have
/// read zeros. Costs one load of a number while none is.
inline void check_lost_files() {
  if (detail::lost_files.load(std::memory_order_relaxed) != 0) [[unlikely]]
    detail::fail_lost_files();
}

/// check() of the mapped file whose memory holds `address`; nothing for other memory. One system call: to be called
/// after weights have been copied out of files.
void verify_mapped_memory(const void* address);

}  // namespace tern
