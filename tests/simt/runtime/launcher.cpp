#include "tern/tests/simt/runtime/launcher.h"

#include <atomic>

#include "tern/tests/simt/runtime/scheduler.h"

namespace simt {
namespace {
std::atomic<Launcher> the_launcher = nullptr;
}  // namespace

void set_launcher(Launcher launcher) { the_launcher = launcher; }
Launcher launcher() { return the_launcher; }

bool in_kernel() { return Scheduler::current().in_grid(); }
void fail_kernel(const char* message) { Scheduler::current().fail(message); }

}  // namespace simt
