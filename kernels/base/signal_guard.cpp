#include "tern/kernels/base/signal_guard.h"

#include <unistd.h>

#include <algorithm>
#include <memory>

namespace tern::kernels {
namespace {

/// The alternate stack of a thread, unless it has one already.
class AlternateStack {
 public:
  AlternateStack() {
    stack_t present{};
    if (sigaltstack(nullptr, &present) != 0 || !(present.ss_flags & SS_DISABLE)) return;
    const auto bytes = static_cast<size_t>(std::max(sysconf(_SC_SIGSTKSZ), 65536L));  // it grows with the registers
    memory_ = std::make_unique<char[]>(bytes);
    stack_t wanted{};
    wanted.ss_sp = memory_.get();
    wanted.ss_size = bytes;
    sigaltstack(&wanted, nullptr);
  }
  ~AlternateStack() {
    stack_t present{};
    if (!memory_ || sigaltstack(nullptr, &present) != 0 || present.ss_sp != memory_.get()) return;
    present.ss_flags = SS_DISABLE;
    sigaltstack(&present, nullptr);
  }
  AlternateStack(const AlternateStack&) = delete;

 private:
  std::unique_ptr<char[]> memory_;
};

}  // namespace

sigset_t signals_from_outside() noexcept {
  sigset_t signals;
  sigfillset(&signals);
  for (const int fault : {SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP}) sigdelset(&signals, fault);
  return signals;
}

SignalGuard::SignalGuard() {
  static thread_local const AlternateStack stack;
  static const sigset_t outside = signals_from_outside();
  pthread_sigmask(SIG_BLOCK, &outside, &before_);
}

SignalGuard::~SignalGuard() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

}  // namespace tern::kernels
