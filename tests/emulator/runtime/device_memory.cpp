#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

#include "tern/tests/emulator/runtime/memory.h"
#include "tern/tests/emulator/simt/launcher.h"
#include "tern/tests/emulator/simt/sanitizers.h"

namespace tern::standin {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kAlignment = 512;  // cudaMalloc's alignment is at least 256
constexpr unsigned char kFill = 0xff;
constexpr size_t kMaxAddresses = size_t{16} << 40;

constexpr size_t round_up(size_t value, size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

/// All members are guarded by the state's lock.
struct Memory {
  char* base = nullptr;  // start of the device addresses
  size_t size = 0;
  size_t next = 0;  // bytes of addresses used so far
  std::map<char*, Allocation> live;
  std::map<char*, Allocation> freed;  // for messages
  std::map<char*, HostRange> host;
  std::map<int, size_t> used;  // bytes per device
  uint64_t allocations = 0;
  int open = 0;
};

Memory& memory() {
  static auto* const m = new Memory;
  return *m;
}

thread_local bool illegal_access = false;
thread_local std::string fault_text;  // not on the CUDA thread's stack, whose destructors do not run
struct sigaction previous_action;

/// The pages of an allocation: its data ends at their end, except for padding.
char* first_page(const Allocation& a) { return a.start - reinterpret_cast<uintptr_t>(a.start) % kPage; }
char* end_of_pages(const Allocation& a) { return a.start + round_up(a.bytes, kAlignment); }
size_t page_bytes(const Allocation& a) { return end_of_pages(a) - first_page(a); }

/// The entry of the map whose range [start, start + bytes) contains the address.
template <class Range>
Range* find_range(std::map<char*, Range>& ranges, const void* pointer) {
  char* const p = static_cast<char*>(const_cast<void*>(pointer));
  auto found = ranges.upper_bound(p);
  if (found == ranges.begin()) return nullptr;
  --found;
  Range& range = found->second;
  return p < range.start + range.bytes || p == range.start ? &range : nullptr;
}

std::string describe(const char* address) {
  Memory& m = memory();
  char text[200];
  const auto say = [&](const char* what, const Allocation& a) {
    std::snprintf(text, sizeof text, "address %p, byte %td of %s allocation %llu (%zu bytes at %p on device %d)",
                  static_cast<const void*>(address), address - a.start, what, static_cast<unsigned long long>(a.serial),
                  a.bytes, static_cast<const void*>(a.start), a.device);
    return std::string(text);
  };
  if (const Allocation* live = find_range(m.live, address)) return say("the live", *live);
  if (const Allocation* freed = find_range(m.freed, address)) return say("the freed", *freed);
  const auto next = m.live.upper_bound(const_cast<char*>(address));
  if (next != m.live.begin()) return say("(past its end) the live", std::prev(next)->second);
  std::snprintf(text, sizeof text, "address %p, where nothing is allocated", static_cast<const void*>(address));
  return text;
}

/// An invalid access by a CUDA thread ends its kernel with an error; any other prints a message and ends the program.
void on_fault(int, siginfo_t* info, void*) {
  const Memory& m = memory();
  const char* const address = static_cast<const char*>(info->si_addr);
  if (address < m.base || address >= m.base + m.size) {
    sigaction(SIGSEGV, &previous_action, nullptr);  // repeated on return; the program's handler gets it
    return;
  }
  if (simt::in_kernel()) {
    illegal_access = true;
    fault_text = "an illegal access of device memory: " + describe(address);
    simt::fail_kernel(fault_text.c_str());
  }
  const std::string message = std::string("stand-in CUDA: ") +
                              (in_queued_work() ? "queued work accessed" : "host code accessed device memory:") + " " +
                              describe(address) + "\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, message.data(), message.size());
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  sigaction(SIGSEGV, &standard, nullptr);
}

void reserve_addresses(Memory& m) {
  for (m.size = kMaxAddresses; m.size >= size_t{1} << 30; m.size /= 4) {
    void* base = mmap(nullptr, m.size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) continue;
    m.base = static_cast<char*>(base);
    break;
  }
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;  // runs on the CUDA thread's stack, which fail_kernel() never returns to
  sigaction(SIGSEGV, &action, &previous_action);
}

void protect(const Allocation& a, int protection) { mprotect(first_page(a), page_bytes(a), protection); }

/// Makes the memory inaccessible for good and returns its pages to the system.
void close(const Allocation& a) {
  simt::sanitizer::unpoison(first_page(a), page_bytes(a));
  madvise(first_page(a), page_bytes(a), MADV_DONTNEED);
  protect(a, PROT_NONE);
}

bool padding_is_untouched(const Allocation& a) {
  return std::all_of(a.start + a.bytes, end_of_pages(a), [](char c) { return static_cast<unsigned char>(c) == kFill; });
}

}  // namespace

Allocation* allocate(State& s, size_t bytes) {
  Memory& m = memory();
  const int device = current_device();
  const size_t taken = round_up(std::max<size_t>(bytes, 1), kAlignment);
  if (bytes > s.config.memory_bytes || m.used[device] + taken > s.config.memory_bytes) return nullptr;
  if (!m.base) reserve_addresses(m);
  const size_t pages = round_up(taken, kPage) + kPage;  // an inaccessible page follows each allocation
  if (!m.base || m.next + pages > m.size) return nullptr;
  char* const end = m.base + m.next + pages - kPage;
  if (mprotect(m.base + m.next, pages - kPage, PROT_READ | PROT_WRITE) != 0) return nullptr;
  m.next += pages;
  m.used[device] += taken;
  Allocation& a = m.live[end - taken];
  a = {end - taken, bytes, device, ++m.allocations};
  std::memset(a.start, kFill, taken);
  simt::sanitizer::poison(first_page(a), a.start - first_page(a));
  simt::sanitizer::poison(a.start + bytes, taken - bytes);
  if (s.protection && m.open == 0) protect(a, PROT_NONE);
  return &a;
}

void release(State& s, Allocation* allocation) {
  Memory& m = memory();
  const Allocation a = *allocation;
  {
    const OpenMemory open(s);
    simt::sanitizer::unpoison(first_page(a), page_bytes(a));
    if (!padding_is_untouched(a))
      make_sticky(s, cudaErrorIllegalAddress, "a write past the end: " + describe(a.start + a.bytes));
  }
  close(a);
  m.used[a.device] -= round_up(std::max<size_t>(a.bytes, 1), kAlignment);
  m.freed[a.start] = a;
  m.live.erase(a.start);
}

Allocation* find_allocation(const void* pointer) { return find_range(memory().live, pointer); }
std::map<char*, HostRange>& host_ranges() { return memory().host; }
size_t used_on(int device) { return memory().used[device]; }

Place place_of(const void* pointer, size_t bytes) {
  const Memory& m = memory();
  const char* const p = static_cast<const char*>(pointer);
  if (m.base && p >= m.base && p < m.base + m.size) {
    const Allocation* a = find_allocation(p);
    return a && p + bytes <= a->start + a->bytes ? Place::kDevice : Place::kInvalid;
  }
  const HostRange* host = find_range(memory().host, p);
  return host && p + bytes <= host->start + host->bytes ? Place::kPinned : Place::kPageable;
}

bool take_illegal_access() { return std::exchange(illegal_access, false); }

void forget_memory(State& s) {
  Memory& m = memory();
  for (const auto& [start, a] : m.live) close(a);
  for (const auto& [start, range] : m.host) munmap(start, round_up(range.bytes, kPage));
  m.live.clear();
  m.freed.clear();
  m.host.clear();
  m.used.clear();
  m.allocations = 0;
}

OpenMemory::OpenMemory(State& s) : state_(s) {
  Memory& m = memory();
  if (m.open++ > 0 || !state_.protection) return;
  for (const auto& [start, a] : m.live) protect(a, PROT_READ | PROT_WRITE);
}

OpenMemory::~OpenMemory() {
  Memory& m = memory();
  if (--m.open > 0 || !state_.protection) return;
  for (const auto& [start, a] : m.live) protect(a, PROT_NONE);
}

void set_protection(bool on) {
  locked([&](State& s) {
    s.protection = on;
    for (const auto& [start, a] : memory().live) protect(a, on ? PROT_NONE : PROT_READ | PROT_WRITE);
  });
}

void require_device_memory(const void* pointer, size_t bytes, const char* what) {
  const std::lock_guard lock(state().mutex);
  const Place place = place_of(pointer, bytes);
  if (place == Place::kDevice || place == Place::kPinned) return;
  const char* const p = static_cast<const char*>(pointer);
  const std::string where = place == Place::kPageable ? "pageable host memory" : describe(p);
  throw DeviceError(cudaErrorIllegalAddress,
                    std::string(what) + ": " + std::to_string(bytes) + " bytes are not device memory: " + where);
}

size_t used_memory() {
  const std::lock_guard lock(state().mutex);
  size_t sum = 0;
  for (const auto& [device, bytes] : memory().used) sum += bytes;
  return sum;
}

}  // namespace tern::standin
