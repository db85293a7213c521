#include "tern/tests/emulator/simt/fiber.h"

#include <cstdint>

#include "tern/tests/emulator/simt/sanitizers.h"

// Saves the callee-saved registers on the current stack, switches to the other stack, restores them and returns there.
asm(R"(
.text
.p2align 4
.globl simt_switch_stack
.hidden simt_switch_stack
.type simt_switch_stack,@function
simt_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size simt_switch_stack,.-simt_switch_stack
)");
extern "C" __attribute__((visibility("hidden"))) void simt_switch_stack(void** save, void* load);

namespace simt {

void Fiber::adopt_host_stack() {
  if (sanitizer::has_thread()) tsan_fiber_ = __tsan_get_current_fiber();
}

void Fiber::prepare(char* low, size_t bytes, int index, void (*entry)()) {
  constexpr size_t kGuard = 4096, kLine = 64;
  low_ = low;
  bytes_ = bytes;
  if (sanitizer::has_thread() && tsan_fiber_ == nullptr) tsan_fiber_ = __tsan_create_fiber(0);
  sanitizer::unpoison(low + kGuard, bytes - kGuard);
  char* top = low + bytes - static_cast<size_t>(index) * 3 % 63 * kLine;
  void** slot = reinterpret_cast<void**>(top);
  *--slot = nullptr;  // the return address of `entry`: ends stack traces
  *--slot = reinterpret_cast<void*>(entry);
  for (int saved = 0; saved < 6; ++saved) *--slot = nullptr;
  stack_pointer_ = slot;
}

void Fiber::abandon(Fiber& host) {
  if (tsan_fiber_ != nullptr) {
    __tsan_switch_to_fiber(tsan_fiber_, 1);
    __tsan_switch_to_fiber(host.tsan_fiber_, 0);  // 0: ordered like a call
    __tsan_destroy_fiber(tsan_fiber_);
  }
  stack_pointer_ = nullptr;
  tsan_fiber_ = nullptr;
  fake_stack_ = nullptr;
}

void Fiber::switch_to(Fiber& other) {
  if (sanitizer::has_address()) __sanitizer_start_switch_fiber(&fake_stack_, other.low_, other.bytes_);
  if (sanitizer::has_thread()) __tsan_switch_to_fiber(other.tsan_fiber_, 1);  // 1: the switch does not order accesses
  simt_switch_stack(&stack_pointer_, other.stack_pointer_);
  if (sanitizer::has_address()) __sanitizer_finish_switch_fiber(fake_stack_, nullptr, nullptr);
}

void Fiber::begin(Fiber& host) {
  if (sanitizer::has_address()) __sanitizer_finish_switch_fiber(nullptr, &host.low_, &host.bytes_);
}

}  // namespace simt
