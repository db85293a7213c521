// Row gathers and their scatters. The gradient of an embedding sorts the positions by id, so that every row has one
// writer, which adds in the order of the positions: no float atomics.

#include "tern/kernels/embedding.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "tern/kernels/base/check.h"
#include "tern/kernels/bits.h"
#include "tern/kernels/convert.h"
#include "tern/kernels/cuda/cub.h"
#include "tern/kernels/cuda/support/launch.h"
#include "tern/kernels/cuda/support/reduce.h"
#include "tern/kernels/cuda/values.h"

namespace tern::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 1 << 16;  // for grids whose threads process several elements

unsigned block_count(int64_t items, int64_t per_block) {
  return static_cast<unsigned>(std::clamp<int64_t>((items + per_block - 1) / per_block, 1, kMaxBlocks));
}

/// Threads that share one row, as log2 of a power of two: about four accesses per thread.
int lanes_log2(int64_t accesses) {
  int log2 = 0;
  while (log2 < 8 && (int64_t{4} << log2) < accesses) ++log2;
  return log2;
}

/// Calls body.operator()<Id>() with the type of the ids.
template <class Body>
void dispatch_id(DType dtype, const Body& body) {
  if (dtype == DType::kInt32)
    body.template operator()<int32_t>();
  else
    body.template operator()<int64_t>();
}

// ---- Forward

/// Copies rows of `cols` accesses of kWidth words.
template <class Word, int kWidth, class Id>
__global__ void __launch_bounds__(kThreads)
    embedding_forward_kernel(const Word* weight, const Id* ids, int64_t rows, int64_t count, int64_t cols, int log2,
                             Word* y, IndexFault* fault) {
  const int lanes = 1 << log2, lane = static_cast<int>(threadIdx.x) & (lanes - 1), per_block = kThreads >> log2;
  const int64_t step = static_cast<int64_t>(gridDim.x) * per_block;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * per_block + (threadIdx.x >> log2); i < rows; i += step) {
    const int64_t id = ids[i];
    const bool good = id >= 0 && id < count;
    if (!good && lane == 0) fault->report(i);
    for (int64_t c = lane; c < cols; c += lanes) {
      Vector<Word, kWidth> value{};
      if (good) value = load_readonly<kWidth>(weight + (id * cols + c) * kWidth);
      store_vector(y + (i * cols + c) * kWidth, value);
    }
  }
}

// ---- Backward

/// Writes the pairs to sort, id and position. An id out of range gets the key `count`, so that it comes last.
template <class Id>
__global__ void __launch_bounds__(kThreads)
    make_pairs_kernel(const Id* ids, int64_t rows, int64_t count, uint32_t* keys, uint32_t* positions) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < rows; i += step) {
    const int64_t id = ids[i];
    keys[i] = static_cast<uint32_t>(id >= 0 && id < count ? id : count);
    positions[i] = static_cast<uint32_t>(i);
  }
}

/// first[v] = the first index whose key is at least v, for v in 0 .. count.
__global__ void __launch_bounds__(kThreads)
    find_segments_kernel(const uint32_t* keys, int64_t rows, int64_t count, uint32_t* first) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t v = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; v <= count; v += step) {
    int64_t low = 0, high = rows;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (keys[middle] < static_cast<uint32_t>(v))
        low = middle + 1;
      else
        high = middle;
    }
    first[v] = static_cast<uint32_t>(low);
  }
}

/// dweight[v, :] = sum of dy[positions[k], :] over k in first[v] .. first[v + 1] - 1, in that order.
template <class T, class Out, int kWidth>
__global__ void __launch_bounds__(kThreads)
    add_rows_kernel(const T* dy, const uint32_t* first, const uint32_t* positions, int64_t count, int64_t padding_index,
                    int64_t cols, int log2, Out* dweight) {
  using F = ComputeType<T>;
  constexpr int kAhead = 4;  // rows loaded at a time
  const int lanes = 1 << log2, lane = static_cast<int>(threadIdx.x) & (lanes - 1), per_block = kThreads >> log2;
  const int64_t step = static_cast<int64_t>(gridDim.x) * per_block;
  for (int64_t v = static_cast<int64_t>(blockIdx.x) * per_block + (threadIdx.x >> log2); v < count; v += step) {
    const uint32_t low = first[v], high = v == padding_index ? low : first[v + 1];
    for (int64_t c = static_cast<int64_t>(lane) * kWidth; c < cols; c += lanes * kWidth) {
      F sum[kWidth] = {};
      for (uint32_t k = low; k < high; k += kAhead) {
        F row[kAhead][kWidth] = {};
#pragma unroll
        for (uint32_t a = 0; a < kAhead; ++a)
          if (a < high - k) load_readonly_values(dy + positions[k + a] * cols + c, row[a]);
#pragma unroll
        for (uint32_t a = 0; a < kAhead; ++a)
#pragma unroll
          for (int j = 0; j < kWidth; ++j) sum[j] += row[a][j];  // rows after the last are zeros
      }
      store_values(dweight + v * cols + c, sum);
    }
  }
}

