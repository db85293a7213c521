// Errors: injected, sticky, or from a missing driver; the environment; counters.

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "tern/tests/emulator/runtime/state.h"
#include "tern/tests/emulator/simt/launcher.h"

namespace tern::standin {
namespace {

thread_local cudaError_t last_error = cudaSuccess;

[[noreturn]] void refuse_environment(const char* variable, std::string_view value, const char* expected) {
  std::fprintf(stderr, "stand-in CUDA: %s=%.*s: expected %s\n", variable, static_cast<int>(value.size()), value.data(),
               expected);
  std::exit(2);
}

/// Parses the number at the start of `text` and removes it from `text`.
template <class T>
bool take_number(std::string_view& text, T& number) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  if (result.ec != std::errc()) return false;
  text.remove_prefix(result.ptr - text.data());
  return true;
}

bool take(std::string_view& text, char c) {
  if (text.empty() || text[0] != c) return false;
  text.remove_prefix(1);
  return true;
}

/// Calls set(value) if the variable is set; set returns whether the value is valid.
template <class Set>
void from_environment(const char* variable, const char* expected, Set&& set) {
  const char* value = std::getenv(variable);
  if (value && !set(std::string_view(value))) refuse_environment(variable, value, expected);
}

Order order_from_environment() {
  Order order;
  from_environment("TERN_STANDIN_ORDER", "forward, reverse or random:SEED", [&](std::string_view text) {
    if (text == "forward") return true;
    order.kind = text == "reverse" ? Order::kReverse : Order::kRandom;
    if (text == "reverse") return true;
    if (!text.starts_with("random:")) return false;
    text.remove_prefix(7);
    return take_number(text, order.seed) && text.empty();
  });
  return order;
}

bool protection_from_environment() {
  bool on = false;
  from_environment("TERN_STANDIN_PROTECT", "0 or 1", [&](std::string_view text) {
    on = text == "1";
    return on || text == "0";
  });
  return on;
}

void faults_from_environment(State& s) {
  from_environment("TERN_STANDIN_FAIL", "FUNCTION:N:ERROR[,...]", [&](std::string_view text) {
    while (!text.empty()) {
      const size_t colon = text.find(':');
      if (colon == std::string_view::npos) return false;
      const std::string function(text.substr(0, colon));
      text.remove_prefix(colon + 1);
      Fault fault{};
      if (!take_number(text, fault.calls_left) || fault.calls_left < 1 || !take(text, ':')) return false;
      if (!take_number(text, fault.error) || fault.error == 0) return false;
      s.faults[function].push_back(fault);
      if (!text.empty() && !take(text, ',')) return false;
    }
    return true;
  });
}

void start(State& s, const DeviceConfig& config) {
  s.config = config;
  s.order = order_from_environment();
  s.random.seed(s.order.seed);
  s.protection = protection_from_environment();
  simt::set_compute_capability(config.capability_major * 10 + config.capability_minor);
  clear_devices(s);
}

DeviceConfig config_from_environment() {
  DeviceConfig config;
  from_environment("TERN_STANDIN_DEVICES", "a number of devices, 0 to 64", [&](std::string_view text) {
    return take_number(text, config.devices) && text.empty() && config.devices >= 0 && config.devices <= 64;
  });
  from_environment("TERN_STANDIN_STATE", "ok, no-driver, old-driver or busy", [&](std::string_view text) {
    if (text == "no-driver") config.driver = DriverState::kNone;
    if (text == "old-driver") config.driver = DriverState::kOld;
    if (text == "busy") config.driver = DriverState::kBusy;
    return config.driver != DriverState::kOk || text == "ok";
  });
  from_environment("TERN_STANDIN_MEMORY", "bytes, or a number and K, M or G", [&](std::string_view text) {
    if (!take_number(text, config.memory_bytes)) return false;
    const int shift = take(text, 'K') ? 10 : take(text, 'M') ? 20 : take(text, 'G') ? 30 : 0;
    config.memory_bytes <<= shift;
    return text.empty();
  });
  from_environment("TERN_STANDIN_CAPABILITY", "MAJOR.MINOR", [&](std::string_view text) {
    return take_number(text, config.capability_major) && take(text, '.') &&
           take_number(text, config.capability_minor) && text.empty();
  });
  return config;
}

}  // namespace

