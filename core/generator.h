#pragma once
// Random numbers: a Generator is a shared handle to a seed and a count of draws (Philox4x32-10, see kernels/random.h).

#include <cstdint>
#include <memory>

#include "tern/kernels/random.h"

namespace tern {

namespace detail {
/// The key at (seed, offset), and the offset advanced; in the second run of a checkpoint() what the first run drew.
kernels::RandomKey draw(uint64_t seed, uint64_t& offset);
}  // namespace detail

class Generator {
 public:
  explicit Generator(uint64_t seed = 0) : state_(std::make_shared<State>(State{seed, 0})) {}

  uint64_t seed() const { return state_->seed; }
  uint64_t offset() const { return state_->offset; }
  void set_seed(uint64_t seed) { *state_ = {seed, 0}; }
  /// The two integers are the whole state: a checkpoint stores them.
  void set_offset(uint64_t offset) { state_->offset = offset; }

  /// The key of the next draw; advances the offset by one.
  kernels::RandomKey next() { return detail::draw(state_->seed, state_->offset); }

  friend bool operator==(const Generator& a, const Generator& b) { return a.state_ == b.state_; }

 private:
  struct State {
    uint64_t seed;
    uint64_t offset;
  };
  std::shared_ptr<State> state_;
};

/// The generator that ops use when none is given: one per thread, seeded with 0.
Generator& default_generator();

}  // namespace tern
