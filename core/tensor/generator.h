#pragma once
// Random numbers: a Generator is a shared handle to a seed and a count of draws (Philox4x32-10, see kernels/random.h).

#include <cstdint>
#include <memory>
#include <vector>

#include "tern/core/device/device.h"
#include "tern/kernels/random.h"

namespace tern {

class Storage;
class Tensor;

namespace detail {
class GeneratorTrace;
extern thread_local constinit GeneratorTrace* generator_trace;
/// Returns the next key and advances its offset; in the second run of a checkpoint() returns the key of the first run.
kernels::RandomKey draw(kernels::RandomKey& next);
}  // namespace detail

class Generator {
 public:
  explicit Generator(uint64_t seed = 0) : state_(std::make_shared<State>(State{.next = {seed, 0}})) {}
  // A move copies, because a generator without state would be invalid.
  Generator(const Generator&) = default;
  Generator& operator=(const Generator&) = default;

  uint64_t seed() const { return state_->next.seed; }
  uint64_t offset() const { return state_->next.offset; }
  void set_seed(uint64_t seed) {
    state_->next.seed = seed;
    state_->next.offset = 0;
  }
  /// Seed and offset are the whole state: a checkpoint stores them.
  void set_offset(uint64_t offset) { state_->next.offset = offset; }
  /// Later draws add a number in device memory, which kernels read when they run: draw `offset` with a base of b equals
  /// draw offset + b without one. This gives each replay of a captured step new draws. base: one int64; an undefined
  /// tensor removes it. It must stay alive and unchanged until backward through the draws is done. Throws Error on
  /// another dtype or size.
  void set_base(const Tensor& base);

  /// The key of the next draw, for kernels on `device`; advances the offset by one. Throws Error when the base is on
  /// another device.
  kernels::RandomKey next(Device device = {}) {
    if (state_->next.base) check_base(device);
    if (detail::generator_trace) note_draw();
    return detail::draw(state_->next);
  }

  friend bool operator==(const Generator& a, const Generator& b) { return a.state_ == b.state_; }

 private:
  struct State {
    kernels::RandomKey next;
    std::shared_ptr<Storage> base = {};  // owns the memory that next.base points to
    Device base_device = {};
  };
  void check_base(Device device) const;
  void note_draw() const;

  std::shared_ptr<State> state_;
};

namespace detail {
/// During its lifetime every generator that this thread draws from is added to a list, once.
class GeneratorTrace {
 public:
  explicit GeneratorTrace(std::vector<Generator>& drawn) : drawn_(drawn), previous_(generator_trace) {
    generator_trace = this;
  }
  ~GeneratorTrace() { generator_trace = previous_; }
  GeneratorTrace(const GeneratorTrace&) = delete;
  GeneratorTrace& operator=(const GeneratorTrace&) = delete;

 private:
  friend class tern::Generator;
  std::vector<Generator>& drawn_;
  GeneratorTrace* previous_;
};
}  // namespace detail

/// The generator that ops use when none is given: one per thread, seeded with 0.
Generator& default_generator();

}  // namespace tern