/// The parts of embedding_backward's workspace, in 32-bit words.
struct Workspace {
  SortBuffers<uint32_t> pairs;
  uint32_t *first, *sort;
  int64_t bytes;
  Workspace(Stream stream, int64_t rows, int64_t count, void* base) {
    int64_t words = 0;
    const auto take = [&](int64_t size) {
      uint32_t* result = base == nullptr ? nullptr : static_cast<uint32_t*>(base) + words;
      words += (size + 3) / 4 * 4;
      return result;
    };
    for (uint32_t** p : {&pairs.keys[0], &pairs.keys[1], &pairs.values[0], &pairs.values[1]}) *p = take(rows);
    first = take(count + 1);
    sort = take((sort_pairs_workspace<uint32_t>(stream, rows) + 3) / 4);
    bytes = words * 4;
  }
};

// ---- Gather along a dimension

/// The dimensions of the index, without those of size 1, and the strides of index, dense (gather's y, scatter's source)
/// and indexed, and those of the positions of faults.
struct GatherPlan {
  int dims = 0;
  int64_t shape[kMaxDims], index[kMaxDims], dense[kMaxDims], indexed[kMaxDims], place[kMaxDims];
  int64_t length, index_step, dense_step, indexed_step, place_step = 1;  // along the dimension
  int64_t limit;                                                         // valid indices are [0, limit)
  int64_t fibres = 1;                                                    // number of elements of the other dimensions
  bool along_last;                                                       // the last dimension is indexed

  GatherPlan(ConstView ids, ConstView dense_view, ConstView indexed_view, int dim)
      : length(ids.shape[dim]),
        index_step(ids.strides[dim]),
        dense_step(dense_view.strides[dim]),
        indexed_step(indexed_view.strides[dim]),
        limit(indexed_view.shape[dim]),
        along_last(dim == ids.dims - 1) {
    for (int d = dim + 1; d < ids.dims; ++d) place_step *= ids.shape[d];
    int64_t places = ids.numel();
    for (int d = 0; d < ids.dims; ++d) {
      places /= ids.shape[d];
      if (d == dim || ids.shape[d] == 1) continue;
      shape[dims] = ids.shape[d];
      place[dims] = places;
      index[dims] = ids.strides[d];
      dense[dims] = dense_view.strides[d];
      indexed[dims] = indexed_view.strides[d];
      fibres *= ids.shape[d];
      ++dims;
    }
  }
};

/// The start of a fibre in the three tensors, and its first position.
struct Fibre {
  int64_t index = 0, dense = 0, indexed = 0, place = 0;
  __device__ Fibre(const GatherPlan& plan, int64_t number) {
    for (int d = plan.dims - 1; d >= 0; --d) {
      const int64_t at = number % plan.shape[d];
      number /= plan.shape[d];
      index += at * plan.index[d];
      dense += at * plan.dense[d];
      indexed += at * plan.indexed[d];
      place += at * plan.place[d];
    }
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(TERN_GRID_CONSTANT(GatherPlan) plan, const T* x, const int64_t* index, T* y, IndexFault* fault) {
  const int64_t n = plan.fibres * plan.length, step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += step) {
    // Neighbouring threads access neighbours along the last dimension.
    const int64_t k = plan.along_last ? i % plan.length : i / plan.fibres;
    const Fibre fibre(plan, plan.along_last ? i / plan.length : i % plan.fibres);
    const int64_t id = index[fibre.index + k * plan.index_step];
    const bool good = id >= 0 && id < plan.limit;
    if (!good && fault != nullptr) fault->report(fibre.place + k * plan.place_step);
    y[fibre.dense + k * plan.dense_step] = good ? x[fibre.indexed + id * plan.indexed_step] : T(0);
  }
}

/// `parts` (a power of two) threads process one fibre; each writes only the targets whose index modulo parts equals its
/// number.
template <class T>
__global__ void __launch_bounds__(kThreads)
    scatter_kernel(TERN_GRID_CONSTANT(GatherPlan) plan, int parts, ScatterMode mode, const Stored<T>* source,
                   const int64_t* index, Stored<T>* y, IndexFault* fault) {
  using F = ComputeType<T>;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < plan.fibres * parts; i += step) {
    const Fibre fibre(plan, i / parts);
    const int64_t part = i % parts;
    for (int64_t k = 0; k < plan.length; ++k) {
      const int64_t id = index[fibre.index + k * plan.index_step];
      if ((id & (parts - 1)) != part) continue;
      if (id < 0 || id >= plan.limit) {
        if (fault != nullptr) fault->report(fibre.place + k * plan.place_step);
        continue;
      }
      Stored<T>& target = y[fibre.indexed + id * plan.indexed_step];
      const F value = static_cast<F>(convert<T, F>(source[fibre.dense + k * plan.dense_step]));
      target = convert<F, T>(combined(mode, static_cast<F>(convert<T, F>(target)), value));
    }
  }
}

