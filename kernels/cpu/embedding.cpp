// Row gathers and their scatters. In a scatter each output row has one writer, so no atomics are needed and additions
// follow the order of the indices.

#include "tern/kernels/embedding.h"

#include <algorithm>
#include <cstring>

#include "tern/kernels/bits.h"
#include "tern/kernels/cpu/tile.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

constexpr int64_t kBlock = 32768;  // elements per parallel block
constexpr int64_t kColumns = 512;  // columns accumulated together

int64_t id_at(ConstView ids, int64_t i) {
  return ids.dtype == DType::kInt32 ? static_cast<int64_t>(ids.as<int32_t>()[i]) : ids.as<int64_t>()[i];
}

/// The rows of each id in order: rows[first[v]] .. rows[first[v + 1] - 1] hold id v. Skips ids out of range.
struct RowsById {
  int64_t* first;  // [count + 1]
  int64_t* rows;
};
RowsById sort_by_id(ConstView ids, int64_t rows, int64_t count, void* workspace) {
  int64_t* first = static_cast<int64_t*>(workspace);
  const RowsById result{first, first + count + 1};
  std::fill_n(first, count + 1, 0);
  const auto valid = [&](int64_t id) { return id >= 0 && id < count; };
  for (int64_t i = 0; i < rows; ++i)
    if (const int64_t id = id_at(ids, i); valid(id)) ++first[id + 1];
  for (int64_t v = 0; v < count; ++v) first[v + 1] += first[v];
  // Filling advances each first[v] to the next id's start; the array is shifted back afterwards.
  for (int64_t i = 0; i < rows; ++i)
    if (const int64_t id = id_at(ids, i); valid(id)) result.rows[first[id]++] = i;
  std::copy_backward(first, first + count, first + count + 1);
  first[0] = 0;
  return result;
}

/// Computes rows [begin, end) of dweight.
template <class T, class Out>
void add_rows(const T* dy, const RowsById& sorted, int64_t padding_index, int64_t cols, Out* dweight, int64_t begin,
              int64_t end) {
  using F = ComputeType<T>;
  F sums[kColumns];
  for (int64_t v = begin; v < end; ++v) {
    Out* out = dweight + v * cols;
    const int64_t low = sorted.first[v], high = v == padding_index ? low : sorted.first[v + 1];
    if (low == high) {
      std::memset(static_cast<void*>(out), 0, cols * sizeof(Out));
      continue;
    }
    for (int64_t c = 0; c < cols; c += kColumns) {
      const int64_t n = std::min(kColumns, cols - c);
      std::fill_n(sums, n, F(0));
      for (int64_t k = low; k < high; ++k) {
        const T* row = dy + sorted.rows[k] * cols + c;
        for (int64_t j = 0; j < n; ++j) sums[j] += convert<T, F>(row[j]);
      }
      convert_strided<F, Out>(sums, 1, out + c, 1, n);
    }
  }
}

/// The loops of gather and scatter. index has `dims` dimensions; operand 0 is the index, operand 1 the dense tensor of
/// its shape (gather's y, scatter's source), operand 2 the tensor that is indexed along `dim`, operand 3 the positions
/// of faults.
struct GatherPlan {
  Layout<4> outer;  // all dimensions except dim and the last one (if that is not dim)
  int64_t length, inner;
  int64_t along[4], across[4];  // strides along dim and along the last dimension

  GatherPlan(ConstView index, ConstView dense, ConstView indexed, int dim) {
    const int last = index.dims - 1;
    int64_t positions[kMaxDims], step = 1;
    for (int d = last; d >= 0; --d) {
      positions[d] = step;
      step *= index.shape[d];
    }
    const int64_t* strides[] = {index.strides, dense.strides, indexed.strides, positions};
    length = index.shape[dim];
    inner = dim == last ? 1 : index.shape[last];
    for (int k = 0; k < 4; ++k) {
      along[k] = strides[k][dim];
      across[k] = dim == last ? 0 : strides[k][last];
    }
    for (int d = 0; d < last; ++d) {
      if (d == dim || index.shape[d] == 1) continue;
      const int64_t steps[] = {strides[0][d], strides[1][d], strides[2][d], strides[3][d]};
      outer.append(index.shape[d], steps);
    }
    outer.merge();
    const int64_t unused[4] = {};
    outer.append(1, unused);  // row_offset ignores the last dimension
  }
};

}  // namespace

void embedding_forward(Stream, ConstView weight, ConstView ids, View y, IndexFault* fault) {
  const int64_t rows = ids.numel(), count = weight.shape[0], bytes = weight.cols() * size_of(weight.dtype);
  parallel_for(rows, std::max<int64_t>(1, kBlock * 4 / std::max<int64_t>(bytes, 1)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t id = id_at(ids, i);
      char* out = y.as<char>() + i * bytes;
      if (id >= 0 && id < count) {
        std::copy_n(weight.as<char>() + id * bytes, bytes, out);  // bytes may be 0 and the pointer null
      } else {
        std::fill_n(out, bytes, char{0});
        fault->report(i);
      }
    }
  });
}

