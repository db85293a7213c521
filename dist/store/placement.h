#pragma once
// Where a process of a job computes: its device, and its share of the machine's cores.

#include "tern/core/device/device.h"
#include "tern/dist/store/rendezvous.h"

namespace tern::dist {

/// The GPU of this rank's number on its machine, or the only one that the process is shown. Whether it exists is not
/// checked.
Device rank_gpu(const Launch& launch);
/// rank_gpu() where a GPU can be used, else the CPU. In a job of one process best_device().
Device best_rank_device(const Launch& launch);

/// Divides the machine's cores among its processes: sets this process's number of CPU threads, unless OMP_NUM_THREADS
/// is set, the launcher has bound the process to some of the cores, or it is the only one.
void share_cores(const Launch& launch);

}  // namespace tern::dist