/// The same into fp32: sums[id * fibres + fibre] holds an element of y that the index names until all are combined.
template <class T>
__global__ void __launch_bounds__(kThreads)
    scatter_in_float_kernel(TERN_GRID_CONSTANT(GatherPlan) plan, int parts, ScatterMode mode, const T* source,
                            const int64_t* index, float* sums, T* y, IndexFault* fault) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < plan.fibres * parts; i += step) {
    const int64_t number = i / parts, part = i % parts;
    const Fibre fibre(plan, number);
    const auto for_each_place = [&](const auto& body) {
      for (int64_t k = 0; k < plan.length; ++k) {
        const int64_t id = index[fibre.index + k * plan.index_step];
        if ((id & (parts - 1)) == part) body(k, id, id >= 0 && id < plan.limit);
      }
    };
    for_each_place([&](int64_t, int64_t id, bool good) {
      if (good) sums[id * plan.fibres + number] = static_cast<float>(y[fibre.indexed + id * plan.indexed_step]);
    });
    for_each_place([&](int64_t k, int64_t id, bool good) {
      if (!good) {
        if (fault != nullptr) fault->report(fibre.place + k * plan.place_step);
        return;
      }
      float& sum = sums[id * plan.fibres + number];
      sum = combined(mode, sum, static_cast<float>(source[fibre.dense + k * plan.dense_step]));
    });
    for_each_place([&](int64_t, int64_t id, bool good) {
      if (good) y[fibre.indexed + id * plan.indexed_step] = T(sums[id * plan.fibres + number]);
    });
  }
}

__global__ void __launch_bounds__(kThreads)
    add_offsets_kernel(const int64_t* index, int64_t n, int64_t size, int64_t stride, bool first, int64_t* offsets,
                       IndexFault* fault) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += step) {
    const int64_t id = index[i], sum = first ? 0 : offsets[i];
    const bool good = id >= -size && id < size;
    if (!good) fault->report(i);
    offsets[i] = good && sum >= 0 ? sum + stride * (id < 0 ? id + size : id) : -1;
  }
}

}  // namespace

void embedding_forward(Stream stream, ConstView weight, ConstView ids, View y, IndexFault* fault) {
  const int64_t rows = ids.numel(), bytes = weight.cols() * size_of(weight.dtype);
  if (rows == 0) return;  // if rows have no elements, their ids are still checked
  const auto run = [&]<class Word, int kWidth>() {
    dispatch_id(ids.dtype, [&]<class Id>() {
      const int64_t cols = bytes / static_cast<int64_t>(sizeof(Word) * kWidth);
      const int log2 = lanes_log2(cols);
      launch(embedding_forward_kernel<Word, kWidth, Id>, dim3(block_count(rows, kThreads >> log2)), dim3(kThreads), 0,
             stream, weight.as<Word>(), ids.as<Id>(), rows, weight.shape[0], cols, log2, y.as<Word>(), fault);
    });
  };
  if (bytes % 16 == 0 && aligned16(weight.data) && aligned16(y.data))
    run.template operator()<uint32_t, 4>();
  else
    dispatch_size(size_of(weight.dtype), [&]<class Word>() { run.template operator()<Word, 1>(); });
}

int64_t embedding_backward_workspace(Stream stream, int64_t rows, int64_t count, int64_t) {
  return Workspace(stream, rows, count, nullptr).bytes;
}

