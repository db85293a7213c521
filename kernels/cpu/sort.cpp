// Sorting and selecting within rows. Elements become pairs of key and position, and no two pairs are equal: every
// correct algorithm gives the same order.

#include "tern/kernels/sort.h"

#include <algorithm>

#include "tern/kernels/bits.h"
#include "tern/kernels/copy.h"
#include "tern/kernels/parallel.h"
#include "tern/kernels/sort_key.h"

namespace tern::kernels::TERN_CPU {
namespace {

constexpr int64_t kChunk = 1 << 20;  // elements of the rows sorted at the same time, or one longer row
constexpr int64_t kBlock = 32768;    // elements per parallel block
constexpr int64_t kShortRow = 256;   // rows up to this length are sorted by comparison
constexpr int64_t kTinyRow = 8;      // rows up to this length are sorted by counting the smaller elements of each
constexpr int64_t kFew = 16;         // so many best elements of a row are kept in order while it is read
constexpr int64_t kLongRow = 512;    // of rows from this length on, the best elements are found by a first digit
constexpr int64_t kKeyTile = 256;
constexpr int kDigits = 256, kDigitBits = 8, kFirstDigitBits = 11;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <class Key>
struct Pair {
  Key key;
  uint32_t position;
  bool operator<(const Pair& other) const {
    if constexpr (sizeof(Key) == 4)
      return joined() < other.joined();
    else
      return key < other.key || (key == other.key && position < other.position);
  }

 private:
  uint64_t joined() const { return static_cast<uint64_t>(key) << 32 | position; }
};

int64_t rows_together(int64_t rows, int64_t cols) { return std::clamp<int64_t>(kChunk / cols, 1, rows); }

/// One row's part of the workspace.
template <class Key>
struct RowSpace {
  Pair<Key>* pairs[2];
  uint32_t* counts;  // [blocks of the row][kDigits]

  static int64_t bytes(int64_t cols) {
    const int64_t counts = cols <= kShortRow ? 0 : ceil_div(cols, kBlock) * kDigits;
    return 2 * cols * static_cast<int64_t>(sizeof(Pair<Key>)) + counts * static_cast<int64_t>(sizeof(uint32_t));
  }
  RowSpace(void* workspace, int64_t row, int64_t cols) {
    auto* const start = reinterpret_cast<Pair<Key>*>(static_cast<char*>(workspace) + row * bytes(cols));
    pairs[0] = start;
    pairs[1] = start + cols;
    counts = reinterpret_cast<uint32_t*>(start + 2 * cols);
  }
};

template <class T>
void make_pairs(const Stored<T>* x, int64_t cols, SortKey<T> flip, Pair<SortKey<T>>* pairs) {
  parallel_for(cols, kBlock, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) pairs[i] = {sort_key<T>(x[i]) ^ flip, static_cast<uint32_t>(i)};
  });
}

/// Sorts the pairs by one digit, block by block. Returns false and moves nothing when all have the same digit.
template <class Key>
bool sort_digit(const Pair<Key>* from, Pair<Key>* to, int64_t n, int shift, uint32_t* counts) {
  const auto digit_of = [shift](const Pair<Key>& pair) { return static_cast<int>(pair.key >> shift & (kDigits - 1)); };
  const int64_t blocks = ceil_div(n, kBlock);
  parallel_for(n, kBlock, [&](int64_t begin, int64_t end) {
    uint32_t* const count = counts + begin / kBlock * kDigits;
    std::fill_n(count, kDigits, 0u);
    for (int64_t i = begin; i < end; ++i) ++count[digit_of(from[i])];
  });
  uint32_t next = 0;  // counts become positions
  for (int d = 0; d < kDigits; ++d) {
    const uint32_t first = next;
    for (int64_t b = 0; b < blocks; ++b) {
      const uint32_t count = counts[b * kDigits + d];
      counts[b * kDigits + d] = next;
      next += count;
    }
    if (next - first == n) return false;
  }
  parallel_for(n, kBlock, [&](int64_t begin, int64_t end) {
    uint32_t* const place = counts + begin / kBlock * kDigits;
    for (int64_t i = begin; i < end; ++i) to[place[digit_of(from[i])]++] = from[i];
  });
  return true;
}

