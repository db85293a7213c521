#pragma once
// Tensors of whatever dtype, strides and shape, of which calls of ops are made.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tern/core/ops/ops.h"
#include "tern/tests/core/fresh.h"

namespace tern::test {

struct InputOptions {
  Device device = {};
  bool contiguous = false;  // views are copied
  bool in_place = true;     // also ops that write what later calls may be given
  int moved_leaf = -1;      // moved by `move` times random numbers in (-1, 1), if it is float64 and in general position
  double move = 0;
  bool hostile = false;  // also wrong layouts of sequences, which cannot be checked on a GPU
};

/// A source of tensors: for one seed the same, whatever the options `device` and `contiguous`.
class Inputs {
 public:
  explicit Inputs(uint64_t seed, const InputOptions& options = {})
      : random_(seed), generator_(seed), options_(options) {}

  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  bool one_in(int64_t n) { return below(n) == 0; }
  /// A dimension, now and then one that is not there.
  int dim() { return static_cast<int>(below(9)) - 4; }
  /// For what the op draws: apart from the inputs' own, since an op that throws may draw or not.
  Generator& generator() { return drawn_; }
  const InputOptions& options() const { return options_; }
  /// Made since begin().
  const std::vector<Tensor>& leaves() const { return leaves_; }
  /// What a moved leaf moves by.
  static Tensor direction_like(const Tensor& leaf) {
    Generator generator = fresh_generator();
    return rand(leaf.shape(), generator, {.dtype = float64}) * 2.0 - 1.0;
  }
  bool can_move(size_t leaf) const { return general_[leaf] && leaves_[leaf].dtype() == float64; }
  /// What the call was given.
  const std::vector<Tensor>& used() const { return used_; }
  Tensor use(const Tensor& x) {
    if (x.defined()) used_.push_back(x);
    return x;
  }

  Tensor any() { return use(some_tensor()); }
  Tensor of(DType dtype) {
    static const Shape kShapes[] = {
        {},        {0},       {1},          {3},          {4},          {6},     {3, 4},
        {4, 3},    {4, 4},    {4, 6},       {1, 4},       {3, 1},       {0, 4},  {4, 0},
        {2, 3, 4}, {4, 1, 4}, {4, 3, 2, 4}, {4, 2, 2, 4}, {1, 2, 4, 4}, {5, 17}, {2, 1, 3, 1, 2}};
    const Shape& shape = kShapes[below(static_cast<int64_t>(std::size(kShapes)))];
    // Small whole numbers: many serve as indices.
    Tensor x = floor(mul(rand(shape, generator_), 5.0) - (one_in(4) ? 1.0 : 0.0)).to(dtype);
    if (is_floating(dtype) && one_in(6)) x = x / (x - x);  // NaN and infinities
    x = made(x, false);
    return one_in(2) ? x : given(view_of(x));
  }
  /// Begins a call: its inputs are mostly of one floating dtype.
  void begin() {
    leaves_.clear();
    used_.clear();
    general_.clear();
    drawn_.set_seed(random_());
    constexpr DType kDTypes[] = {float32, float32, float64, bfloat16, float16};
    dtype_ = kDTypes[below(5)];
  }
  /// Mostly what an op takes: of this shape and the call's dtype, in whatever strides.
  Tensor like(const Shape& shape) { return like(shape, dtype_); }
  Tensor like(const Shape& shape, DType dtype) {
    if (one_in(10)) return any();
    Tensor x = rand(shape, generator_);
    if (!is_floating(dtype)) x = floor(x * (one_in(10) ? 9.0 : 3.0));
    x = made(x.to(dtype), true);
    if (one_in(3)) return use(x);
    if (one_in(2)) return use(given(x.transpose(0, -1).contiguous().transpose(0, -1)));
    return use(given(cat({x, x}, -1).slice(-1, 0, shape[shape.dims() - 1])));  // rows with a gap
  }
  /// Undefined in one of n calls.
  Tensor like_or_none(const Shape& shape, int64_t n = 2) { return one_in(n) ? Tensor() : like(shape); }
  Tensor keep(const Tensor& x) {
    if (x.numel() > 10'000) return x;
    if (kept_.size() < 30) return kept_.emplace_back(x);
    return kept_[static_cast<size_t>(below(30))] = x;
  }

 private:
  Tensor some_tensor() {
    if (one_in(40)) return {};
    if (!kept_.empty() && one_in(3)) return kept_[static_cast<size_t>(below(static_cast<int64_t>(kept_.size())))];
    constexpr DType kDTypes[] = {float32, float32, float64, bfloat16, float16, int64, int32, uint8, boolean};
    return keep(of(kDTypes[below(9)]));
  }
  Tensor given(const Tensor& view) const { return options_.contiguous ? view.contiguous() : view; }
  /// `general`: no two elements are equal, and none is 0.
  Tensor made(const Tensor& x, bool general) {
    Tensor leaf = x.clone().to(options_.device);
    if (!is_floating(x.dtype()) || one_in(3)) return leaf;
    const bool moves = general && x.dtype() == float64 && static_cast<int>(leaves_.size()) == options_.moved_leaf;
    if (moves) leaf.add_(direction_like(leaf) * options_.move);
    leaf.set_requires_grad(true);
    leaves_.push_back(leaf);
    general_.push_back(general);
    return leaf;
  }
  Tensor view_of(const Tensor& x) {
    if (x.dim() == 0) return x.expand({3, 4});
    const int64_t kind = below(5);
    if (kind == 0) return x.transpose(0, -1);
    if (kind == 1) return x.slice(static_cast<int>(below(x.dim())), below(3), INT64_MAX, 1 + below(2));
    if (kind == 2) return x.unsqueeze(static_cast<int>(below(x.dim())));
    if (kind == 3) return x.size(0) == 1 ? x.expand(x.shape().with(0, 4)) : x;
    return x.size(0) > 0 ? x.select(0, below(x.size(0))) : x;
  }

  std::mt19937_64 random_;
  Generator generator_, drawn_;
  DType dtype_ = float32;
  InputOptions options_;
  std::vector<Tensor> kept_, leaves_, used_;
  std::vector<bool> general_;  // of the leaves
};

inline std::vector<int> dims(Inputs& in) {
  std::vector<int> result;
  for (int64_t n = in.below(3); n > 0; --n) result.push_back(in.dim());
  return result;
}

using Call = std::function<Tensor(Inputs&)>;
using Calls = std::vector<std::pair<const char*, Call>>;
using AddCall = std::function<void(const char*, const Call&)>;

}  // namespace tern::test
