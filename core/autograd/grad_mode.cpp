#include "tern/core/autograd/grad_mode.h"

namespace tern {
namespace {
thread_local bool recording = true;
thread_local Anomaly anomaly = Anomaly::kOff;
}  // namespace

bool grad_enabled() { return recording; }
GradMode::GradMode(bool enabled) : previous_(recording) { recording = enabled; }
GradMode::~GradMode() { recording = previous_; }

Anomaly anomaly_mode() { return anomaly; }
DetectAnomaly::DetectAnomaly(Anomaly mode) : previous_(anomaly) { anomaly = mode; }
DetectAnomaly::~DetectAnomaly() { anomaly = previous_; }

}  // namespace tern
