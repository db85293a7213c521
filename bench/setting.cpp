#include "tern/bench/setting.h"

namespace tern::bench {
namespace {

bool on_cpu = false;

}  // namespace

Setting& setting() {
  static Setting chosen;
  return chosen;
}

Device place() { return on_cpu ? cpu : device(); }
OnCpu::OnCpu() { on_cpu = true; }
OnCpu::~OnCpu() { on_cpu = false; }

}  // namespace tern::bench