int64_t embedding_backward_workspace(Stream, int64_t rows, int64_t count, int64_t) {
  return (count + 1 + rows) * static_cast<int64_t>(sizeof(int64_t));
}

void embedding_backward(Stream, ConstView dy, ConstView ids, int64_t padding_index, void* workspace, View dweight) {
  const int64_t count = dweight.shape[0], cols = dweight.cols();
  if (count * cols == 0) return;
  const RowsById sorted = sort_by_id(ids, ids.numel(), count, workspace);
  dispatch_float(dy.dtype, [&]<class T>() {
    dispatch_float(dweight.dtype, [&]<class Out>() {
      parallel_for(count, std::max<int64_t>(1, kBlock / std::max<int64_t>(cols, 1)), [&](int64_t begin, int64_t end) {
        add_rows(dy.as<T>(), sorted, padding_index, cols, dweight.as<Out>(), begin, end);
      });
    });
  });
}

void gather(Stream, ConstView x, int dim, ConstView index, View y, IndexFault* fault) {
  if (index.numel() == 0) return;
  const GatherPlan plan(index, y, x, dim);
  const int64_t rows = plan.outer.numel() * plan.length;
  dispatch_size(size_of(x.dtype), [&]<class T>() {
    parallel_for(rows, std::max<int64_t>(1, kBlock / plan.inner), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const int64_t outer = r / plan.length, k = r % plan.length;
        const int64_t* at = index.as<int64_t>() + plan.outer.row_offset(0, outer) + k * plan.along[0];
        T* to = y.as<T>() + plan.outer.row_offset(1, outer) + k * plan.along[1];
        const T* from = x.as<T>() + plan.outer.row_offset(2, outer);
        for (int64_t j = 0; j < plan.inner; ++j) {
          const int64_t id = at[j * plan.across[0]];
          const bool good = id >= 0 && id < x.shape[dim];
          if (!good && fault) fault->report(plan.outer.row_offset(3, outer) + k * plan.along[3] + j * plan.across[3]);
          to[j * plan.across[1]] = good ? from[id * plan.along[2] + j * plan.across[2]] : T(0);
        }
      }
    });
  });
}

void scatter(Stream, ScatterMode mode, ConstView source, int dim, ConstView index, View y, IndexFault* fault) {
  if (index.numel() == 0) return;
  const GatherPlan plan(index, source, y, dim);
  // Each fibre along dim has one writer; a task is a chunk of neighbouring fibres.
  const int64_t chunk = std::min<int64_t>(plan.inner, 64), chunks = (plan.inner + chunk - 1) / chunk;
  dispatch_any(y.dtype, [&]<class T>() {
    using F = ComputeType<T>;
    const int64_t grain = std::max<int64_t>(1, kBlock / (plan.length * chunk));
    parallel_for(plan.outer.numel() * chunks, grain, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t outer = task / chunks, first = task % chunks * chunk, last = std::min(plan.inner, first + chunk);
        const int64_t* at = index.as<int64_t>() + plan.outer.row_offset(0, outer);
        const auto* from = source.as<Stored<T>>() + plan.outer.row_offset(1, outer);
        auto* to = y.as<Stored<T>>() + plan.outer.row_offset(2, outer);
        for (int64_t k = 0; k < plan.length; ++k)
          for (int64_t j = first; j < last; ++j) {
            const int64_t id = at[k * plan.along[0] + j * plan.across[0]];
            if (id < 0 || id >= y.shape[dim]) {
              if (fault) fault->report(plan.outer.row_offset(3, outer) + k * plan.along[3] + j * plan.across[3]);
              continue;
            }
            auto& target = to[id * plan.along[2] + j * plan.across[2]];
            const F value = static_cast<F>(convert<T, F>(from[k * plan.along[1] + j * plan.across[1]]));
            target = convert<F, T>(combined(mode, static_cast<F>(convert<T, F>(target)), value));
          }
      }
    });
  });
}

void add_offsets(Stream, ConstView index, int64_t size, int64_t stride, bool first, View offsets, IndexFault* fault) {
  const auto* ids = index.as<int64_t>();
  auto* out = offsets.as<int64_t>();
  parallel_for(index.numel(), kBlock, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const bool good = ids[i] >= -size && ids[i] < size;
      if (!good) fault->report(i);
      const int64_t sum = first ? 0 : out[i];
      out[i] = good && sum >= 0 ? sum + stride * (ids[i] < 0 ? ids[i] + size : ids[i]) : -1;
    }
  });
}

}  // namespace tern::kernels::TERN_CPU
