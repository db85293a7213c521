#include "tern/tests/kernels/contracts/target.h"

#include <set>

#include "tern/tests/support/levels.h"
#if TERN_TARGET_DEVICE
#include <cuda_runtime_api.h>
#endif
#if TERN_TARGET_EMULATED
#if TERN_TARGET_DEVICE
#define SIMT_WITH_CUDA_HEADERS
#include "tern/tests/emulator/runtime/standin.h"
#endif
#include "tern/tests/emulator/simt/runtime.h"
#endif

namespace tern::kernels {
namespace {

class CpuTarget : public Target {
 public:
  explicit CpuTarget(CpuLevel level) : Target(std::string("cpu_") + name_of(level)), level_(level) {}
  Stream stream() const override { return {}; }
  std::string missing() const override { return missing_level(level_); }
  void begin() override {
    level_before_ = cpu_level();
    threads_before_ = num_threads();
    set_cpu_level(level_);
  }
  void end() override {
    set_cpu_level(level_before_);
    set_num_threads(threads_before_);
  }
  /// The levels compile one source: those below the machine's run a part of the cases.
  int one_in() const override { return kFewCases ? 6 : level_ < level_before_ ? 2 : 1; }
  int64_t max_elements() const override { return kFewCases ? int64_t{1} << 20 : INT64_MAX; }
  int runs() const override { return kFewCases ? 1 : 2; }
  void choose_run(int run) override { set_num_threads(run == runs() - 1 ? 2 + static_cast<int>(fresh_seed() % 5) : 1); }

 private:
  CpuLevel level_, level_before_ = level_;
  int threads_before_ = 1;
};

#if TERN_TARGET_EMULATED
void choose_schedule(simt::Order order) {
  if (order.kind == simt::Order::kRandom) order.seed += fresh_seed();
  simt::set_order(order);
}

/// Runs kernels at once and in the test's memory, although the stand-in for the runtime may be linked.
class EmulatedTarget : public Target {
 public:
  EmulatedTarget() : Target("emulated") {}
  Stream stream() const override { return {DeviceType::kCUDA, 0, nullptr}; }
  int64_t max_elements() const override { return int64_t{1} << 21; }
  int one_in() const override { return kFewCases ? 12 : 1; }
  void begin() override {
    launcher_before_ = simt::launcher();
    simt::set_launcher(nullptr);
  }
  void end() override {
    simt::set_launcher(launcher_before_);
    simt::set_order({});
  }
  int runs() const override { return kFewCases ? 1 : 2; }
  /// Two different schedules of the three at random: a kernel has many cases, which between them run under all.
  void choose_run(int run) override {
    constexpr size_t kCount = std::size(simt::kSchedules);
    schedule_ = (run == 0 ? fresh_seed() : schedule_ + 1 + fresh_seed() % (kCount - 1)) % kCount;
    choose_schedule(simt::kSchedules[schedule_]);
  }
  Traffic traffic() const override {
    const simt::Stats stats = simt::stats();
    return {stats.launches, stats.products, static_cast<double>(stats.loaded_bytes + stats.stored_bytes)};
  }
  std::vector<int> capabilities() const override { return {80, 90}; }
  void set_capability(int capability) override { simt::set_compute_capability(capability); }

 private:
  simt::Launcher launcher_before_ = nullptr;
  size_t schedule_ = 0;
};
#endif

#if TERN_TARGET_DEVICE
#if TERN_TARGET_EMULATED
constexpr const char* kDeviceName = "standin";
#else
constexpr const char* kDeviceName = "gpu";
#endif

/// A device with separate memory, whose kernels run after the call returns: a GPU or the stand-in.
class DeviceTarget : public Target {
 public:
  DeviceTarget() : Target(kDeviceName) {}
  Stream stream() const override { return {DeviceType::kCUDA, 0, stream_}; }
  std::string missing() const override {
    int devices = 0;
    return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0 ? "" : "gpu: no CUDA device";
  }
  void begin() override {
    if (!stream_) check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    protect(!large_);
  }
  void end() override { protect(false); }
  int runs() const override { return kFewCases ? 1 : 2; }
#if TERN_TARGET_EMULATED
  int64_t max_elements() const override { return int64_t{1} << 17; }
  int one_in() const override { return kFewCases ? 32 : 16; }  // each array is an allocation
  void choose_run(int run) override {
    const bool in_order = run < runs() - 1;
    standin::set_order(in_order ? standin::Order{} : standin::Order{standin::Order::kRandom, fresh_seed()});
    choose_schedule(simt::kSchedules[in_order ? 0 : 2]);
  }
#else
  void choose_run(int) override {}
#endif

