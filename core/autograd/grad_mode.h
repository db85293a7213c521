#pragma once
// Per-thread switches of autograd. Those of a scope need a name (const NoGrad off;): NoGrad() alone would end at once,
// which is a compiler's warning.

namespace tern {

/// True while ops record what backward needs (the default).
bool grad_enabled();

/// Sets gradient recording for a scope: GradMode off(false).
class GradMode {
 public:
  [[nodiscard]] explicit GradMode(bool enabled);
  ~GradMode();
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  bool previous_;
};

/// No recording in this scope: evaluation, optimizers, initialisation.
class NoGrad : public GradMode {
 public:
  [[nodiscard]] NoGrad() : GradMode(false) {}
};

/// Values that anomaly mode reports; kNonFinite includes infinities.
enum class Anomaly { kOff, kNaN, kNonFinite };
Anomaly anomaly_mode();

/// Checks the results of every op, forward and backward, in this scope; the first op that produces a NaN (or infinity)
/// from inputs without one throws Error naming it, the module (one whose forward() computes within hooked(), as those
/// of nn do) and the calls that led to it, in the backward pass those of the op's forward. Files and lines need a
/// program with debugging information (-g) and addr2line (Debian: binutils). Slow: it reads every result once more.
class DetectAnomaly {
 public:
  [[nodiscard]] explicit DetectAnomaly(Anomaly mode = Anomaly::kNaN);
  ~DetectAnomaly();
  DetectAnomaly(const DetectAnomaly&) = delete;
  DetectAnomaly& operator=(const DetectAnomaly&) = delete;

 private:
  Anomaly previous_;
};

}  // namespace tern
