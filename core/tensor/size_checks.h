#pragma once
// Checks of sizes that a caller gives, before anything is as long as they say.

#include <cstdint>

namespace tern::detail {

/// a + b and a * b of numbers >= 0. Throw Error, which begins with `op`, when they do not fit 64 bits.
int64_t checked_sum(const char* op, int64_t a, int64_t b);
int64_t checked_product(const char* op, int64_t a, int64_t b);

/// To be called before a list is made on the host whose length a caller decides. Throws OutOfMemoryError unless `count`
/// (>= 0) times `bytes` fit into half of the memory that the process may still allocate: lists double as they grow.
void check_host_list(const char* op, int64_t count, int64_t bytes = 8);

}  // namespace tern::detail