  bool shares_memory() const override { return false; }
  void* allocate(int64_t bytes) override {
    void* memory = nullptr;
    check(cudaMalloc(&memory, static_cast<size_t>(std::max<int64_t>(bytes, 1))));
    if (++allocations_ > kProtected) protect(false);
    return memory;
  }
  void release(void* memory) override {
    check(cudaFree(memory));
    if (--allocations_ == kProtected) protect(!large_);
  }
  /// One allocation serves all small ones and another the others: filling tens of MiB for every call would take most of
  /// the time, and so would protecting them.
  void* workspace(int64_t bytes) override {
    constexpr int64_t kSmall = int64_t{1} << 20, kLarge = int64_t{34} << 20;
    EXPECT_LE(bytes, kLarge);
    const bool small = bytes <= kSmall;
    char*& memory = small ? small_ : large_;
    const int64_t size = small ? kSmall : kLarge;
    if (!memory) memory = static_cast<char*>(allocate(size));
    if (large_) protect(false);
    return memory + (size - (bytes + 15) / 16 * 16);
  }
  void upload(void* to, const void* from, int64_t bytes) override {
    // A plain cudaMemcpy may return before its last part has arrived, and stream_ does not wait for the default stream.
    check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream_));
    wait();
  }
  void download(void* to, const void* from, int64_t bytes) override {
    check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream_));
    wait();
  }
  bool is_lost() const override { return cudaStreamQuery(stream_) == cudaErrorLaunchFailure; }
  void wait() override { check(cudaStreamSynchronize(stream_)); }

 private:
  static void check(cudaError_t error) {
    if (error == cudaSuccess) return;
    std::string text = cudaGetErrorName(error);
#if TERN_TARGET_EMULATED
    text += ": " + standin::device_error();
#endif
    ADD_FAILURE() << text;
  }
  static void protect([[maybe_unused]] bool on) {
#if TERN_TARGET_EMULATED && !defined(__SANITIZE_THREAD__)  // ThreadSanitizer takes SIGSEGV for itself
    standin::set_protection(on);
#endif
  }

  static constexpr int kProtected = 64;  // each call of the runtime changes the protection of every allocation
  cudaStream_t stream_ = nullptr;
  char *small_ = nullptr, *large_ = nullptr;
  int allocations_ = 0;
};
#endif

Target* current = nullptr;
std::set<const Array*> may_be_written;  // by the kernels of expect_same_in_every_run()

}  // namespace

std::vector<Target*> cpu_targets() {
  static CpuTarget v2(CpuLevel::kV2), v3(CpuLevel::kV3), v4(CpuLevel::kV4);
  return {&v2, &v3, &v4};
}

std::vector<Target*> counting_targets() {
#if TERN_TARGET_EMULATED
  static EmulatedTarget emulated;
  return {&emulated};
#else
  return {};
#endif
}

std::vector<Target*> device_targets() {
#if TERN_TARGET_DEVICE
  static DeviceTarget device;
  return {&device};
#else
  return {};
#endif
}

std::vector<Target*> joined(std::vector<Target*> targets, const std::vector<Target*>& more) {
  targets.insert(targets.end(), more.begin(), more.end());
  return targets;
}
std::vector<Target*> cuda_targets() { return joined(counting_targets(), device_targets()); }
std::vector<Target*> all_targets() { return joined(cpu_targets(), cuda_targets()); }
std::vector<Target*> library_targets() { return joined(cpu_targets(), device_targets()); }

