#include "tern/dist/store/placement.h"

#include <sched.h>

#include <cstdlib>
#include <thread>

#include "tern/core/device/backend.h"
#include "tern/kernels/kernel.h"

namespace tern::dist {

Device rank_gpu(const Launch& launch) {
  return {DeviceType::kCUDA, cuda::listed_device_count() == 1 ? 0 : launch.local_rank};
}

Device best_rank_device(const Launch& launch) {
  if (!launch.is_parallel()) return best_device();
  return cuda::suitable_device_count() > 0 ? rank_gpu(launch) : cpu;
}

void share_cores(const Launch& launch) {
  if (!launch.is_parallel()) return;
  if (const char* chosen = std::getenv("OMP_NUM_THREADS"); chosen && *chosen) return;
  cpu_set_t allowed_cpus;
  const bool bound = sched_getaffinity(0, sizeof allowed_cpus, &allowed_cpus) == 0 &&
                     CPU_COUNT(&allowed_cpus) < static_cast<int>(std::thread::hardware_concurrency());
  if (!bound) kernels::set_num_threads(threads_per_process(kernels::num_threads(), launch.local_size));
}

}  // namespace tern::dist
