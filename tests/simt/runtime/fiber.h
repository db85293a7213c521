#pragma once
// A stack and the registers that belong to it, on x86-64 Linux; the sanitizers are told of every switch.

#include <cstddef>

namespace simt {

class Fiber {
 public:
  /// The host thread's own stack.
  void adopt_host_stack();
  /// A stack of its own in [low, low + bytes), whose first page is a guard; the fiber begins at `entry`, which never
  /// returns. `index` staggers the tops, so that a thousand stacks do not fall into the same cache sets.
  void prepare(char* low, size_t bytes, int index, void (*entry)());
  bool is_prepared() const { return stack_pointer_ != nullptr; }
  /// The next prepare() begins anew: what the fiber was doing is abandoned, and ordered before what `host` does next.
  void abandon(Fiber& host);

  void switch_to(Fiber& other);
  /// To be called first in `entry`; `host` is the fiber that switched to it.
  void begin(Fiber& host);

 private:
  void* stack_pointer_ = nullptr;
  const void* low_ = nullptr;
  size_t bytes_ = 0;
  void* fake_stack_ = nullptr;  // AddressSanitizer's
  void* tsan_fiber_ = nullptr;
};

}  // namespace simt
