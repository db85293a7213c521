#pragma once
// Handles mapped files that are cut shorter while they are mapped. The system answers the next access with SIGBUS,
// which by default ends the process. Here the access reads zeros, the memory counts as lost, and check_lost_files() and
// verify_mapped_memory() throw. Internal to core.
//
// The first mapping installs the handler of SIGBUS. A SIGBUS for other memory, or one sent by a process, goes to the
// previous handler or has the system's default effect. A handler that the program installs later is not replaced; the
// behaviour described here then depends on that handler.

#include <atomic>
#include <cstddef>
#include <string>

namespace tern {
namespace detail {
struct WatchedMemory;  // used by the handler
extern std::atomic<int> lost_files;
void fail_lost_files();
}  // namespace detail

/// Watches memory that a file of `bytes` bytes is mapped to, until destruction; the memory must still be mapped then.
/// `descriptor` must stay open. Thread-safe.
class WatchedMapping {
 public:
  WatchedMapping(std::string path, int descriptor, void* begin, size_t bytes);
  ~WatchedMapping();
  WatchedMapping(const WatchedMapping&) = delete;
  WatchedMapping& operator=(const WatchedMapping&) = delete;

  /// Throws Error when memory was lost or the file is shorter now. Only the file's size shows the loss of less than a
  /// page, which the system fills with zeros without a signal.
  void check() const;

 private:
  detail::WatchedMemory* memory_;
};

/// Throws Error naming the file while memory of any mapped file is lost: computations since then may have read zeros.
/// Costs one atomic load when no memory is lost.
inline void check_lost_files() {
  if (detail::lost_files.load(std::memory_order_relaxed) != 0) [[unlikely]]
    detail::fail_lost_files();
}

/// check() of the mapped file that holds `address`; does nothing for other memory. One system call. Call it after
/// copying weights out of files.
void verify_mapped_memory(const void* address);

}  // namespace tern
