// Signals that arrive during products: oneDNN computes some with the stack pointer in a buffer from malloc()
// (kernels/cpu/gemm/onednn.cpp), where the system must not store the state of the interrupted thread.

#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "tern/tests/kernels/contracts/gemm.h"

namespace tern::kernels {
namespace {

std::atomic<uintptr_t> stack_begin, stack_end;
std::atomic<int64_t> inside, outside, faults;
void* closed_page;
size_t page_bytes;

bool on_stack_of_thread(void* context) {
  const auto pointer = static_cast<uintptr_t>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RSP]);
  return pointer > stack_begin && pointer <= stack_end;
}

void count_signal(int, siginfo_t*, void* context) { ++(on_stack_of_thread(context) ? inside : outside); }

void open_page(int, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr), page = reinterpret_cast<uintptr_t>(closed_page);
  if (address < page || address >= page + page_bytes) _exit(3);  // another fault
  stack_t stack{};
  sigaltstack(nullptr, &stack);
  ++((stack.ss_flags & SS_ONSTACK) || on_stack_of_thread(context) ? faults : outside);
  mprotect(closed_page, page_bytes, PROT_READ | PROT_WRITE);
}

class GemmSignals : public OnCpu {
 protected:
  GemmSignals() {
    set_num_threads(1);  // products are computed on this thread
    pthread_attr_t attributes;
    void* begin = nullptr;
    size_t bytes = 0;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &begin, &bytes);
    pthread_attr_destroy(&attributes);
    stack_begin = reinterpret_cast<uintptr_t>(begin);
    stack_end = stack_begin + bytes;
    inside = outside = faults = 0;
  }
  ~GemmSignals() override {
    for (const auto& [number, action] : before_) sigaction(number, &action, nullptr);
  }

  void handle(int number, void (*handler)(int, siginfo_t*, void*)) {
    struct sigaction action {
    }, before{};
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigaction(number, &action, &before);
    before_.emplace_back(number, before);
  }

  static void multiply(Operands& operands, const Case& t) {
    const View a = operands.a.matrix(), b = operands.b.matrix(), c = operands.c.matrix();
    std::vector<char> workspace(gemm_workspace(Stream{}, t.transpose_a, t.transpose_b, a, b, c));
    gemm(Stream{}, t.transpose_a, t.transpose_b, 1, a, b, 0, c, workspace.data());
  }

  std::vector<std::pair<int, struct sigaction>> before_;
};

TEST_F(GemmSignals, FindAStack) {
  handle(SIGUSR2, count_signal);
  const pthread_t thread = pthread_self();
  std::jthread sender([thread](const std::stop_token& stop) {
    for (; !stop.stop_requested(); usleep(50)) pthread_kill(thread, SIGUSR2);
  });
  for (const int64_t k : {64, 65, 85, 128, 129, 253, 1000, 8193})
    for (const bool transpose_b : {false, true}) {
      const int64_t size = below(2) ? 90 : 300;  // a small result of a long sum is computed in parts
      const Case t{1, size + below(20), size + below(20), k, below(2) == 0, transpose_b};
      Operands operands(float32, float32, t, random_);
      const int64_t before = inside + outside, signals = 100;
      for (int call = 0; call < 10'000 && inside + outside < before + signals; ++call) multiply(operands, t);
      ASSERT_GE(inside + outside, before + signals) << "signals do not arrive";
      EXPECT_EQ(outside, 0) << k;
    }
  sender.request_stop();
  sender.join();
  EXPECT_GT(inside, 0);
}

/// A fault cannot wait: a file that loses its end while its weights are used is one (core/memory/file_fault.h).
TEST_F(GemmSignals, FaultsRunOnAnAlternateStack) {
  handle(SIGSEGV, open_page);
  page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (const bool transpose_b : {false, true}) {
    const Case t{1, 300, 300, 1000, false, transpose_b};
    Operands operands(float32, float32, t, random_);
    multiply(operands, t);
    const std::vector<char> want = operands.c.memory.bytes();
    const auto middle = reinterpret_cast<uintptr_t>(operands.b.memory.view().data) + 300 * 1000 * 2;
    closed_page = reinterpret_cast<void*>(middle / page_bytes * page_bytes);
    const int64_t before = faults;
    ASSERT_EQ(mprotect(closed_page, page_bytes, PROT_NONE), 0);
    multiply(operands, t);
    EXPECT_EQ(faults, before + 1);
    EXPECT_EQ(outside, 0);
    EXPECT_TRUE(want == operands.c.memory.bytes());
  }
}

/// What a thread has set itself stays.
TEST_F(GemmSignals, LeaveTheThreadsSettings) {
  std::thread([&] {
    std::vector<char> memory(1 << 16);
    stack_t own{}, after{};
    own.ss_sp = memory.data();
    own.ss_size = memory.size();
    ASSERT_EQ(sigaltstack(&own, nullptr), 0);
    sigset_t blocked, left;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
    for (const int64_t size : {60, 100, 300}) {
      const Case t{1, size, size, 190, false, false};
      Operands operands(float32, float32, t, random_);
      multiply(operands, t);
      sigaltstack(nullptr, &after);
      EXPECT_EQ(after.ss_sp, own.ss_sp);
      pthread_sigmask(SIG_SETMASK, nullptr, &left);
      for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGPROF})
        EXPECT_EQ(sigismember(&left, number), number == SIGUSR1) << number;
    }
    own.ss_flags = SS_DISABLE;
    sigaltstack(&own, nullptr);
  }).join();
}

}  // namespace
}  // namespace tern::kernels
