#pragma once

#include <csignal>

namespace tern::kernels {

/// All signals but those that report a fault of the thread itself, which cannot wait.
sigset_t signals_from_outside() noexcept;

/// While it exists, no signal handler runs on the stack of this thread: signals from outside wait, and the handler of a
/// fault, which cannot wait, runs on an alternate stack if it was installed with SA_ONSTACK. For code whose stack
/// pointer does not point to the end of a stack: the system stores the state of an interrupted thread below it.
class SignalGuard {
 public:
  SignalGuard();
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;

 private:
  sigset_t before_;
};

}  // namespace tern::kernels
