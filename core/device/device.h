#pragma once
// Devices: "cpu" and "cuda:N".

#include <iosfwd>
#include <string>
#include <string_view>

#include "tern/kernels/kernel.h"

namespace tern {

struct Device {
  DeviceType type = DeviceType::kCPU;
  int index = 0;

  bool is_cpu() const { return type == DeviceType::kCPU; }
  bool is_cuda() const { return type == DeviceType::kCUDA; }
  /// "cpu", "cuda:0".
  std::string str() const;
  friend bool operator==(const Device&, const Device&) = default;
};

inline constexpr Device cpu{};

/// Parses "cpu", "cuda" or "cuda:N"; does not check that the device exists. Throws Error naming the accepted forms.
Device parse_device(std::string_view text);
/// Throws Error unless this build can use the device on this machine.
void require_available(Device device);
/// cuda:0 if one works, else cpu.
Device best_device();
/// bfloat16 where the hardware multiplies it faster than float32 (sm_80 and later; AMX; AMD's AVX512-BF16), otherwise
/// float32.
DType autocast_dtype(Device device);
/// The stream on which this thread's kernels for the device run.
kernels::Stream current_stream(Device device);

std::ostream& operator<<(std::ostream& out, const Device& device);
std::ostream& operator<<(std::ostream& out, DType dtype);

}  // namespace tern
