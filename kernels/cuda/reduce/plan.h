#pragma once
// The division of a reduction into blocks and parts. It depends on shapes, strides and alignment, never on the device:
// results are reproducible.

#include <algorithm>

#include "tern/kernels/cuda/support/rows.h"
#include "tern/kernels/layout.h"

namespace tern::kernels::cuda {

/// Division of n in [0, 2^63) by a constant in [1, 2^63) as a multiplication (Granlund and Montgomery, PLDI 1994). It
/// avoids the subroutine that 64-bit division is on the device.
struct WideDivider {
  uint64_t divisor = 1, multiplier = 1;
  int shift = 0;
  WideDivider() = default;
  explicit WideDivider(int64_t d) : divisor(static_cast<uint64_t>(d)) {
    while ((uint64_t{1} << shift) < divisor) ++shift;
    using Wide = unsigned __int128;
    multiplier = static_cast<uint64_t>((static_cast<Wide>((uint64_t{1} << shift) - divisor) << 64) / divisor) + 1;
  }
  TERN_HD int64_t quotient(int64_t value) const {
    const uint64_t n = static_cast<uint64_t>(value);
#ifdef __CUDA_ARCH__
    const uint64_t high = __umul64hi(n, multiplier);
#else
    const uint64_t high = static_cast<uint64_t>((static_cast<unsigned __int128>(n) * multiplier) >> 64);
#endif
    return static_cast<int64_t>((high + n) >> shift);
  }
};

inline constexpr int kReduceThreads = 256;
inline constexpr int kReduceAhead = 4;  // concurrent accesses per thread
/// Number of blocks of large reductions: four for each multiprocessor of an H100.
inline constexpr int64_t kReduceBlocks = 528;

/// The elements that one access to x reads.
enum class ReduceAccess : uint8_t {
  kElements,  // one element: any strides
  kAlong,     // 16 bytes of neighbours of one result
  kAcross,    // 16 bytes of neighbours of neighbouring results
};

/// The results are divided into units: one result, or with kAcross a vector of neighbouring ones. A unit takes `steps`
/// accesses, shared by `parts` blocks; a second kernel combines the parts. A block has `across` units and along()
/// threads for each; neighbouring threads have neighbouring steps of a unit (neighbours_reduced) or neighbouring units.
struct ReducePlan {
  Layout<2> kept, reduced;  // x's dimensions, each coalesced: operand 0 is x, operand 1 the result
  int64_t results = 0, length = 0;
  ReduceAccess access = ReduceAccess::kElements;
  bool neighbours_reduced = false;
  int across = 1;
  /// Elements of a run: the innermost reduced dimension (kAlong) or kept one (kAcross). A run consists of whole aligned
  /// vectors, except when it is a whole result: elements outside aligned vectors are then read one by one.
  int64_t columns = 1;
  int64_t units = 0, steps = 0, parts = 1, part_steps = 0;
  WideDivider kept_sizes[kMaxDims], reduced_sizes[kMaxDims];  // by the layouts' sizes
  WideDivider by_parts, by_vectors;                           // by the parts, and by the accesses per run