/// to = the n <= kTinyRow pairs in order; their positions ascend.
template <class Key>
void sort_tiny(const Pair<Key>* from, Pair<Key>* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    int64_t place = 0;
    for (int64_t j = 0; j < i; ++j) place += from[j].key <= from[i].key ? 1 : 0;
    for (int64_t j = i + 1; j < n; ++j) place += from[j].key < from[i].key ? 1 : 0;
    to[place] = from[i];
  }
}

/// Sorts the pairs of pairs[0], whose positions ascend; returns the array that holds the result.
template <class Key>
const Pair<Key>* sort_pairs(const RowSpace<Key>& space, int64_t n, int bits) {
  Pair<Key>*from = space.pairs[0], *to = space.pairs[1];
  if (n <= kTinyRow) {
    sort_tiny(from, to, n);
    return to;
  }
  if (n <= kShortRow) {
    std::sort(from, from + n);
    return from;
  }
  for (int shift = 0; shift < bits; shift += kDigitBits)
    if (sort_digit(from, to, n, shift, space.counts)) std::swap(from, to);
  return from;
}

/// values[j], index[j] = the element of row x at the position in pairs[j], and that position. The elements of long rows
/// are made from their keys where these tell them: reads of x at random would wait for memory.
template <class T>
void store_pairs(const Stored<T>* x, const Pair<SortKey<T>>* pairs, int64_t n, SortKey<T> flip, Stored<T>* values,
                 int64_t* index) {
  parallel_for(n, kBlock, [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j) index[j] = pairs[j].position;
    if constexpr (!std::is_same_v<T, bool>) {
      if (n > kShortRow) {
        for (int64_t j = begin; j < end; ++j) {
          const SortKey<T> key = pairs[j].key ^ flip;
          values[j] = is_shared_sort_key<T>(key) ? x[pairs[j].position] : value_of_sort_key<T>(key);
        }
        return;
      }
    }
    for (int64_t j = begin; j < end; ++j) values[j] = x[pairs[j].position];
  });
}

/// Runs body(row, row within its chunk) in parallel over the rows of a chunk.
template <class Body>
void for_each_row(int64_t rows, int64_t cols, const Body& body) {
  const int64_t together = rows_together(rows, cols), grain = std::max<int64_t>(1, kBlock / cols);
  for (int64_t first = 0; first < rows; first += together)
    parallel_for(std::min(together, rows - first), grain, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) body(first + r, r);
    });
}

}  // namespace

int64_t sort_rows_workspace(Stream, int64_t rows, int64_t cols, DType dtype) {
  if (rows == 0 || cols == 0) return 0;
  return dispatch_any(dtype, [&]<class T>() { return rows_together(rows, cols) * RowSpace<SortKey<T>>::bytes(cols); });
}

void sort_rows(Stream, ConstView x, bool descending, void* workspace, View values, View index) {
  const int64_t cols = x.cols();
  if (x.numel() == 0) return;
  dispatch_any(x.dtype, [&]<class T>() {
    for_each_row(x.rows(), cols, [&](int64_t row, int64_t place) {
      const RowSpace<SortKey<T>> space(workspace, place, cols);
      const Stored<T>* const from = x.as<Stored<T>>() + row * cols;
      const SortKey<T> flip = sort_key_flip<T>(descending);
      make_pairs<T>(from, cols, flip, space.pairs[0]);
      store_pairs<T>(from, sort_pairs(space, cols, sort_key_bits<T>), cols, flip, values.as<Stored<T>>() + row * cols,
                     index.as<int64_t>() + row * cols);
    });
  });
}

