#pragma once
// Random numbers: a Generator is a shared handle to a seed and a count of draws (Philox4x32-10, see kernels/random.h).

#include <cstdint>
#include <memory>
#include <vector>

#include "tern/core/device.h"
#include "tern/kernels/random.h"

namespace tern {

class Storage;
class Tensor;

namespace detail {
class GeneratorTrace;
extern thread_local constinit GeneratorTrace* generator_trace;
/// The next key, and its offset advanced; in the second run of a checkpoint() what the first run drew.
kernels::RandomKey draw(kernels::RandomKey& next);
}  // namespace detail

class Generator {
 public:
  explicit Generator(uint64_t seed = 0) : state_(std::make_shared<State>(State{.next = {seed, 0}})) {}
  // Moving copies: there is no generator without a state.
  Generator(const Generator&) = default;
  Generator& operator=(const Generator&) = default;

  uint64_t seed() const { return state_->next.seed; }
  uint64_t offset() const { return state_->next.offset; }
  void set_seed(uint64_t seed) {
    state_->next.seed = seed;
    state_->next.offset = 0;
  }
  /// The two integers are the whole state: a checkpoint stores them.
  void set_offset(uint64_t offset) { state_->next.offset = offset; }
  /// From now on draws count from a number in device memory that kernels read when they run: draw `offset` with a base
  /// of b is draw offset + b without one. So each replay of a captured step draws anew. base: one int64; an undefined
  /// tensor ends it. It must live, and keep its value, until backward through the draws is done. Throws Error on
  /// another dtype or size.
  void set_base(const Tensor& base);

  /// The key of the next draw, for kernels on `device`; advances the offset by one. Throws Error when the base lies on
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
    std::shared_ptr<Storage> base = {};  // what next.base points into
    Device base_device = {};
  };
  void check_base(Device device) const;
  void note_draw() const;

  std::shared_ptr<State> state_;
};

namespace detail {
/// While it lives, every generator that this thread draws from is added to a list, once.
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
