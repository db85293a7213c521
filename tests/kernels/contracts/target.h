#pragma once
// Where the kernels of a contract run: every CPU level of this machine, the emulator, the stand-in for NVIDIA's runtime
// (device memory and queues, docs/emulator.md), or a GPU. A contract (contracts/<family>.h) states the cases of a
// family of kernels, the reference and the tolerance once, in tests of a fixture that is derived from OnTarget, and
//
//   INSTANTIATE_TEST_SUITE_P(, Softmax, testing::ValuesIn(all_targets()), name_of_target);
//
// runs them on each target. A test calls a kernel within run_kernel() or expect_same_in_every_run():
//
//   run_kernel([&](Call& on) { softmax_forward(on.stream(), log, on(x), on(y)); });

#include <deque>
#include <map>
#include <memory>

#include "tern/tests/kernels/kernel_test.h"

namespace tern::kernels {

/// What kernels did; only the emulator counts it.
struct Traffic {
  uint64_t launches = 0, wgmma_products = 0;
  double bytes = 0;  // loaded and stored, of global memory
};

class Target {
 public:
  virtual ~Target() = default;
  const std::string& name() const { return name_; }
  bool is_cpu() const { return stream().device == DeviceType::kCPU; }
  virtual Stream stream() const = 0;
  /// Why it cannot be used on this machine, as GTEST_SKIP() wants it; "": it can.
  virtual std::string missing() const { return ""; }
  /// Cases with more elements take too long here.
  virtual int64_t max_elements() const { return INT64_MAX; }
  /// One in how many cases a test runs here.
  virtual int one_in() const { return 1; }

  /// Before the first test and after the last that uses it in turn.
  virtual void begin() {}
  virtual void end() {}
  /// The ways in which a correct kernel may run: numbers of threads, orders of threads or of queues. All must give the
  /// same bits.
  virtual int runs() const = 0;
  /// For all calls until the next.
  virtual void choose_run(int run) = 0;

  /// Whether kernels read and write the arrays of the test in place.
  virtual bool shares_memory() const { return true; }
  virtual void* allocate(int64_t) { return nullptr; }
  virtual void release(void*) {}
  /// For one call at a time; nothing may be accessed after its bytes.
  virtual void* workspace(int64_t) { return nullptr; }
  virtual void upload(void*, const void*, int64_t) {}
  virtual void download(void*, const void*, int64_t) {}
  /// Whether no call reaches the device any more.
  virtual bool is_lost() const { return false; }
  /// Waits for the kernels. An error of theirs is a failure of the test.
  virtual void wait() {}

  virtual Traffic traffic() const { return {}; }
  /// The compute capabilities of the devices that it can be. A test that chooses them leaves it as the last.
  virtual std::vector<int> capabilities() const { return {0}; }
  virtual void set_capability(int) {}

 protected:
  explicit Target(std::string name) : name_(std::move(name)) {}

 private:
  std::string name_;
};

/// Those of this build and machine.
std::vector<Target*> cpu_targets();
std::vector<Target*> cuda_targets();
std::vector<Target*> all_targets();
/// Those that have NVIDIA's libraries: not the emulator by itself.
std::vector<Target*> library_targets();
/// The emulator, which counts what kernels do; none in a build for real devices.
std::vector<Target*> counting_targets();
/// A GPU or the stand-in for one.
std::vector<Target*> device_targets();

inline std::string name_of_target(const testing::TestParamInfo<Target*>& info) { return info.param->name(); }
inline void PrintTo(const Target* target, std::ostream* out) { *out << target->name(); }

/// The target of the test that is running.
Target& target();

/// The base of a contract's fixtures.
class OnTarget : public testing::TestWithParam<Target*> {
 protected:
  void SetUp() override;
  void TearDown() override;
  std::mt19937_64 random = fresh_random();
};

/// The arguments of one call of a kernel, or of several in a row: arrays and other memory of the test as the target
/// sees them. What the kernels wrote is in the test's memory after finish().
class Call {
 public:
  explicit Call(Target& target) : target_(target) {}
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  Stream stream() const { return target_.stream(); }
  View operator()(Array& array) { return (*this)(array, array.view()); }
  ConstView operator()(const Array& array) { return (*this)(array, array.cview()); }
  /// Absent unless `present`.
  View when(bool present, Array& array) { return present ? (*this)(array) : View(); }
  ConstView when(bool present, const Array& array) { return present ? (*this)(array) : ConstView(); }
  /// A view of the array, e.g. array.expand(shape).
  View operator()(Array& array, View view) {
    view.data = map(array, view.data, true);
    return view;
  }
  ConstView operator()(const Array& array, ConstView view) {
    view.data = map(array, const_cast<void*>(view.data), false);
    return view;
  }
  /// `count` values of the test's memory; null stays null.
  template <class T>
  T* memory(T* values, int64_t count = 1) {
    auto* const host = const_cast<std::remove_const_t<T>*>(values);
    return values ? static_cast<T*>(map(host, count * static_cast<int64_t>(sizeof(T)), 0, host, !std::is_const_v<T>))
                  : nullptr;
  }
  /// `bytes` bytes of garbage, aligned to 16; an access after them is found where the target can find it.
  void* workspace(int64_t bytes);
  /// `key` with its base, if it has one, in the target's memory.
  RandomKey key(RandomKey key);

  /// Waits, and copies results back.
  void finish();

 private:
  struct Copy {
    int64_t bytes;
    char* device;  // corresponds to the start of the test's memory
    void* memory;  // what was allocated
    bool result;   // may be written by a kernel
  };
  void* map(const Array& array, void* data, bool result);
  /// The target's address for that of the test, which is one of `bytes` bytes from `host`. The address at `first` has
  /// the test's alignment up to 16 bytes and is, if that is more, at the start of an allocation.
  void* map(void* host, int64_t bytes, int64_t first, void* address, bool result);

  Target& target_;
  std::map<void*, Copy> copies_;  // by the test's address
  std::vector<std::unique_ptr<MarkedWorkspace>> workspaces_;
  std::deque<uint64_t> bases_;
};

/// Runs `body` once on the test's target.
void run_kernel(const std::function<void(Call&)>& body);
/// Runs `body`, which calls run_kernel(), in every way of the target.
void for_each_run(const std::function<void()>& body);
/// Runs `body` in every way of the target and expects the same bits in each of `results`, which keep those of the last.
/// Before each run their elements, like workspaces, are garbage, other than before: kernels must write all of them.
void expect_same_in_every_run(const std::vector<Array*>& results, const std::function<void(Call&)>& body);
/// What body's kernels do.
Traffic traffic_of(const std::function<void(Call&)>& body);
inline double bytes_of(const Array& array) { return static_cast<double>(array.numel() * size_of(array.dtype())); }

/// Whether the target runs a case of `elements` elements: not the large ones, and of the others some, by chance, where
/// all would take too long.
inline bool takes_case(int64_t elements, std::mt19937_64& random) {
  return elements <= target().max_elements() && random() % static_cast<uint64_t>(target().one_in()) == 0;
}

}  // namespace tern::kernels