void embedding_backward(Stream stream, ConstView dy, ConstView ids, int64_t padding_index, void* workspace,
                        View dweight) {
  const int64_t rows = ids.numel(), count = dweight.shape[0], cols = dweight.cols();
  if (count == 0 || cols == 0) return;
  constexpr int64_t kMax = std::numeric_limits<uint32_t>::max() - 8;  // 32-bit counters go a few beyond the last value
  TERN_CHECK(rows < kMax && count < kMax, "embedding: expected fewer than ", kMax, " rows, got ", rows, " ids and ",
             count, " rows of the table");
  const Workspace space(stream, rows, count, workspace);
  int sorted = 0;
  if (rows > 0) {
    dispatch_id(ids.dtype, [&]<class Id>() {
      launch(make_pairs_kernel<Id>, dim3(block_count(rows, kThreads)), dim3(kThreads), 0, stream, ids.as<Id>(), rows,
             count, space.pairs.keys[0], space.pairs.values[0]);
    });
    const int bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(count)));
    sorted = sort_pairs(stream, space.pairs, rows, bits, space.sort);
  }
  launch(find_segments_kernel, dim3(block_count(count + 1, kThreads)), dim3(kThreads), 0, stream,
         space.pairs.keys[sorted], rows, count, space.first);
  dispatch_float(dy.dtype, [&]<class T>() {
    dispatch_float(dweight.dtype, [&]<class Out>() {
      const auto run = [&]<int kWidth>() {
        const int log2 = lanes_log2(cols / kWidth);
        launch(add_rows_kernel<T, Out, kWidth>, dim3(block_count(count, kThreads >> log2)), dim3(kThreads), 0, stream,
               dy.as<T>(), space.first, space.pairs.values[sorted], count, padding_index, cols, log2,
               dweight.as<Out>());
      };
      constexpr int kWide = std::max(vector_width<T>, vector_width<Out>);
      if (cols % kWide == 0 && aligned16(dy.data) && aligned16(dweight.data))
        run.template operator()<kWide>();
      else
        run.template operator()<1>();
    });
  });
}

void gather(Stream stream, ConstView x, int dim, ConstView index, View y, IndexFault* fault) {
  if (index.numel() == 0) return;
  const GatherPlan plan(index, y, x, dim);
  dispatch_size(size_of(x.dtype), [&]<class T>() {
    launch(gather_kernel<T>, dim3(block_count(index.numel(), kThreads)), dim3(kThreads), 0, stream, plan, x.as<T>(),
           index.as<int64_t>(), y.as<T>(), fault);
  });
}

int64_t scatter_workspace(Stream, ScatterMode mode, int dim, ConstView index, ConstView y) {
  if (!combines_in_float(mode, y.dtype) || index.numel() == 0) return 0;
  return index.numel() / index.shape[dim] * y.shape[dim] * static_cast<int64_t>(sizeof(float));
}

void scatter(Stream stream, ScatterMode mode, ConstView source, int dim, ConstView index, void* workspace, View y,
             IndexFault* fault) {
  if (index.numel() == 0) return;
  const GatherPlan plan(index, source, y, dim);
  constexpr int64_t kManyFibres = 8192, kShortFibre = 16;
  const int parts = plan.fibres >= kManyFibres || plan.length <= kShortFibre ? 1 : kThreads;
  const dim3 grid(block_count(plan.fibres * parts, kThreads));
  dispatch_any(y.dtype, [&]<class T>() {
    if constexpr (is_low_precision(dtype_of<T>()))
      if (combines_in_float(mode, y.dtype))
        return launch(scatter_in_float_kernel<T>, grid, dim3(kThreads), 0, stream, plan, parts, mode, source.as<T>(),
                      index.as<int64_t>(), static_cast<float*>(workspace), y.as<T>(), fault);
    launch(scatter_kernel<T>, grid, dim3(kThreads), 0, stream, plan, parts, mode, source.as<Stored<T>>(),
           index.as<int64_t>(), y.as<Stored<T>>(), fault);
  });
}

void add_offsets(Stream stream, ConstView index, int64_t size, int64_t stride, bool first, View offsets,
                 IndexFault* fault) {
  const int64_t n = index.numel();
  if (n == 0) return;
  launch(add_offsets_kernel, dim3(block_count(n, kThreads)), dim3(kThreads), 0, stream, index.as<int64_t>(), n, size,
         stride, first, offsets.as<int64_t>(), fault);
}

}  // namespace tern::kernels::cuda
