#include "tern/core/device/device.h"

#include <cpuid.h>

#include <charconv>
#include <ostream>

#include "tern/core/device/backend.h"
#include "tern/core/device/compute_settings.h"
#include "tern/kernels/base/check.h"
#include "tern/kernels/base/denormals.h"

namespace tern {
namespace {

bool has_amx_bf16() {
#if defined(__clang__) && __clang_major__ < 16  // lacks this feature name
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d >> 22 & 1) != 0;
#else
  return __builtin_cpu_supports("amx-bf16");
#endif
}

}  // namespace

bool set_flush_denormal(bool flush) {
  kernels::set_denormal_bits(flush ? kernels::kFlushDenormals : 0);
  return true;
}

std::string Device::str() const { return is_cpu() ? "cpu" : "cuda:" + std::to_string(index); }

Device parse_device(std::string_view text) {
  if (text == "cpu") return cpu;
  if (text == "cuda") return {DeviceType::kCUDA, 0};
  if (text.starts_with("cuda:")) {
    int index = -1;
    const char* begin = text.data() + 5;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(begin, end, index);
    if (error == std::errc() && stop == end && index >= 0) return {DeviceType::kCUDA, index};
  }
  fail("device: expected cpu, cuda or cuda:N, got '", text, "'");
}

void require_available(Device device) {
  if (device.is_cpu()) return;
  const std::string problem = cuda::device_problem(device.index);
  TERN_CHECK(problem.empty(), "device ", device, ": ", problem);
}

Device best_device() {
  if (cuda::device_problem(0).empty()) return {DeviceType::kCUDA, 0};
  return cpu;
}

DType autocast_dtype(Device device) {
  require_available(device);
  if (device.is_cuda()) return bfloat16;  // every device that the kernels support has bfloat16
  // oneDNN multiplies bf16 natively with AVX512-BF16 or AMX; elsewhere it emulates bf16, slower than fp32. AMD's
  // AVX512-BF16 has twice the rate of fp32. Intel's has one port where fp32 has two, so the same rate, and conversions
  // are added: a step takes 1.3 times as long (docs/performance.md).
  const bool native = __builtin_cpu_supports("avx512bf16") && kernels::cpu_level() == kernels::CpuLevel::kV4;
  const bool faster = __builtin_cpu_is("amd") || has_amx_bf16();
  return native && faster ? bfloat16 : float32;
}

kernels::Stream current_stream(Device device) {
  if (device.is_cuda()) return {device.type, device.index, cuda::current_stream(device.index)};
  return {device.type, device.index, nullptr};
}

std::ostream& operator<<(std::ostream& out, const Device& device) { return out << device.str(); }
std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name_of(dtype); }

}  // namespace tern
