#pragma once
// Marks memory that an allocator keeps but no tensor uses, so that AddressSanitizer reports accesses to it. In other
// builds these functions do nothing.

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

/// Every access is reported until allow_access() is called.
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
