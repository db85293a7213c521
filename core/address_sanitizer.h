#pragma once
// What AddressSanitizer is told of memory that an allocator keeps: memory which the system gave, but which is no
// tensor's, must not be touched. In other builds these functions do nothing.

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define TERN_ADDRESS_SANITIZER 1
#elif defined(__has_feature)  // clang
#if __has_feature(address_sanitizer)
#define TERN_ADDRESS_SANITIZER 1
#endif
#endif
#ifdef TERN_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

namespace tern::detail {

/// Every access is reported from here on, until allow_access().
inline void forbid_access([[maybe_unused]] const void* begin, [[maybe_unused]] size_t bytes) {
#ifdef TERN_ADDRESS_SANITIZER
  ASAN_POISON_MEMORY_REGION(begin, bytes);
#endif
}

inline void allow_access([[maybe_unused]] const void* begin, [[maybe_unused]] size_t bytes) {
#ifdef TERN_ADDRESS_SANITIZER
  ASAN_UNPOISON_MEMORY_REGION(begin, bytes);
#endif
}

}  // namespace tern::detail
