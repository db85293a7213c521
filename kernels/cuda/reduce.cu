// Reductions over any dimensions and strides, and positions of extreme elements. Every result belongs to one block (or
// warp) and is combined in an order that the shapes alone decide.

#include "tern/kernels/reduce.h"

#include <limits>

#include "tern/kernels/cuda/strided.h"
#include "tern/kernels/cuda/support/rows.h"
#include "tern/kernels/layout.h"

namespace tern::kernels::cuda {
namespace {

constexpr int kMostThreads = 1024;
constexpr int64_t kRun = 64;  // values that a thread combines one after another before they join its total

/// What values are combined in: float for 16-bit and fp32, int64 for integers and bool.
template <class T>
using Accumulator = std::conditional_t<std::is_integral_v<T>, int64_t, ComputeType<T>>;

// How values are combined. Sums and products of integers wrap.
struct Add {
  template <class F>
  __device__ static F identity() {
    return F(0);
  }
  template <class F>
  __device__ static F map(F x) {
    return x;
  }
  template <class F>
  __device__ F operator()(F a, F b) const {
    if constexpr (std::is_integral_v<F>)
      return (math::Integer(a) + math::Integer(b)).value;
    else
      return a + b;
  }
};
struct Multiply : Add {
  template <class F>
  __device__ static F identity() {
    return F(1);
  }
  template <class F>
  __device__ F operator()(F a, F b) const {
    if constexpr (std::is_integral_v<F>)
      return (math::Integer(a) * math::Integer(b)).value;
    else
      return a * b;
  }
};
struct AddSquares : Add {
  template <class F>
  __device__ static F map(F x) {
    return Multiply()(x, x);
  }
};
struct Largest : Add {
  template <class F>
  __device__ static F identity() {
    using Limits = std::numeric_limits<F>;
    return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  }
  template <class F>
  __device__ F operator()(F a, F b) const {
    return math::max(a, b);  // NaN wins
  }
};
struct Smallest : Add {
  template <class F>
  __device__ static F identity() {
    using Limits = std::numeric_limits<F>;
    return Limits::has_infinity ? Limits::infinity() : Limits::max();
  }
  template <class F>
  __device__ F operator()(F a, F b) const {
    return math::min(a, b);
  }
};
/// Of truth values: any number but 0 is true, NaN too.
struct All : Smallest {
  template <class F>
  __device__ static F identity() {
    return F(1);
  }
  template <class F>
  __device__ static F map(F x) {
    return x != F(0) ? F(1) : F(0);
  }
};
struct Any : Largest {
  template <class F>
  __device__ static F identity() {
    return F(0);
  }
  template <class F>
  __device__ static F map(F x) {
    return All::map(x);
  }
};

/// The kept and the reduced dimensions of x apart, each coalesced. Operand 0 is x, operand 1 the result.
struct Split {
  Layout<2> kept, reduced;
  bool inner_reduced = false;  // x's smallest stride belongs to a reduced dimension
};

Split split_dims(const ConstView& x, uint32_t dims, const View& y) {
  int64_t result_strides[kMaxDims];
  for (int d = 0; d < x.dims; ++d) result_strides[d] = dims >> d & 1 ? 0 : y.strides[d];
  const Layout<2> all = make_layout(x.dims, x.shape, {x.strides, result_strides});
  Split split;
  for (int d = 0; d < all.dims; ++d) {
    const int64_t strides[] = {all.strides[0][d], all.strides[1][d]};
    split.inner_reduced = strides[1] == 0;
    (split.inner_reduced ? split.reduced : split.kept).append(all.shape[d], strides);
  }
  for (Layout<2>* layout : {&split.kept, &split.reduced}) {
    layout->merge();
    layout->finish();
  }
  return split;
}

/// Offset of the index-th element in iteration order.
__device__ int64_t offset_of(const Layout<2>& layout, int operand, int64_t index) {
  int64_t offset = 0;
  for (int d = layout.dims - 1; d > 0; --d) {
    const int64_t size = layout.shape[d];
    // Division of 32 bits is several times as fast.
    const int64_t next = (index | size) >> 32 == 0
                             ? static_cast<int64_t>(static_cast<uint32_t>(index) / static_cast<uint32_t>(size))
                             : index / size;
    offset += (index - next * size) * layout.strides[operand][d];
    index = next;
  }
  return offset + index * layout.strides[operand][0];
}

/// Where results go.
struct Sink {
  void* data;
  DType dtype;
  bool mean;
  int64_t count;  // elements per result

  template <class F>
  __device__ void store(int64_t offset, F value) const {
    if (mean) {
      store_as(offset, static_cast<double>(value) / static_cast<double>(count));
    } else {
      store_as(offset, value);
    }
  }
  template <class F>
  __device__ void store_as(int64_t offset, F value) const {
    elementwise::with_storage<F>(
        dtype, [&]<class T>() { store_one(static_cast<Stored<T>*>(data) + offset, convert<F, T>(value)); });
  }
};

/// A block has `across` results side by side and a power of two of threads for each. Neighbouring threads take
/// neighbouring elements: of one result where x's smallest stride is reduced, else of neighbouring results.
struct Tiling {
  int threads, across;
  bool inner_reduced;