namespace {

/// best = the first k <= kFew pairs of a row in order. An element takes a place only if it is less than the last of
/// them, which few are in most rows.
template <class T>
void take_few(const Stored<T>* x, int64_t cols, SortKey<T> flip, int64_t k, Pair<SortKey<T>>* best) {
  SortKey<T> keys[kKeyTile];
  int64_t count = 0;
  for (int64_t first = 0; first < cols; first += kKeyTile) {
    const int64_t n = std::min(kKeyTile, cols - first);
    for (int64_t i = 0; i < n; ++i) keys[i] = sort_key<T>(x[first + i]) ^ flip;
    for (int64_t i = 0; i < n; ++i) {
      if (count == k && keys[i] >= best[k - 1].key) continue;
      int64_t place = count < k ? count++ : k - 1;
      for (; place > 0 && keys[i] < best[place - 1].key; --place) best[place] = best[place - 1];
      best[place] = {keys[i], static_cast<uint32_t>(first + i)};
    }
  }
}

/// Calls body(key, position) for the elements of a row in order.
template <class T, class Body>
void for_each_key(const Stored<T>* x, int64_t cols, SortKey<T> flip, const Body& body) {
  SortKey<T> keys[kKeyTile];
  for (int64_t first = 0; first < cols; first += kKeyTile) {
    const int64_t n = std::min(kKeyTile, cols - first);
    for (int64_t i = 0; i < n; ++i) keys[i] = sort_key<T>(x[first + i]) ^ flip;
    for (int64_t i = 0; i < n; ++i) body(keys[i], static_cast<uint32_t>(first + i));
  }
}

/// The pair that is at place k - 1 when a row is sorted. Only the pairs that have its first digit are compared.
template <class T>
Pair<SortKey<T>> last_of_best(const Stored<T>* x, int64_t cols, SortKey<T> flip, int64_t k, Pair<SortKey<T>>* room) {
  constexpr int kBits = std::min(kFirstDigitBits, sort_key_bits<T>), kShift = sort_key_bits<T> - kBits;
  uint32_t counts[1 << kBits] = {};
  for_each_key<T>(x, cols, flip, [&](SortKey<T> key, uint32_t) { ++counts[key >> kShift]; });
  int64_t before = 0;
  SortKey<T> digit = 0;
  while (before + counts[digit] < k) before += counts[digit++];
  int64_t count = 0;
  for_each_key<T>(x, cols, flip, [&](SortKey<T> key, uint32_t position) {
    room[count] = {key, position};
    count += key >> kShift == digit ? 1 : 0;
  });
  std::nth_element(room, room + (k - 1 - before), room + count);
  return room[k - 1 - before];
}

/// pairs[0][0 .. k - 1] = the first k pairs of a row, in order of their positions.
template <class T>
void collect_best(const Stored<T>* x, int64_t cols, SortKey<T> flip, int64_t k, const RowSpace<SortKey<T>>& space) {
  const Pair<SortKey<T>> last = last_of_best<T>(x, cols, flip, k, space.pairs[1]);
  int64_t count = 0;
  for_each_key<T>(x, cols, flip, [&, to = space.pairs[0]](SortKey<T> key, uint32_t position) {
    to[count] = {key, position};
    count += last < to[count] ? 0 : 1;
  });
}

/// The first k of the pairs of a row, in order or, unless `sorted`, in that of their positions.
template <class T>
const Pair<SortKey<T>>* take_best(const Stored<T>* x, int64_t cols, SortKey<T> flip, int64_t k, bool sorted,
                                  const RowSpace<SortKey<T>>& space) {
  using Pairs = Pair<SortKey<T>>;
  Pairs* const best = space.pairs[0];
  const auto by_position = [](const Pairs& a, const Pairs& b) { return a.position < b.position; };
  if (k <= kFew) {
    take_few<T>(x, cols, flip, k, best);
    if (!sorted) std::sort(best, best + k, by_position);
    return best;
  }
  if (cols < kLongRow) {
    make_pairs<T>(x, cols, flip, best);
    if (k < cols) std::nth_element(best, best + k, best + cols);
    if (sorted)
      std::sort(best, best + k);
    else
      std::sort(best, best + k, by_position);
    return best;
  }
  collect_best<T>(x, cols, flip, k, space);
  if (!sorted || std::is_sorted(best, best + k)) return best;
  if (std::is_sorted(best, best + k, [](const Pairs& a, const Pairs& b) { return b < a; })) {
    std::reverse(best, best + k);
    return best;
  }
  return sort_pairs(space, k, sort_key_bits<T>);
}

}  // namespace

