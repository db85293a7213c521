#include "tern/core/tensor/size_checks.h"

#include "tern/core/memory/memory_source.h"
#include "tern/kernels/base/check.h"

namespace tern::detail {

int64_t checked_sum(const char* op, int64_t a, int64_t b) {
  int64_t sum = 0;
  TERN_CHECK(!__builtin_add_overflow(a, b, &sum), op, ": ", a, " and ", b, " together do not fit 64 bits");
  return sum;
}

int64_t checked_product(const char* op, int64_t a, int64_t b) {
  int64_t product = 0;
  TERN_CHECK(!__builtin_mul_overflow(a, b, &product), op, ": ", a, " times ", b, " does not fit 64 bits");
  return product;
}

void check_host_list(const char* op, int64_t count, int64_t bytes) {
  constexpr int64_t kSmall = 1 << 20;  // reading what is left costs more than such a list
  if (count <= kSmall / bytes) return;
  const int64_t needed = checked_product(op, count, bytes), left = available_system_memory();
  if (needed <= left / 2) return;
  throw OutOfMemoryError(concatenate(op, ": a list of ", count, " entries of ", bytes,
                                     " bytes does not fit into the memory that is left, ", left, " bytes"));
}

}  // namespace tern::detail
