// Row gathers and their scatters. In a scatter each output row has one writer, so no atomics are needed and additions
// follow the order of the indices.

#include "tern/kernels/embedding.h"

#include <algorithm>
#include <cstring>

#include "tern/kernels/bits.h"
#include "tern/kernels/cpu/simd/halves.h"
#include "tern/kernels/cpu/simd/tile.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

constexpr int64_t kBlock = 32768;  // elements per parallel block
constexpr int64_t kColumns = 512;  // columns accumulated together
constexpr int64_t kPiece = 2048;   // indices along one fibre that are read twice
constexpr int64_t kFibres = 64;    // fibres that one task writes to, where each fibre has its own indices

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
/// of faults. The innermost loop is over a line: `count` neighbours along the last dimension, which is `dim` itself or
/// one that all `length` indices along dim have.
struct GatherPlan {
  Layout<4> outer;  // all dimensions except dim and the last one (if that is not dim)
  int64_t length = 1, count;
  int64_t along[4] = {};  // strides along dim, unless that is the last dimension
  int64_t step[4];        // strides along a line; of operand 2, in addition to what the index gives
  int64_t size, pitch;    // of operand 2 along dim

  GatherPlan(ConstView index, ConstView dense, ConstView indexed, int dim)
      : count(index.shape[index.dims - 1]), size(indexed.shape[dim]), pitch(indexed.strides[dim]) {
    const int last = index.dims - 1;
    int64_t positions[kMaxDims], next = 1;
    for (int d = last; d >= 0; --d) {
      positions[d] = next;
      next *= index.shape[d];
    }
    const int64_t* strides[] = {index.strides, dense.strides, indexed.strides, positions};
    for (int k = 0; k < 4; ++k) step[k] = strides[k][last];
    if (dim == last) {
      step[2] = 0;
    } else {
      length = index.shape[dim];
      for (int k : {0, 1, 3}) along[k] = strides[k][dim];
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
  /// Offset of operand k's elements that begin line `line` of `outer_row`, from element `first` on.
  int64_t offset(int k, int64_t outer_row, int64_t line, int64_t first) const {
    return outer.row_offset(k, outer_row) + line * along[k] + first * step[k];
  }
  bool contains(int64_t id) const { return static_cast<uint64_t>(id) < static_cast<uint64_t>(size); }
  /// True if all indices of a line are one.
  bool one_index() const { return step[0] == 0; }
};

/// True if all n indices are in [0, size).
bool all_inside(const int64_t* index, int64_t step, int64_t n, int64_t size) {
  uint64_t signs = 0;  // of the indices and of their distances to the last one
  for (int64_t j = 0; j < n; ++j) {
    const auto id = static_cast<uint64_t>(index[j * step]);
    signs |= id | (static_cast<uint64_t>(size) - 1 - id);
  }
  return static_cast<int64_t>(signs) >= 0;
}

/// Reports the positions of n elements of a line.
void report_line(IndexFault* fault, int64_t position, int64_t step, int64_t n) {
  for (int64_t j = 0; fault && j < n; ++j) fault->report(position + j * step);
}

/// y[j] = x[index[j]] for a part of a line; `position` is that of its first element.
template <class T>
void gather_line(const GatherPlan& plan, const int64_t* index, const T* x, T* y, int64_t n, int64_t position,
                 IndexFault* fault) {
  const int64_t from_step = plan.step[2], to_step = plan.step[1];
  if (plan.one_index()) {
    if (!plan.contains(*index)) {
      for (int64_t j = 0; j < n; ++j) y[j * to_step] = T(0);
      return report_line(fault, position, plan.step[3], n);
    }
    const T* const from = x + *index * plan.pitch;
    if (from_step == 1 && to_step == 1)
      copy_bytes(from, y, n * static_cast<int64_t>(sizeof(T)));
    else
      for (int64_t j = 0; j < n; ++j) y[j * to_step] = from[j * from_step];
    return;
  }
  if (plan.step[0] == 1 && plan.pitch == 1 && to_step == 1 && from_step == 0 && all_inside(index, 1, n, plan.size)) {
    for (int64_t j = 0; j < n; ++j) y[j] = x[index[j]];
    return;
  }
  for (int64_t j = 0; j < n; ++j) {
    const int64_t id = index[j * plan.step[0]];
    if (plan.contains(id)) {
      y[j * to_step] = x[id * plan.pitch + j * from_step];
    } else {
      y[j * to_step] = T(0);
      report_line(fault, position + j * plan.step[3], 0, 1);
    }
  }
}

/// target = the combination of target and value, in the compute type.
template <ScatterMode kMode, class S, class T>
inline void combine_into(Stored<T>& target, Stored<S> value) {
  using F = ComputeType<T>;
  target = convert<F, T>(combined(kMode, static_cast<F>(convert<T, F>(target)), static_cast<F>(convert<S, F>(value))));
}

/// Combines y[index[j]] with source[j] for n neighbours of 16 bits, which are widened by vectors.
template <ScatterMode kMode, class S, class T>
void scatter_halves(const int64_t* index, const S* source, T* y, int64_t n) {
  constexpr int64_t kPart = 256;
  float values[kPart];
  for (int64_t first = 0; first < n; first += kPart) {
    const int64_t count = std::min(kPart, n - first);
    widen_halves(source + first, values, count);
    for (int64_t j = 0; j < count; ++j) {
      T& target = y[index[first + j]];
      target = T(combined(kMode, static_cast<float>(target), values[j]));
    }
  }
}

/// Combines y[index[j]] with source[j] for a part of a line, in order. S is the source's type, T that of y.
template <ScatterMode kMode, class S, class T>
void scatter_line(const GatherPlan& plan, const int64_t* index, const Stored<S>* source, Stored<T>* y, int64_t n,
                  int64_t position, IndexFault* fault) {
  const int64_t from_step = plan.step[1], to_step = plan.step[2];
  if (plan.one_index()) {
    if (!plan.contains(*index)) return report_line(fault, position, plan.step[3], n);
    Stored<T>* const to = y + *index * plan.pitch;
    if (from_step == 1 && to_step == 1)
      for (int64_t j = 0; j < n; ++j) combine_into<kMode, S, T>(to[j], source[j]);
    else
      for (int64_t j = 0; j < n; ++j) combine_into<kMode, S, T>(to[j * to_step], source[j * from_step]);
    return;
  }
  if (plan.step[0] == 1 && plan.pitch == 1 && to_step == 0 && all_inside(index, 1, n, plan.size)) {
    if constexpr (kIsHalf<S>)
      if (from_step == 1) return scatter_halves<kMode>(index, source, y, n);
    for (int64_t j = 0; j < n; ++j) combine_into<kMode, S, T>(y[index[j]], source[j * from_step]);
    return;
  }
  for (int64_t j = 0; j < n; ++j) {
    const int64_t id = index[j * plan.step[0]];
    if (plan.contains(id))
      combine_into<kMode, S, T>(y[id * plan.pitch + j * to_step], source[j * from_step]);
    else
      report_line(fault, position + j * plan.step[3], 0, 1);
  }
}

/// The parts of a scatter that have one writer each, on all threads: run(for_each_piece) for each of them, where
/// for_each_piece(body) calls body(outer, first, n) for its pieces, elements [first, first + n) of lines.
template <class Run>
void for_each_scatter_task(const GatherPlan& plan, const Run& run) {
  // Each fibre along dim has one writer: a task is a chunk of neighbouring fibres, or the one fibre along a line, in
  // pieces whose indices stay in cache.
  const bool one_fibre = plan.step[2] == 0;
  const int64_t width = plan.one_index() ? std::clamp<int64_t>(plan.count / num_threads(), 16, kColumns) : kFibres;
  const int64_t piece = std::min(plan.count, one_fibre ? kPiece : width);
  const int64_t chunk = one_fibre ? plan.count : piece, chunks = (plan.count + chunk - 1) / chunk;
  const int64_t grain = std::max<int64_t>(1, kBlock / (plan.length * chunk));
  parallel_for(plan.outer.numel() * chunks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t outer = task / chunks, start = task % chunks * chunk, stop = std::min(plan.count, start + chunk);
      run([&](const auto& body) {
        for (int64_t first = start; first < stop; first += piece) body(outer, first, std::min(stop - first, piece));
      });
    }
  });
}