  dim3 grid(int64_t results) const { return dim3(static_cast<unsigned>(ceil_div(results, across))); }
};

int power_of_two_from(int64_t n, int most) {
  int power = 1;
  while (power < n && power < most) power *= 2;
  return power;
}

Tiling choose_tiling(const Split& split) {
  const int64_t results = split.kept.numel(), length = split.reduced.numel();
  Tiling tiling{length >= 4096 ? kMostThreads : kRowThreads, 1, split.inner_reduced};
  int most = tiling.threads;
  if (!split.inner_reduced) {
    int across = power_of_two_from(split.kept.inner(), kWarpSize);
    while (across > 8 && ceil_div(results, across) < 256) across /= 2;  // rather all multiprocessors than wide accesses
    most /= across;
  }
  tiling.across = tiling.threads / power_of_two_from(ceil_div(length, 4), most);
  return tiling;
}

/// A thread's place in its block's tile.
struct TilePlace {
  int along, slot_step;
  int64_t result, element;

  __device__ explicit TilePlace(const Tiling& tiling)
      : along(static_cast<int>(blockDim.x) / tiling.across), slot_step(tiling.inner_reduced ? 1 : tiling.across) {
    const int thread = static_cast<int>(threadIdx.x);
    element = tiling.inner_reduced ? thread % along : thread / tiling.across;
    result = static_cast<int64_t>(blockIdx.x) * tiling.across +
             (tiling.inner_reduced ? thread / along : thread % tiling.across);
  }
  /// Joins the threads of each result pairwise: join(own slot, other slot) where a slot is a thread of the block. What
  /// the first thread of a result then has is all of it.
  template <class Join>
  __device__ void fold(Join&& join) const {
    const int slot = static_cast<int>(threadIdx.x);
    for (int half = along / 2; half > 0; half /= 2) {
      block_barrier();
      if (element < half) join(slot, slot + half * slot_step);
    }
  }
};

template <class T>
__device__ Accumulator<T> load_element(const void* data, int64_t offset) {
  return convert<T, Accumulator<T>>(load_one(static_cast<const Stored<T>*>(data) + offset));
}

struct Call {
  const void* x;
  Layout<2> kept, reduced;
  int64_t results, length;
  Tiling tiling;
};

template <class Op, class T>
__global__ void __launch_bounds__(kMostThreads)
    reduce_kernel(const __grid_constant__ Call call, const __grid_constant__ Sink sink) {
  using F = Accumulator<T>;
  TERN_SHARED(F, totals, [kMostThreads]);
  const TilePlace place(call.tiling);
  const Op op;
  F total = Op::template identity<F>();
  if (place.result < call.results) {
    const int64_t base = offset_of(call.kept, 0, place.result);
    for (int64_t i = place.element; i < call.length;) {
      F part = Op::template identity<F>();
#pragma unroll 4
      for (int run = 0; run < kRun && i < call.length; ++run, i += place.along)
        part = op(part, Op::map(load_element<T>(call.x, base + offset_of(call.reduced, 0, i))));
      total = op(total, part);
    }
  }
  totals[threadIdx.x] = total;
  place.fold([&](int own, int other) { totals[own] = op(totals[own], totals[other]); });
  if (place.element == 0 && place.result < call.results)
    sink.store(offset_of(call.kept, 1, place.result), totals[threadIdx.x]);
}

/// The elements of a result lie side by side: 16 bytes an access.
template <class Op, class T, int kGroup>
__global__ void __launch_bounds__(RowGroup<kGroup>::kThreads)
    reduce_rows_kernel(const T* x, const __grid_constant__ Layout<2> kept, int64_t results, int64_t length,
                       const __grid_constant__ Sink sink) {
  using F = Accumulator<T>;
  using Group = RowGroup<kGroup>;
  constexpr int kWidth = vector_width<T>;
  const int64_t result = Group::first_row();
  if (result >= results) return;
  const Op op;
  F total = Op::template identity<F>(), part = total;
  int64_t combined = 0;
  for_each_vector<Group>(x + offset_of(kept, 0, result), length, T(), [&](int64_t column, const auto& values) {
    F own = Op::template identity<F>();
#pragma unroll
    for (int k = 0; k < kWidth; ++k)
      if (column + k >= 0 && column + k < length) own = op(own, Op::map(values.v[k]));
    part = op(part, own);
    if (++combined % kRun == 0) {
      total = op(total, part);
      part = Op::template identity<F>();
    }
  });
  total = Group::reduce(op(total, part), op, Op::template identity<F>());
  if (Group::lane() == 0) sink.store(offset_of(kept, 1, result), total);
}

/// True when reduce_rows_kernel serves; it is compiled for what training needs.
template <class Op, class T>
bool reduce_rows(Stream stream, const ConstView& x, const Split& split, const Sink& sink) {
  constexpr bool kCompiled = !std::is_integral_v<T> && !std::is_base_of_v<All, Op> && !std::is_base_of_v<Any, Op> &&
                             !std::is_same_v<Op, Multiply>;
  if constexpr (kCompiled) {
    const int64_t results = split.kept.numel(), length = split.reduced.numel();
    if (split.reduced.dims != 1 || split.reduced.strides[0][0] != 1 || length < 128) return false;
    const auto run = [&]<int kGroup>() {
      using Group = RowGroup<kGroup>;
      launch(reduce_rows_kernel<Op, T, kGroup>, Group::grid(results), Group::kThreads, 0, stream, x.as<T>(), split.kept,
             results, length, sink);
    };
    if (length <= 2048)
      run.template operator()<kWarpSize>();
    else if (length <= 32768)
      run.template operator()<kRowThreads>();
    else
      run.template operator()<kMostThreads>();
  }
  return kCompiled;
}

template <class Op>
void reduce_with(Stream stream, const ConstView& x, const Split& split, const Sink& sink) {
  const int64_t results = split.kept.numel();
  const Call call{x.data, split.kept, split.reduced, results, split.reduced.numel(), choose_tiling(split)};
  dispatch_any(x.dtype, [&]<class T>() {
    if (!reduce_rows<Op, T>(stream, x, split, sink))
      launch(reduce_kernel<Op, T>, call.tiling.grid(results), call.tiling.threads, 0, stream, call, sink);
  });
}

template <class T>
__global__ void __launch_bounds__(kMostThreads)
    arg_extreme_kernel(const __grid_constant__ Call call, bool largest, int64_t* index) {
  using F = Accumulator<T>;
  TERN_SHARED(F, values, [kMostThreads]);
  TERN_SHARED(int64_t, positions, [kMostThreads]);
  // True when a beats b: a NaN beats everything but a NaN.
  const auto beats = [largest](F a, F b) { return (largest ? a > b : a < b) || (a != a && b == b); };
  const TilePlace place(call.tiling);
  F best = F(0);
  int64_t position = -1;
  if (place.result < call.results) {
    const int64_t base = offset_of(call.kept, 0, place.result);
    for (int64_t i = place.element; i < call.length; i += place.along) {
      const F value = load_element<T>(call.x, base + offset_of(call.reduced, 0, i));
      if (position >= 0 && !beats(value, best)) continue;
      best = value;
      position = i;
    }
  }
  values[threadIdx.x] = best;
  positions[threadIdx.x] = position;
  place.fold([&](int own, int other) {
    if (positions[other] < 0) return;
    const bool takes = positions[own] < 0 || beats(values[other], values[own]) ||
                       (!beats(values[own], values[other]) && positions[other] < positions[own]);
    if (!takes) return;
    values[own] = values[other];
    positions[own] = positions[other];
  });
  if (place.element == 0 && place.result < call.results)
    store_one(index + offset_of(call.kept, 1, place.result), positions[threadIdx.x]);
}

}  // namespace

void reduce(Stream stream, Reduction reduction, ConstView x, uint32_t dims, View y) {
  if (y.numel() == 0) return;
  const Split split = split_dims(x, dims, y);
  const Sink sink{y.data, y.dtype, reduction == Reduction::kMean, split.reduced.numel()};
  switch (reduction) {
    case Reduction::kSum:
    case Reduction::kMean:
      return reduce_with<Add>(stream, x, split, sink);
    case Reduction::kMax:
      return reduce_with<Largest>(stream, x, split, sink);
    case Reduction::kMin:
      return reduce_with<Smallest>(stream, x, split, sink);
    case Reduction::kProduct:
      return reduce_with<Multiply>(stream, x, split, sink);
    case Reduction::kSumOfSquares:
      return reduce_with<AddSquares>(stream, x, split, sink);
    case Reduction::kAll:
      return reduce_with<All>(stream, x, split, sink);
    case Reduction::kAny:
      return reduce_with<Any>(stream, x, split, sink);
  }
}

void arg_extreme(Stream stream, bool largest, ConstView x, int dim, View index) {
  if (index.numel() == 0) return;
  const Split split = split_dims(x, 1u << dim, index);
  const int64_t results = split.kept.numel();
  const Call call{x.data, split.kept, split.reduced, results, split.reduced.numel(), choose_tiling(split)};
  dispatch_any(x.dtype, [&]<class T>() {
    launch(arg_extreme_kernel<T>, call.tiling.grid(results), call.tiling.threads, 0, stream, call, largest,
           index.as<int64_t>());
  });
}

}  // namespace tern::kernels::cuda
