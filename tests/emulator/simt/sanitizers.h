#pragma once
// The functions of AddressSanitizer and ThreadSanitizer that the emulator's runtime uses: weak symbols, null when the
// program is built without. Interfaces: sanitizer/common_interface_defs.h, asan_interface.h, tsan_interface.h.

#include <cstddef>

#define SIMT_WEAK __attribute__((weak))
extern "C" {
SIMT_WEAK void __asan_poison_memory_region(void const volatile*, size_t);
SIMT_WEAK void __asan_unpoison_memory_region(void const volatile*, size_t);
SIMT_WEAK void* __asan_region_is_poisoned(void*, size_t);
SIMT_WEAK void __asan_report_load_n(void*, size_t);
SIMT_WEAK void __asan_report_store_n(void*, size_t);
SIMT_WEAK void __sanitizer_start_switch_fiber(void**, const void*, size_t);
SIMT_WEAK void __sanitizer_finish_switch_fiber(void*, const void**, size_t*);
SIMT_WEAK void __tsan_read_range(void*, size_t);
SIMT_WEAK void __tsan_write_range(void*, size_t);
SIMT_WEAK void* __tsan_create_fiber(unsigned);
SIMT_WEAK void __tsan_destroy_fiber(void*);
SIMT_WEAK void* __tsan_get_current_fiber();
SIMT_WEAK void __tsan_switch_to_fiber(void*, unsigned);
SIMT_WEAK void __tsan_ignore_thread_begin();
SIMT_WEAK void __tsan_ignore_thread_end();
SIMT_WEAK void __tsan_acquire(void*);
SIMT_WEAK void __tsan_release(void*);
}

namespace simt::sanitizer {

inline bool has_address() { return __sanitizer_start_switch_fiber != nullptr; }
inline bool has_thread() { return __tsan_create_fiber != nullptr; }

/// Excludes the runtime's accesses (in libc functions that ThreadSanitizer intercepts) from race detection.
class Unchecked {
 public:
  Unchecked() {
    if (has_thread()) __tsan_ignore_thread_begin();
  }
  ~Unchecked() {
    if (has_thread()) __tsan_ignore_thread_end();
  }
  Unchecked(const Unchecked&) = delete;
};

/// Accesses before release(key) in one CUDA thread happen before those after acquire(key) in another.
inline void release(void* key) {
  if (has_thread()) __tsan_release(key);
}
inline void acquire(void* key) {
  if (has_thread()) __tsan_acquire(key);
}

inline void poison(void* address, size_t bytes) {
  if (__asan_poison_memory_region) __asan_poison_memory_region(address, bytes);
}
inline void unpoison(void* address, size_t bytes) {
  if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(address, bytes);
}

/// Reports an access of the runtime on behalf of a kernel, as if the kernel's code had made it.
inline void note_read(const void* address, size_t bytes) {
  void* p = const_cast<void*>(address);
  if (__asan_region_is_poisoned && __asan_region_is_poisoned(p, bytes)) __asan_report_load_n(p, bytes);
  if (__tsan_read_range) __tsan_read_range(p, bytes);
}
inline void note_write(void* address, size_t bytes) {
  if (__asan_region_is_poisoned && __asan_region_is_poisoned(address, bytes)) __asan_report_store_n(address, bytes);
  if (__tsan_write_range) __tsan_write_range(address, bytes);
}

}  // namespace simt::sanitizer
