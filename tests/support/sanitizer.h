#pragma once
// Effects of a sanitizer on tests: programs take longer and more memory, limits of the address space do not apply, and
// its library must be loaded before others.

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>

#include "tern/tests/support/results.h"

namespace tern::test {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true, kThreadSanitized = true;
/// Factor of the time limits of tests.
inline constexpr int kPatience = 20;
#elif defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true, kThreadSanitized = false;
inline constexpr int kPatience = 10;
#else
inline constexpr bool kSanitized = false, kThreadSanitized = false;
inline constexpr int kPatience = 1;
#endif

/// How many random inputs a test tries: a quarter under a sanitizer, which reports a fault at its first input.
constexpr int trials(int count) { return kSanitized ? count / 4 : count; }

/// Expects that a program's peak memory is below the bound; left out with a sanitizer, which needs memory itself.
inline void expect_peak_below(long peak_kib, long bound_kib, const std::string& why = "") {
  if (kSanitized)
    left_out("sanitizer: its memory hides the program's use");
  else
    EXPECT_LT(peak_kib, bound_kib) << why;
}

/// The value of LD_PRELOAD for a library and a program built like this one: the sanitizer's library comes first.
inline std::string preload(const std::string& library) {
#if defined(__SANITIZE_THREAD__)
  constexpr const char* kSymbol = "__tsan_init";
#else
  constexpr const char* kSymbol = "__asan_init";
#endif
  Dl_info info{};
  void* const place = kSanitized ? dlsym(RTLD_DEFAULT, kSymbol) : nullptr;
  if (place == nullptr || dladdr(place, &info) == 0) return library;
  return std::string(info.dli_fname) + ":" + library;
}

}  // namespace tern::test
