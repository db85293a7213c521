#pragma once
// Tasks that need memory while they run, of which there is as much as there are threads. Included only by kernels/cpu.

#include <algorithm>
#include <atomic>

#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

/// body(task, slot) for all tasks, on at most `slots` threads; a slot takes the next task when it has finished one.
template <class Body>
void for_tasks(int64_t tasks, int64_t slots, const Body& body) {
  std::atomic<int64_t> next = 0;
  parallel_for(std::min(tasks, slots), 1, [&](int64_t slot, int64_t) {
    for (int64_t task = next++; task < tasks; task = next++) body(task, slot);
  });
}

}  // namespace
}  // namespace tern::kernels::TERN_CPU
