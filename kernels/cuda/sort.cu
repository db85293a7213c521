// Sorting and selecting within rows. CUB sorts the whole matrix, first by value and then, stably, by row. For the
// largest elements, a block finds the key of the k-th of its row digit by digit and selects the preceding ones in the
// order of the columns, so that no result depends on timing.

#include "tern/kernels/sort.h"

#include <algorithm>
#include <bit>

#include "tern/kernels/bits.h"
#include "tern/kernels/copy.h"
#include "tern/kernels/cuda/cub.h"
#include "tern/kernels/cuda/support/rows.h"
#include "tern/kernels/cuda/support/scan.h"
#include "tern/kernels/sort_key.h"

namespace tern::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 1 << 16;  // for grids whose threads process several elements
// Maximum number of elements sorted together, in whole rows, but at least one row.
#ifdef TERN_SIMT
constexpr int64_t kChunk = 4096;  // so that small tests have several chunks
#else
constexpr int64_t kChunk = 1 << 26;
#endif

constexpr int kSelectItems = 4;  // neighbouring columns per thread
constexpr int kDigits = 256, kDigitBits = 8;
constexpr int64_t kShortRow = 512;  // rows up to this length use small blocks

int64_t rows_together(int64_t rows, int64_t cols) { return std::clamp<int64_t>(kChunk / cols, 1, rows); }

/// Launches a kernel whose threads iterate over n elements.
template <class... Parameters, class... Args>
void launch_for(detail::LaunchStream stream, int64_t n, void (*kernel)(Parameters...), const Args&... args) {
  const int64_t blocks = std::min(ceil_div(n, kThreads), kMaxBlocks);
  launch(kernel, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0, stream, args...);
}
__device__ int64_t first_element() { return static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; }
__device__ int64_t element_step() { return static_cast<int64_t>(gridDim.x) * kThreads; }

/// Writes each element's key and its number among the n.
template <class T>
__global__ void __launch_bounds__(kThreads)
    make_keys_kernel(const Stored<T>* x, int64_t n, SortKey<T> flip, SortKey<T>* keys, uint32_t* numbers) {
  for (int64_t i = first_element(); i < n; i += element_step()) {
    store_one(keys + i, sort_key<T>(load_one(x + i)) ^ flip);
    store_one(numbers + i, static_cast<uint32_t>(i));
  }
}

/// Computes the rows of the elements with these numbers.
__global__ void __launch_bounds__(kThreads)
    find_rows_kernel(const uint32_t* numbers, int64_t n, uint32_t cols, uint32_t* rows) {
  for (int64_t i = first_element(); i < n; i += element_step()) store_one(rows + i, load_one(numbers + i) / cols);
}

/// values[i], index[i] = element order[i] of [n / cols, cols] and its column. `columns`: the column of every element in
/// a matrix x with x_cols columns; null: the elements' columns are used.
template <class Word>
__global__ void __launch_bounds__(kThreads)
    store_elements_kernel(const Word* x, int64_t x_cols, const uint32_t* columns, const uint32_t* order, int64_t n,
                          uint32_t cols, Word* values, int64_t* index) {
  for (int64_t i = first_element(); i < n; i += element_step()) {
    const uint32_t row = static_cast<uint32_t>(i) / cols,
                   number = order ? load_one(order + i) : static_cast<uint32_t>(i);
    const int64_t column = columns ? load_one(columns + number) : number - row * cols;
    store_one(values + i, load_one(x + row * x_cols + column));
    store_one(index + i, column);
  }
}

/// Allocates pieces of memory aligned to 16 bytes; with a null base it only computes the size.
class Pieces {
 public:
  explicit Pieces(void* base) : base_(static_cast<char*>(base)) {}
  template <class T>
  T* take(int64_t count) {
    T* const result = base_ ? reinterpret_cast<T*>(base_ + bytes_) : nullptr;
    bytes_ += ceil_div(count * static_cast<int64_t>(sizeof(T)), 16) * 16;
    return result;
  }
  int64_t bytes() const { return bytes_; }

 private:
  char* base_;
  int64_t bytes_ = 0;
};

/// Sorts the rows of a [rows, cols] matrix of keys with at most n elements.
template <class Key>
struct RowSorter {
  SortBuffers<Key> pairs;  // the caller writes keys and numbers of elements to buffers 0
  void* space;

