#include "tern/tests/emulator/simt/launcher.h"

#include <atomic>
#include <utility>

#include "tern/tests/emulator/simt/scheduler.h"

namespace simt {
namespace {
std::atomic<Launcher> the_launcher = nullptr;
std::atomic<int> the_compute_capability = 90;
}  // namespace

void set_launcher(Launcher launcher) { the_launcher = launcher; }
Launcher launcher() { return the_launcher; }

Refusal start(Launch&& launch) {
  try {
    if (const Launcher launcher = the_launcher) return launcher(std::move(launch));
    launch.run();
  } catch (const Error& error) {
    return {error.what()};
  }
  return {};
}

void set_compute_capability(int number) { the_compute_capability = number; }
int compute_capability() { return the_compute_capability; }

bool in_kernel() { return Scheduler::current().in_grid(); }
void fail_kernel(const char* message) { Scheduler::current().fail(message); }

}  // namespace simt