/// Combines the source with y in a piece of lines.
template <ScatterMode kMode, class S, class T>
void scatter_piece(const GatherPlan& plan, const Stored<S>* source, const int64_t* index, Stored<T>* y, int64_t outer,
                   int64_t first, int64_t n, IndexFault* fault) {
  int64_t at[4];
  for (int k = 0; k < 4; ++k) at[k] = plan.offset(k, outer, 0, first);
  for (int64_t k = 0; k < plan.length; ++k)
    scatter_line<kMode, S, T>(plan, index + at[0] + k * plan.along[0], source + at[1] + k * plan.along[1], y + at[2], n,
                              at[3] + k * plan.along[3], fault);
}

/// to[index[j]] = from[index[j]], converted, in a piece of lines of two tensors that are indexed alike.
template <class From, class To>
void convert_piece(const GatherPlan& from_plan, const GatherPlan& to_plan, const int64_t* index, const From* from,
                   To* to, int64_t outer, int64_t first, int64_t n) {
  const int64_t from_step = from_plan.step[2], to_step = to_plan.step[2];
  index += to_plan.offset(0, outer, 0, first);
  from += from_plan.offset(2, outer, 0, first);
  to += to_plan.offset(2, outer, 0, first);
  for (int64_t k = 0; k < to_plan.length; ++k, index += to_plan.along[0]) {
    if (to_plan.one_index()) {
      if (to_plan.contains(*index))
        convert_strided<From, To>(from + *index * from_plan.pitch, from_step, to + *index * to_plan.pitch, to_step, n);
      continue;
    }
    for (int64_t j = 0; j < n; ++j)
      if (const int64_t id = index[j * to_plan.step[0]]; to_plan.contains(id))
        to[id * to_plan.pitch + j * to_step] = convert<From, To>(from[id * from_plan.pitch + j * from_step]);
  }
}