  RowSorter(Stream stream, int64_t n, Pieces& pieces) {
    for (int b = 0; b < 2; ++b) {
      pairs.keys[b] = pieces.take<Key>(n);
      pairs.values[b] = pieces.take<uint32_t>(n);
    }
    space =
        pieces.take<char>(std::max(sort_pairs_workspace<Key>(stream, n), sort_pairs_workspace<uint32_t>(stream, n)));
  }
  /// Returns the numbers of the elements, row by row in the order of the keys' lower `bits` bits.
  const uint32_t* sort(Stream stream, int64_t rows, int64_t cols, int bits) const {
    const int64_t n = rows * cols;
    const int sorted = sort_pairs(stream, pairs, n, bits, space);
    if (rows == 1) return pairs.values[sorted];
    SortBuffers<uint32_t> by_row;
    for (int b = 0; b < 2; ++b) {
      by_row.keys[b] = reinterpret_cast<uint32_t*>(pairs.keys[b]);
      by_row.values[b] = pairs.values[b == 0 ? sorted : 1 - sorted];
    }
    launch_for(stream, n, find_rows_kernel, by_row.values[0], n, static_cast<uint32_t>(cols), by_row.keys[0]);
    return by_row.values[sort_pairs(stream, by_row, n,
                                    static_cast<int>(std::bit_width(static_cast<uint64_t>(rows - 1))), space)];
  }
};

/// The k-th smallest key of a row, and how many keys equal to it are among the k smallest.
template <class Key>
struct Threshold {
  Key key;
  uint32_t equal;
};

/// Finds it digit by digit from the highest; all threads of the block call it. key_at(column): a key of `bits` bits.
template <int kGroup, class KeyAt>
__device__ auto find_threshold(const KeyAt& key_at, int bits, int64_t cols, int64_t k) {
  using Key = decltype(key_at(0));
  constexpr int kOwnDigits = kGroup < kDigits ? kDigits / kGroup : 1;
  TERN_SHARED(uint32_t, count, [kDigits]);
  TERN_SHARED(uint32_t, chosen, [2]);  // a digit, and the number of keys with a smaller one
  const int thread = static_cast<int>(threadIdx.x);
  Key prefix = 0;                        // the digits found so far
  auto rank = static_cast<uint32_t>(k);  // rank, from 1, among keys with these digits
  for (int shift = (bits - 1) / kDigitBits * kDigitBits; shift >= 0; shift -= kDigitBits) {
    for (int d = thread; d < kDigits; d += kGroup) count[d] = 0;
    block_barrier();
    for (int64_t c = thread; c < cols; c += kGroup) {
      const Key key = key_at(c);
      if ((key ^ prefix) >> shift >> kDigitBits == 0)
        atomicAdd(&count[static_cast<int>(key >> shift & (kDigits - 1))], 1u);
    }
    block_barrier();
    uint32_t own[kOwnDigits], sum = 0, total;
#pragma unroll
    for (int d = 0; d < kOwnDigits; ++d) {
      own[d] = thread * kOwnDigits + d < kDigits ? count[thread * kOwnDigits + d] : 0;
      sum += own[d];
    }
    uint32_t before = block_sum_before<kGroup>(sum, total);
#pragma unroll
    for (int d = 0; d < kOwnDigits; ++d) {
      if (before < rank && rank <= before + own[d]) {
        chosen[0] = static_cast<uint32_t>(thread * kOwnDigits + d);
        chosen[1] = before;
      }
      before += own[d];
    }
    block_barrier();
    prefix |= static_cast<Key>(chosen[0]) << shift;
    rank -= chosen[1];
  }
  return Threshold<Key>{prefix, rank};
}

/// One block per row. Selects the k elements with the smallest keys, of equal ones the first, in the order of the
/// columns; writes their columns, keys and numbers (from 0, over all rows).
template <class T, int kGroup>
__global__ void __launch_bounds__(kGroup)
    select_kernel(const Stored<T>* x, int64_t rows, int64_t cols, int64_t k, SortKey<T> flip, SortKey<T>* keys,
                  uint32_t* numbers, uint32_t* columns) {
  constexpr int kTile = kGroup * kSelectItems;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const auto key_at = [&](int64_t c) { return sort_key<T>(load_one(x + row * cols + c)) ^ flip; };
    const auto threshold = find_threshold<kGroup>(key_at, sort_key_bits<T>, cols, k);
    uint32_t less = 0, equal = 0;  // number of keys before this tile
    for (int64_t tile = 0; tile < cols && less + min(equal, threshold.equal) < k; tile += kTile) {
      const int64_t first = tile + static_cast<int>(threadIdx.x) * kSelectItems;
      SortKey<T> key[kSelectItems];
      uint32_t here = 0, total;  // keys below the threshold; from bit 16 on: keys equal to it
#pragma unroll
      for (int i = 0; i < kSelectItems; ++i) {
        key[i] = first + i < cols ? key_at(first + i) : 0;
        if (first + i < cols) here += key[i] < threshold.key ? 1 : key[i] == threshold.key ? 1 << 16 : 0;
      }
      const uint32_t before = block_sum_before<kGroup>(here, total);
      uint32_t own_less = less + (before & 0xffff), own_equal = equal + (before >> 16);
#pragma unroll
      for (int i = 0; i < kSelectItems; ++i) {
        if (first + i >= cols || key[i] > threshold.key) continue;
        if (key[i] < threshold.key || own_equal < threshold.equal) {
          const int64_t to = row * k + own_less + min(own_equal, threshold.equal);
          store_one(columns + to, static_cast<uint32_t>(first + i));
          store_one(keys + to, key[i]);
          store_one(numbers + to, static_cast<uint32_t>(to));
        }
        (key[i] < threshold.key ? own_less : own_equal) += 1;
      }
      less += total & 0xffff;
      equal += total >> 16;
    }
  }
}

