#pragma once
// CPU threads. Work is divided into blocks whose size does not depend on the number of threads, so neither do results.

#include <cstdint>

namespace tern::kernels {

/// Runs body(context, block) once for every block in [0, blocks), on up to num_threads() threads including the
/// caller's; returns when all are done. Nested calls run on their calling thread. Several threads may call at once. If
/// a block throws, the remaining blocks are skipped; when the running ones are done, the first exception is rethrown.
__attribute__((visibility("default"))) void run_blocks(void (*body)(void* context, int64_t block), void* context,
                                                       int64_t blocks);

/// Runs body(begin, end) over [0, count) in blocks of `grain`.
template <class Body>
void parallel_for(int64_t count, int64_t grain, Body&& body) {
  if (count <= 0) return;
  if (count <= grain) return body(int64_t{0}, count);
  struct Context {
    Body& body;
    int64_t count, grain;
  } context{body, count, grain};
  run_blocks(
      [](void* raw, int64_t block) {
        Context& c = *static_cast<Context*>(raw);
        const int64_t begin = block * c.grain;
        c.body(begin, begin + c.grain < c.count ? begin + c.grain : c.count);
      },
      &context, (count + grain - 1) / grain);
}

}  // namespace tern::kernels