template <ScatterMode kMode, class T>
void scatter_as(const GatherPlan& plan, const Stored<T>* source, const int64_t* index, Stored<T>* y,
                IndexFault* fault) {
  for_each_scatter_task(plan, [&](const auto& for_each_piece) {
    for_each_piece([&](int64_t outer, int64_t first, int64_t n) {
      scatter_piece<kMode, T, T>(plan, source, index, y, outer, first, n, fault);
    });
  });
}

/// The same into fp32: the elements of y that the index names are read first and written last. `sums` has the shape of
/// the index, but all elements of y along dim.
template <ScatterMode kMode, class T>
void scatter_in_float(const GatherPlan& plan, const GatherPlan& sums_plan, const T* source, const int64_t* index,
                      float* sums, T* y, IndexFault* fault) {
  for_each_scatter_task(plan, [&](const auto& for_each_piece) {
    for_each_piece([&](int64_t outer, int64_t first, int64_t n) {
      convert_piece<T, float>(plan, sums_plan, index, y, sums, outer, first, n);
    });
    for_each_piece([&](int64_t outer, int64_t first, int64_t n) {
      scatter_piece<kMode, T, float>(sums_plan, source, index, sums, outer, first, n, fault);
    });
    for_each_piece([&](int64_t outer, int64_t first, int64_t n) {
      convert_piece<float, T>(sums_plan, plan, index, sums, y, outer, first, n);
    });
  });
}

/// The contiguous shape of scatter_in_float's sums.
View view_of_sums(ConstView index, ConstView y, int dim, void* workspace) {
  View sums(workspace, DType::kFloat32, index.dims, index.shape, index.strides);
  sums.shape[dim] = y.shape[dim];
  int64_t step = 1;
  for (int d = sums.dims - 1; d >= 0; --d) {
    sums.strides[d] = step;
    step *= sums.shape[d];
  }
  return sums;
}

}  // namespace

void embedding_forward(Stream, ConstView weight, ConstView ids, View y, IndexFault* fault) {
  const int64_t rows = ids.numel(), count = weight.shape[0], bytes = weight.cols() * size_of(weight.dtype);
  parallel_for(rows, std::max<int64_t>(1, kBlock * 4 / std::max<int64_t>(bytes, 1)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t id = id_at(ids, i);
      char* out = y.as<char>() + i * bytes;
      if (id >= 0 && id < count) {
        copy_bytes(weight.as<char>() + id * bytes, out, bytes);
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
  const int64_t chunk = std::min(plan.count, kBlock), chunks = (plan.count + chunk - 1) / chunk;
  dispatch_size(size_of(x.dtype), [&]<class T>() {
    parallel_for(plan.outer.numel() * plan.length * chunks, kBlock / chunk, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t line = task / chunks, first = task % chunks * chunk;
        const int64_t outer = line / plan.length, k = line % plan.length;
        const auto at = [&](int operand) { return plan.offset(operand, outer, k, first); };
        gather_line(plan, index.as<int64_t>() + at(0), x.as<T>() + at(2), y.as<T>() + at(1),
                    std::min(plan.count - first, chunk), at(3), fault);
      }
    });
  });
}

int64_t scatter_workspace(Stream, ScatterMode mode, int dim, ConstView index, ConstView y) {
  if (!combines_in_float(mode, y.dtype) || index.numel() == 0) return 0;
  return view_of_sums(index, y, dim, nullptr).numel() * static_cast<int64_t>(sizeof(float));
}

void scatter(Stream, ScatterMode mode, ConstView source, int dim, ConstView index, void* workspace, View y,
             IndexFault* fault) {
  if (index.numel() == 0) return;
  const GatherPlan plan(index, source, y, dim);
  dispatch_any(y.dtype, [&]<class T>() {
    const auto run = [&]<ScatterMode kMode>() {
      if constexpr (combines_in_float(kMode, dtype_of<T>())) {
        const View sums = view_of_sums(index, y, dim, workspace);
        return scatter_in_float<kMode>(plan, GatherPlan(index, source, sums, dim), source.as<T>(), index.as<int64_t>(),
                                       sums.as<float>(), y.as<T>(), fault);
      } else {
        scatter_as<kMode, T>(plan, source.as<Stored<T>>(), index.as<int64_t>(), y.as<Stored<T>>(), fault);
      }
    };
    switch (mode) {
      case ScatterMode::kAssign:
        return run.template operator()<ScatterMode::kAssign>();
      case ScatterMode::kAdd:
        return run.template operator()<ScatterMode::kAdd>();
      case ScatterMode::kMultiply:
        return run.template operator()<ScatterMode::kMultiply>();
      case ScatterMode::kMaximum:
        return run.template operator()<ScatterMode::kMaximum>();
      case ScatterMode::kMinimum:
        return run.template operator()<ScatterMode::kMinimum>();
    }
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
