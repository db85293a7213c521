#pragma once
// A stack and its registers, for x86-64 Linux. The sanitizers are notified of every switch.

#include <cstddef>

namespace simt {

class Fiber {
 public:
  /// Represents the host thread's stack.
  void adopt_host_stack();
  /// Creates a stack in [low, low + bytes), whose first page is a guard; the fiber starts at `entry`, which never
  /// returns. `index` shifts the top of the stack, so that a thousand stacks do not share the same cache sets.
  void prepare(char* low, size_t bytes, int index, void (*entry)());
  bool is_prepared() const { return stack_pointer_ != nullptr; }
  /// Discards the fiber's execution, ordered before the following accesses of `host`; prepare() must be called again.
  void abandon(Fiber& host);

  void switch_to(Fiber& other);
  /// Must be called first in `entry`; `host` is the fiber that switched to it.
  void begin(Fiber& host);

 private:
  void* stack_pointer_ = nullptr;
  const void* low_ = nullptr;
  size_t bytes_ = 0;
  void* fake_stack_ = nullptr;  // used by AddressSanitizer
  void* tsan_fiber_ = nullptr;
};

}  // namespace simt