/// No index repeats within a row, so every element has one writer.
template <class Word>
__global__ void __launch_bounds__(kThreads)
    scatter_rows_kernel(const Word* y, const int64_t* index, int64_t n, int64_t k, int64_t cols, Word* x) {
  for (int64_t i = first_element(); i < n; i += element_step()) {
    const int64_t at = load_one(index + i);
    if (at >= 0 && at < cols) store_one(x + i / k * cols + at, load_one(y + i));
  }
}

/// The parts of top_k_rows' workspace.
template <class Key>
struct TopSpace {
  Pieces pieces;
  RowSorter<Key> sorter;
  uint32_t* columns;
  TopSpace(Stream stream, int64_t n, void* base)
      : pieces(base), sorter(stream, n, pieces), columns(pieces.template take<uint32_t>(n)) {}
};

/// The workspace of select_rows: sorted rows, and what sorting takes.
template <class T>
struct SelectSpace {
  Pieces pieces;
  Stored<T>* values;
  int64_t* index;
  char* sort;
  SelectSpace(Stream stream, int64_t rows, int64_t cols, void* base)
      : pieces(base),
        values(pieces.template take<Stored<T>>(rows * cols)),
        index(pieces.template take<int64_t>(rows * cols)),
        sort(pieces.template take<char>(sort_rows_workspace(stream, rows, cols, dtype_of<T>()))) {}
};

/// Takes the selected element of each sorted row. The numbers come before the first NaN.
template <class T>
__global__ void __launch_bounds__(kThreads)
    take_selected_kernel(const Stored<T>* sorted, const int64_t* sorted_index, int64_t rows, int64_t cols,
                         Selection which, int64_t place, Stored<T>* values, int64_t* index) {
  for (int64_t r = first_element(); r < rows; r += element_step()) {
    int64_t low = is_floating(dtype_of<T>()) && which != Selection::kPlace ? 0 : cols, high = cols;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (sort_key<T>(load_one(sorted + r * cols + middle)) != sort_key_flip<T>(true))
        low = middle + 1;
      else
        high = middle;
    }
    const int64_t at = r * cols + selected_place(which, place, low, cols);
    store_one(values + r, load_one(sorted + at));
    store_one(index + r, load_one(sorted_index + at));
  }
}

/// index[i] = the first column of the value's row whose element does not precede the value.
template <class T>
__global__ void __launch_bounds__(kThreads)
    search_sorted_kernel(const Stored<T>* sorted, const Stored<T>* values, int64_t n, int64_t cols, int64_t row_step,
                         int64_t k, bool right, int64_t* index) {
  for (int64_t i = first_element(); i < n; i += element_step()) {
    const Stored<T>* const row = sorted + i / k * row_step;
    const SortKey<T> key = sort_key<T>(values[i]);
    int64_t low = 0, high = cols;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      const SortKey<T> at = sort_key<T>(row[middle]);
      if (right ? at <= key : at < key)
        low = middle + 1;
      else
        high = middle;
    }
    index[i] = low;
  }
}

}  // namespace

int64_t sort_rows_workspace(Stream stream, int64_t rows, int64_t cols, DType dtype) {
  if (rows == 0 || cols == 0) return 0;
  return dispatch_any(dtype, [&]<class T>() {
    Pieces pieces(nullptr);
    RowSorter<SortKey<T>>(stream, rows_together(rows, cols) * cols, pieces);
    return pieces.bytes();
  });
}