void clear_devices(State& s) {
  s.legacy.clear();
  s.streams.clear();
  s.events.clear();
  for (CUgraph_st* graph : s.graphs) delete graph;
  for (CUgraphExec_st* executable : s.executables) delete executable;
  s.graphs.clear();
  s.executables.clear();
  s.captures.clear();
  s.contexts.clear();
  s.sticky = cudaSuccess;
  s.sticky_text.clear();
  forget_memory(s);
  for (int device = 0; device < s.config.devices; ++device) {
    s.legacy.push_back(std::make_unique<CUstream_st>());
    s.legacy.back()->device = device;
    s.legacy.back()->legacy = true;
  }
}

State& state() {
  static State* const s = [] {  // never destroyed: destructors of other libraries may still call
    auto* fresh = new State;
    start(*fresh, config_from_environment());
    faults_from_environment(*fresh);
    return fresh;
  }();
  return *s;
}

void reset() { configure(config_from_environment()); }

void configure(const DeviceConfig& config) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  last_error = cudaSuccess;
  s.faults.clear();
  s.counters = {};
  set_current_device(0);
  start(s, config);
  faults_from_environment(s);
}

DeviceConfig configuration() {
  return locked([](State& s) { return s.config; });
}

void set_order(Order order) {
  locked([&](State& s) {
    s.order = order;
    s.random.seed(order.seed);
  });
}

std::string device_error() {
  return locked([](State& s) { return s.sticky_text; });
}

void fail_call(const std::string& function, int n, int error) {
  locked([&](State& s) { s.faults[function].push_back({n, error}); });
}

void clear_faults() {
  locked([](State& s) { s.faults.clear(); });
}

void set_device_error(cudaError_t error, const std::string& text) {
  locked([&](State& s) { make_sticky(s, error, text); });
}

Counters counters() {
  return locked([](State& s) { return s.counters; });
}

void reset_counters() {
  locked([](State& s) { s.counters = {}; });
}

int injected_fault(const char* function) {
  return locked([&](State& s) {
    ++s.counters.calls[function];
    int error = 0;
    for (Fault& fault : s.faults[function])
      if (--fault.calls_left == 0 && error == 0) error = fault.error;
    std::erase_if(s.faults[function], [](const Fault& fault) { return fault.calls_left <= 0; });
    return error;
  });
}

bool is_sticky(cudaError_t error) {
  constexpr cudaError_t kSticky[] = {cudaErrorECCUncorrectable,    cudaErrorIllegalAddress,
                                     cudaErrorLaunchTimeout,       cudaErrorAssert,
                                     cudaErrorContained,           cudaErrorTensorMemoryLeak,
                                     cudaErrorMpsClientTerminated, cudaErrorExternalDevice,
                                     cudaErrorHardwareStackError,  cudaErrorIllegalInstruction,
                                     cudaErrorMisalignedAddress,   cudaErrorInvalidAddressSpace,
                                     cudaErrorInvalidPc,           cudaErrorLaunchFailure};
  return std::ranges::find(kSticky, error) != std::end(kSticky);
}

void make_sticky(State& s, cudaError_t error, const std::string& text) {
  if (s.sticky != cudaSuccess) return;
  s.sticky = error;
  s.sticky_text = text;
  std::fprintf(stderr, "stand-in CUDA: %s\n", text.c_str());
}

cudaError_t refusal(State& s, const char* function, bool needs_device) {
  if (in_queued_work()) return cudaErrorNotPermitted;
  const auto injected = static_cast<cudaError_t>(injected_fault(function));
  if (is_sticky(injected)) make_sticky(s, injected, std::string("injected into ") + function);
  if (injected != cudaSuccess) return injected;
  if (s.config.driver == DriverState::kNone) return cudaErrorInsufficientDriver;
  if (s.config.driver == DriverState::kOld && std::string_view(function) != "cudaDriverGetVersion")
    return cudaErrorInsufficientDriver;
  if (!needs_device) return cudaSuccess;
  if (s.config.devices == 0) return cudaErrorNoDevice;
  if (s.config.driver == DriverState::kBusy) return cudaErrorDevicesUnavailable;
  return s.sticky;
}

cudaError_t remember(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

}  // namespace tern::standin

using namespace tern::standin;

extern "C" {

cudaError_t cudaPeekAtLastError() {
  return locked([](State& s) { return last_error != cudaSuccess ? last_error : s.sticky; });
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = cudaPeekAtLastError();
  last_error = cudaSuccess;
  return error;
}

}  // extern "C"