  TERN_HD int along() const { return kReduceThreads / across; }
  int64_t tiles() const { return ceil_div(units, across); }
  int64_t blocks() const { return tiles() * parts; }
  /// `state_bytes`: size of a part's state for one result.
  int64_t workspace_bytes(int64_t state_bytes) const { return parts == 1 ? 0 : results * parts * state_bytes; }
};

namespace detail {

/// Fills kept and reduced; returns whether x's smallest stride belongs to a reduced dimension.
inline bool split_dims(const ConstView& x, uint32_t dims, const View& y, ReducePlan& plan) {
  int64_t result_strides[kMaxDims];
  for (int d = 0; d < x.dims; ++d) result_strides[d] = dims >> d & 1 ? 0 : y.strides[d];
  const Layout<2> all = make_layout(x.dims, x.shape, {x.strides, result_strides});
  bool inner_reduced = false;
  for (int d = 0; d < all.dims; ++d) {
    const int64_t strides[] = {all.strides[0][d], all.strides[1][d]};
    inner_reduced = strides[1] == 0;
    (inner_reduced ? plan.reduced : plan.kept).append(all.shape[d], strides);
  }
  for (Layout<2>* layout : {&plan.kept, &plan.reduced}) {
    layout->merge();
    layout->finish();
  }
  return inner_reduced;
}

/// True when x's strides of the dimensions [0, dims) are multiples of `width`.
inline bool whole_strides(const Layout<2>& layout, int dims, int64_t width) {
  return std::all_of(layout.strides[0], layout.strides[0] + dims, [=](int64_t s) { return s % width == 0; });
}

/// Chooses the kind of access; returns the number of accesses per run.
inline int64_t choose_access(const ConstView& x, bool inner_reduced, ReducePlan& plan) {
  const int64_t width = 16 / size_of(x.dtype);
  const Layout<2>&kept = plan.kept, &reduced = plan.reduced;
  plan.neighbours_reduced = inner_reduced;
  plan.units = plan.results;
  plan.steps = plan.length;
  if (plan.length == 0) return 1;
  const bool along = reduced.inner_stride(0) == 1;
  const Layout<2>&inner = along ? reduced : kept, &outer = along ? kept : reduced;
  const bool whole = aligned16(x.data) && inner.inner_stride(0) == 1 && inner.inner() % width == 0 &&
                     whole_strides(inner, inner.dims - 1, width) && whole_strides(outer, outer.dims, width);
  const bool ragged = along && reduced.dims == 1 && plan.length >= 4 * width;  // does not pay for shorter rows
  if (!whole && !ragged) return 1;
  plan.access = along ? ReduceAccess::kAlong : ReduceAccess::kAcross;
  plan.neighbours_reduced = along;
  plan.columns = inner.inner();
  (along ? plan.steps : plan.units) /= width;
  return plan.columns / width;
}

inline int power_of_two_from(int64_t n, int max_power) {
  int power = 1;
  while (power < n && power < max_power) power *= 2;
  return power;
}

/// Maximum number of parts that leaves each thread several accesses.
inline int64_t max_parts(const ReducePlan& plan) {
  return std::max<int64_t>(1, plan.steps / std::max<int64_t>(16 * plan.along(), kReduceThreads));
}

/// `vectors`: accesses per run.
inline void choose_tiles(ReducePlan& plan, int64_t vectors) {
  const int64_t run = plan.access == ReduceAccess::kAcross ? vectors : plan.kept.inner();
  int lanes = plan.neighbours_reduced ? 1 : power_of_two_from(run, kWarpSize);
  const auto set_lanes = [&] {
    plan.across = kReduceThreads / power_of_two_from(ceil_div(plan.steps, kReduceAhead), kReduceThreads / lanes);
  };
  set_lanes();
  while (lanes > 8 && plan.tiles() * max_parts(plan) < kReduceBlocks / 2) {  // more blocks are preferred to wide ones
    lanes /= 2;
    set_lanes();
  }
}

inline void choose_parts(ReducePlan& plan) {
  const int64_t tiles = plan.tiles();
  if (tiles < kReduceBlocks / 2) plan.parts = std::min(ceil_div(kReduceBlocks, tiles), max_parts(plan));
  plan.part_steps = ceil_div(ceil_div(plan.steps, plan.parts), plan.along()) * plan.along();
  if (plan.steps > 0) plan.parts = ceil_div(plan.steps, plan.part_steps);
}

}  // namespace detail

/// y has at least one element.
inline ReducePlan plan_reduction(const ConstView& x, uint32_t dims, const View& y) {
  ReducePlan plan;
  const bool inner_reduced = detail::split_dims(x, dims, y, plan);
  plan.results = plan.kept.numel();
  plan.length = plan.reduced.numel();
  const int64_t vectors = detail::choose_access(x, inner_reduced, plan);
  detail::choose_tiles(plan, vectors);
  detail::choose_parts(plan);
  for (int d = 1; d < plan.kept.dims; ++d) plan.kept_sizes[d] = WideDivider(plan.kept.shape[d]);
  if (plan.length > 0)
    for (int d = 1; d < plan.reduced.dims; ++d) plan.reduced_sizes[d] = WideDivider(plan.reduced.shape[d]);
  plan.by_parts = WideDivider(plan.parts);
  plan.by_vectors = WideDivider(vectors);
  return plan;
}

}  // namespace tern::kernels::cuda