void sort_rows(Stream stream, ConstView x, bool descending, void* workspace, View values, View index) {
  if (x.numel() == 0) return;
  const int64_t rows = x.rows(), cols = x.cols(), together = rows_together(rows, cols);
  dispatch_any(x.dtype, [&]<class T>() {
    Pieces pieces(workspace);
    const RowSorter<SortKey<T>> sorter(stream, together * cols, pieces);
    for (int64_t first = 0; first < rows; first += together) {
      const int64_t count = std::min(together, rows - first), n = count * cols, start = first * cols;
      launch_for(stream, n, make_keys_kernel<T>, x.as<Stored<T>>() + start, n, sort_key_flip<T>(descending),
                 sorter.pairs.keys[0], sorter.pairs.values[0]);
      const uint32_t* const order = sorter.sort(stream, count, cols, sort_key_bits<T>);
      dispatch_size(sizeof(T), [&]<class Word>() {
        launch_for(stream, n, store_elements_kernel<Word>, x.as<Word>() + start, cols, nullptr, order, n,
                   static_cast<uint32_t>(cols), values.as<Word>() + start, index.as<int64_t>() + start);
      });
    }
  });
}

int64_t top_k_rows_workspace(Stream stream, int64_t rows, int64_t cols, int64_t k, DType dtype) {
  if (rows == 0 || cols == 0 || k == 0) return 0;
  return dispatch_any(dtype, [&]<class T>() {
    return TopSpace<SortKey<T>>(stream, rows_together(rows, k) * k, nullptr).pieces.bytes();
  });
}

void top_k_rows(Stream stream, ConstView x, bool largest, bool sorted, void* workspace, View values, View index) {
  if (index.numel() == 0) return;
  const int64_t rows = x.rows(), cols = x.cols(), k = index.cols(), together = rows_together(rows, k);
  dispatch_any(x.dtype, [&]<class T>() {
    const TopSpace<SortKey<T>> space(stream, together * k, workspace);
    const auto& pairs = space.sorter.pairs;
    for (int64_t first = 0; first < rows; first += together) {
      const int64_t count = std::min(together, rows - first), n = count * k;
      const auto select = [&]<int kGroup>() {
        launch(select_kernel<T, kGroup>, dim3(static_cast<unsigned>(std::min(count, kMaxBlocks))), dim3(kGroup), 0,
               stream, x.as<Stored<T>>() + first * cols, count, cols, k, sort_key_flip<T>(largest), pairs.keys[0],
               pairs.values[0], space.columns);
      };
      if (cols <= kShortRow)
        select.template operator()<64>();
      else
        select.template operator()<512>();
      const uint32_t* const order = sorted ? space.sorter.sort(stream, count, k, sort_key_bits<T>) : nullptr;
      dispatch_size(sizeof(T), [&]<class Word>() {
        launch_for(stream, n, store_elements_kernel<Word>, x.as<Word>() + first * cols, cols, space.columns, order, n,
                   static_cast<uint32_t>(k), values.as<Word>() + first * k, index.as<int64_t>() + first * k);
      });
    }
  });
}

int64_t select_rows_workspace(Stream stream, int64_t rows, int64_t cols, DType dtype) {
  if (rows == 0 || cols == 0) return 0;
  return dispatch_any(dtype, [&]<class T>() { return SelectSpace<T>(stream, rows, cols, nullptr).pieces.bytes(); });
}

void select_rows(Stream stream, ConstView x, Selection which, int64_t place, void* workspace, View values, View index) {
  if (index.numel() == 0) return;
  const int64_t rows = x.rows(), cols = x.cols();
  dispatch_any(x.dtype, [&]<class T>() {
    const SelectSpace<T> space(stream, rows, cols, workspace);
    sort_rows(stream, x, false, space.sort, View(space.values, x.dtype, x.dims, x.shape, x.strides),
              View(space.index, DType::kInt64, x.dims, x.shape, x.strides));
    launch_for(stream, rows, take_selected_kernel<T>, space.values, space.index, rows, cols, which, place,
               values.as<Stored<T>>(), index.as<int64_t>());
  });
}

void search_sorted(Stream stream, ConstView sorted, ConstView values, bool right, View index) {
  const int64_t n = values.numel(), cols = sorted.cols();
  if (n == 0) return;
  dispatch_any(values.dtype, [&]<class T>() {
    launch_for(stream, n, search_sorted_kernel<T>, sorted.as<Stored<T>>(), values.as<Stored<T>>(), n, cols,
               sorted.rows() == 1 ? 0 : cols, values.cols(), right, index.as<int64_t>());
  });
}

void scatter_rows(Stream stream, ConstView y, ConstView index, View x) {
  fill(stream, 0, x);
  const int64_t n = y.numel();
  if (n == 0) return;
  dispatch_size(size_of(x.dtype), [&]<class Word>() {
    launch_for(stream, n, scatter_rows_kernel<Word>, y.as<Word>(), index.as<int64_t>(), n, y.cols(), x.cols(),
               x.as<Word>());
  });
}

}  // namespace tern::kernels::cuda