Target& target() { return *current; }

void OnTarget::SetUp() {
  if (const std::string reason = GetParam()->missing(); !reason.empty()) GTEST_SKIP() << reason;
  current = GetParam();
  current->begin();
}
void OnTarget::TearDown() {
  if (current) current->end();
  current = nullptr;
}

// --- calls ---

Call::~Call() {
  for (const auto& [host, copy] : copies_) target_.release(copy.memory);
}

void* Call::map(const Array& array, void* data, bool result) {
  if (result) may_be_written.insert(&array);
  auto& bytes = const_cast<std::vector<char>&>(array.bytes());
  const int64_t first = static_cast<const char*>(array.cview().data) - bytes.data();
  return map(bytes.data(), static_cast<int64_t>(bytes.size()), first, data, result);
}

void* Call::map(void* host, int64_t bytes, int64_t first, void* address, bool result) {
  if (target_.shares_memory()) return address;
  auto [at, is_new] = copies_.try_emplace(host);
  Copy& copy = at->second;
  if (is_new) {
    constexpr int64_t kStart = 256;
    copy.bytes = bytes;
    copy.result = false;
    copy.memory = target_.allocate(bytes + 2 * kStart);
    const auto alignment = reinterpret_cast<uintptr_t>(host) + static_cast<uintptr_t>(first);
    copy.device = static_cast<char*>(copy.memory) + kStart - first % kStart + static_cast<int64_t>(alignment % 16);
    target_.upload(copy.device, host, bytes);
  }
  copy.result |= result;
  return copy.device + (static_cast<char*>(address) - static_cast<char*>(host));
}

void* Call::workspace(int64_t bytes) {
  if (!target_.shares_memory()) {
    void* const memory = target_.workspace(bytes);
    if (target_.is_lost()) return memory;  // a test of errors
    // Only the start of a library's workspace, which is large: all of it would take longer than the product.
    const int64_t filled = std::min<int64_t>(bytes, 1 << 20);
    const std::vector<unsigned char> garbage(static_cast<size_t>(filled), garbage_byte);
    target_.upload(memory, garbage.data(), filled);
    return memory;
  }
  return workspaces_.emplace_back(std::make_unique<MarkedWorkspace>(bytes))->data();
}

RandomKey Call::key(RandomKey key) {
  if (key.base && !target_.shares_memory()) key.base = memory(&bases_.emplace_back(*key.base));
  return key;
}

void Call::finish() {
  target_.wait();
  for (const auto& [host, copy] : copies_)
    if (copy.result) target_.download(host, copy.device, copy.bytes);
}

void run_kernel(const std::function<void(Call&)>& body) {
  Call call(target());
  body(call);
  call.finish();
}

void for_each_run(const std::function<void()>& body) {
  for (int run = 0; run < target().runs(); ++run) {
    SCOPED_TRACE(testing::Message() << "run " << run << " of " << target().runs());
    target().choose_run(run);
    garbage_byte = run % 2 == 0 ? kGarbage : 0x7f;  // as an index far outside
    body();
  }
  garbage_byte = kGarbage;
}

void expect_same_in_every_run(const std::vector<Array*>& results, const std::function<void(Call&)>& body) {
  std::vector<std::vector<char>> first;
  for_each_run([&] {
    for (Array* result : results) result->forget();
    may_be_written.clear();
    run_kernel(body);
    for (size_t i = 0; i < results.size(); ++i) {
      if (first.size() <= i) first.push_back(results[i]->bytes());
      const bool absent = !may_be_written.contains(results[i]);
      EXPECT_TRUE(absent || first[i] == results[i]->bytes()) << "result " << i << " depends on how the kernel is run";
    }
  });
}

Traffic traffic_of(const std::function<void(Call&)>& body) {
  const Traffic before = target().traffic();
  run_kernel(body);
  const Traffic after = target().traffic();
  return {after.launches - before.launches, after.wgmma_products - before.wgmma_products, after.bytes - before.bytes};
}

}  // namespace tern::kernels
