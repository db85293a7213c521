#pragma once
// Calls with numbers far outside of what memory holds.

#include <cstdint>
#include <functional>
#include <vector>

#include "tern/core/memory/allocator.h"
#include "tern/tests/core/core_test.h"

namespace tern::test {

struct SizedCall {
  const char* name;
  std::function<void(int64_t)> call;
};

/// Each throws tern::Error or returns, without a loop or an allocation of that length. The numbers are `least` or more.
inline void expect_errors_or_no_work(const std::vector<std::vector<SizedCall>>& families, int64_t least = INT64_MIN) {
  allocator(cpu).set_limit(int64_t{1} << 30);
  for (const std::vector<SizedCall>& calls : families)
    for (const SizedCall& call : calls)
      for (const int64_t n : {INT64_MAX, INT64_MAX - 1, int64_t{1} << 62, int64_t{1} << 40, int64_t{-1}, least}) {
        SCOPED_TRACE(testing::Message() << call.name << "(" << n << ")");
        try {
          call.call(n);
        } catch (const Error& error) {
          EXPECT_STRNE(error.what(), "");
        } catch (const std::exception& error) {
          ADD_FAILURE() << "not a tern::Error: " << error.what();
        }
      }
  allocator(cpu).set_limit(0);
}

}  // namespace tern::test
