#include "tern/bench/setting.h"

#include <cstdlib>
#include <string>

#include "tern/core/check.h"

namespace tern::bench {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool on_cpu = false;

}  // namespace

Device device() {
  static const bool cuda = variable("TERN_BENCH_DEVICE") == "cuda";
  return cuda ? Device{DeviceType::kCUDA, 0} : cpu;
}

Device place() { return on_cpu ? cpu : device(); }
OnCpu::OnCpu() { on_cpu = true; }
OnCpu::~OnCpu() { on_cpu = false; }

bool checks_results() {
  static const bool off = variable("TERN_BENCH_CHECK") == "0";
  return device().is_cuda() && !off;
}

bool is_tiny() {
  static const bool tiny = variable("TERN_BENCH_TINY") == "1";
  return tiny;
}

void check_setting() {
  const std::string name = variable("TERN_BENCH_DEVICE");
  TERN_CHECK(name.empty() || name == "cpu" || name == "cuda", "TERN_BENCH_DEVICE: expected cpu or cuda, got '", name,
             "'");
  require_available(device());
}

}  // namespace tern::bench