int64_t top_k_rows_workspace(Stream stream, int64_t rows, int64_t cols, int64_t, DType dtype) {
  return sort_rows_workspace(stream, rows, cols, dtype);
}

void top_k_rows(Stream, ConstView x, bool largest, bool sorted, void* workspace, View values, View index) {
  const int64_t cols = x.cols(), k = index.cols();
  if (index.numel() == 0) return;
  dispatch_any(x.dtype, [&]<class T>() {
    for_each_row(x.rows(), cols, [&](int64_t row, int64_t place) {
      const RowSpace<SortKey<T>> space(workspace, place, cols);
      const Stored<T>* const from = x.as<Stored<T>>() + row * cols;
      const SortKey<T> flip = sort_key_flip<T>(largest);
      store_pairs<T>(from, take_best<T>(from, cols, flip, k, sorted, space), k, flip, values.as<Stored<T>>() + row * k,
                     index.as<int64_t>() + row * k);
    });
  });
}

int64_t select_rows_workspace(Stream, int64_t rows, int64_t cols, DType dtype) {
  if (rows == 0 || cols == 0) return 0;
  return dispatch_any(dtype, [&]<class T>() {
    return rows_together(rows, cols) * cols * static_cast<int64_t>(sizeof(Pair<SortKey<T>>));
  });
}

void select_rows(Stream, ConstView x, Selection which, int64_t place, void* workspace, View values, View index) {
  const int64_t cols = x.cols();
  if (index.numel() == 0) return;
  dispatch_any(x.dtype, [&]<class T>() {
    using Pairs = Pair<SortKey<T>>;
    for_each_row(x.rows(), cols, [&](int64_t row, int64_t in_chunk) {
      Pairs* pairs = static_cast<Pairs*>(workspace) + in_chunk * cols;
      const Stored<T>* const from = x.as<Stored<T>>() + row * cols;
      make_pairs<T>(from, cols, 0, pairs);
      int64_t numbers = cols;
      if (is_floating(x.dtype) && which != Selection::kPlace)
        for (int64_t i = 0; i < cols; ++i) numbers -= pairs[i].key == sort_key_flip<T>(true) ? 1 : 0;  // NaN's key
      const int64_t at = selected_place(which, place, numbers, cols);
      Pairs tiny[kTinyRow];
      if (cols <= kTinyRow) {
        sort_tiny(pairs, tiny, cols);
        pairs = tiny;
      } else {
        std::nth_element(pairs, pairs + at, pairs + cols);
      }
      store_pairs<T>(from, pairs + at, 1, 0, values.as<Stored<T>>() + row, index.as<int64_t>() + row);
    });
  });
}

void search_sorted(Stream, ConstView sorted, ConstView values, bool right, View index) {
  const int64_t cols = sorted.cols(), k = values.cols(), row_step = sorted.rows() == 1 ? 0 : cols;
  dispatch_any(values.dtype, [&]<class T>() {
    parallel_for(values.numel(), kBlock / 8, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Stored<T>* const row = sorted.as<Stored<T>>() + i / k * row_step;
        const auto key = sort_key<T>(values.as<Stored<T>>()[i]);
        const auto before = [&](Stored<T> x) { return right ? sort_key<T>(x) <= key : sort_key<T>(x) < key; };
        index.as<int64_t>()[i] = std::partition_point(row, row + cols, before) - row;
      }
    });
  });
}

void scatter_rows(Stream stream, ConstView y, ConstView index, View x) {
  fill(stream, 0, x);
  const int64_t k = y.cols(), cols = x.cols();
  dispatch_size(size_of(x.dtype), [&]<class Word>() {
    parallel_for(y.numel(), kBlock, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t at = index.as<int64_t>()[i];
        if (at >= 0 && at < cols) x.as<Word>()[i / k * cols + at] = y.as<Word>()[i];
      }
    });
  });
}

}  // namespace tern::kernels::TERN_CPU
