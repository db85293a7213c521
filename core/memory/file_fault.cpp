#include "tern/core/memory/file_fault.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <mutex>

#include "tern/kernels/base/check.h"

namespace tern {
namespace detail {

/// Never freed, because the handler may read it at any time: an unused one has end 0 and is reused.
struct WatchedMemory {
  std::atomic<uintptr_t> begin = 0, end = 0;
  std::atomic<bool> lost = false;
  WatchedMemory* next = nullptr;  // set before the handler can read it
  // Guarded by the mutex:
  bool used = false;
  std::string path;
  int descriptor = -1;
  size_t bytes = 0;
};

std::atomic<int> lost_files = 0;

}  // namespace detail

namespace {

using detail::WatchedMemory;

std::atomic<WatchedMemory*> all_memory = nullptr;
struct sigaction earlier {};  // the previous handler
uintptr_t page_bytes = 0;

static_assert(std::atomic<uintptr_t>::is_always_lock_free && std::atomic<WatchedMemory*>::is_always_lock_free);

std::mutex& mutex() {
  static std::mutex instance;
  return instance;
}

/// Maps zeros where the file's bytes are lost, from the page of `address` to the end of the mapping, so that a large
/// file does not need a mapping for each page. False when no watched file is mapped at `address`. Async-signal-safe.
bool replace_lost_memory(uintptr_t address) {
  for (WatchedMemory* memory = all_memory.load(); memory; memory = memory->next) {
    const uintptr_t end = memory->end.load();
    if (address < memory->begin.load() || address >= end) continue;
    // Set before the memory is replaced: a thread that reads zeros must find the mark.
    if (!memory->lost.exchange(true)) detail::lost_files.fetch_add(1);
    const uintptr_t page = address / page_bytes * page_bytes;
    void* const place = reinterpret_cast<void*>(page);
    return mmap(place, end - page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1,
                0) == place;
  }
  return false;
}

/// Does what would happen without this handler.
void pass_on(int number, siginfo_t* info, void* context) {
  if (earlier.sa_flags & SA_SIGINFO) {
    earlier.sa_sigaction(number, info, context);
  } else if (earlier.sa_handler != SIG_DFL && earlier.sa_handler != SIG_IGN) {
    earlier.sa_handler(number);
  } else if (info->si_code > 0 || earlier.sa_handler == SIG_DFL) {
    // An access is repeated on return and then ends the process, because the system ignores no fault. A signal from a
    // process must be raised again.
    std::signal(SIGBUS, SIG_DFL);
    if (info->si_code <= 0) std::raise(SIGBUS);
  }
}

void on_bus_error(int number, siginfo_t* info, void* context) {
  const int error = errno;
  const bool access = info->si_code > 0;  // a fault of this thread; otherwise a signal from a process
  if (!access || !replace_lost_memory(reinterpret_cast<uintptr_t>(info->si_addr))) pass_on(number, info, context);
  errno = error;
}

/// The caller holds the mutex.
void install_handler() {
  static bool installed = false;
  if (installed) return;
  page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  TERN_CHECK(sigaction(SIGBUS, nullptr, &earlier) == 0 && sigaction(SIGBUS, &action, nullptr) == 0,
             "the handler of SIGBUS cannot be installed");
  installed = true;
}

/// Returns an unused entry.
WatchedMemory* take_memory() {
  for (WatchedMemory* memory = all_memory.load(); memory; memory = memory->next)
    if (!memory->used) return memory;
  auto* memory = new WatchedMemory;
  memory->next = all_memory.load();
  all_memory.store(memory);
  return memory;
}

/// Returns the problem of the file, or an empty string.
std::string problem_of(const WatchedMemory& memory) {
  struct stat status {};
  std::string problem;
  if (memory.lost.load())
    problem = "it was cut shorter while it was read, or the disk cannot read it";
  else if (fstat(memory.descriptor, &status) != 0 || static_cast<uint64_t>(status.st_size) < memory.bytes)
    problem = detail::concatenate("it was cut from ", memory.bytes, " to ", status.st_size, " bytes while it was read");
  if (problem.empty()) return {};
  return memory.path + ": " + problem +
         "; write it again whole, under another name first if a program may have it open";
}

}  // namespace

WatchedMapping::WatchedMapping(std::string path, int descriptor, void* begin, size_t bytes) {
  const std::lock_guard lock(mutex());
  install_handler();
  memory_ = take_memory();
  memory_->used = true;
  memory_->path = std::move(path);
  memory_->descriptor = descriptor;
  memory_->bytes = bytes;
  const auto first = reinterpret_cast<uintptr_t>(begin);
  memory_->begin.store(first);
  memory_->end.store(first + (bytes + page_bytes - 1) / page_bytes * page_bytes);
}

WatchedMapping::~WatchedMapping() {
  const std::lock_guard lock(mutex());
  memory_->end.store(0);
  if (memory_->lost.exchange(false)) detail::lost_files.fetch_sub(1);
  memory_->used = false;
}

void WatchedMapping::check() const {
  const std::lock_guard lock(mutex());
  const std::string problem = problem_of(*memory_);
  TERN_CHECK(problem.empty(), problem);
}

void detail::fail_lost_files() {
  const std::lock_guard lock(mutex());
  for (const WatchedMemory* memory = all_memory.load(); memory; memory = memory->next)
    if (memory->used && memory->lost.load()) fail(problem_of(*memory));
}

void verify_mapped_memory(const void* address) {
  const auto place = reinterpret_cast<uintptr_t>(address);
  const std::lock_guard lock(mutex());
  for (const WatchedMemory* memory = all_memory.load(); memory; memory = memory->next) {
    if (place < memory->begin.load() || place >= memory->end.load()) continue;
    const std::string problem = problem_of(*memory);
    TERN_CHECK(problem.empty(), problem);
  }
}

}  // namespace tern
