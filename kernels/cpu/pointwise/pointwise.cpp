// The driver of element-wise ops: cuts the output into tiles, gives the op contiguous arrays of its compute type (the
// operands' own memory where it already is that, staging copies elsewhere) and stores the result.

#include "tern/kernels/pointwise/pointwise.h"

#include "tern/kernels/cpu/pointwise/halves.h"
#include "tern/kernels/cpu/pointwise/loops.h"
#include "tern/kernels/cpu/simd/tile.h"
#include "tern/kernels/cpu/simd/vector.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

constexpr int kMaxInputs = 6;
constexpr int kOutput = kMaxInputs;    // the output's place among the operands
constexpr int64_t kStagedTile = 1024;  // elements; the staging buffers stay in the first-level cache
constexpr int64_t kDirectTile = 8192;
constexpr int64_t kNarrow = kStagedTile / 4;  // rows of fewer elements are computed several at a time
constexpr int64_t kSpread = 512;              // elements of a tile where an operand is one value per row
constexpr int64_t kCrossedRows = 16;          // of a tile where an operand is transposed
constexpr int64_t kCrossedColumns = kStagedTile / kCrossedRows;
constexpr int64_t kBlock = 32768;  // elements per parallel block

struct Operand {
  const void* data = nullptr;  // null: absent, never read
  DType dtype = DType::kFloat32;
  bool direct = false;    // used in place, without a staging copy
  bool constant = false;  // one value: staged once per block
  bool repeated = false;  // all rows are the same: staged once per block, for tiles of several rows
  bool spread = false;    // a row is one value: staged once per row, for tiles within a row
  bool grouped = false;   // neighbouring rows are the same: staged once per group, for tiles of several rows
};

/// buffer[r * columns + c] = values[r].
template <class F>
void repeat_each(const F* __restrict values, int64_t rows, int64_t columns, F* __restrict buffer) {
  constexpr int64_t kWidth = kVectorBytes / sizeof(F);
  int64_t r = 0;
  // What a row writes beyond its end is replaced by the next ones.
  for (; (r * columns + columns + kWidth) <= rows * columns; ++r)
    for (int64_t c = 0; c < columns; c += kWidth) std::fill_n(buffer + r * columns + c, kWidth, values[r]);
  for (; r < rows; ++r) std::fill_n(buffer + r * columns, columns, values[r]);
}

/// The loop of an op with a number in place of one input (AddScalar, MulScalar), if there is one. A difference
/// subtracts its last operand only.
template <class F>
struct NumberLoop {
  TileFunction<F> function = nullptr;
  bool subtracts = false;
};

template <class F>
class Driver {
 public:
  Driver(TileFunction<F> function, const void* op, const ConstView* inputs, int count, View y,
         const NumberLoop<F>& by_number)
      : function_(function), op_(op), count_(count), y_(y.data), by_number_(by_number) {
    const int64_t zeros[kMaxDims] = {};
    const int64_t* strides[kOutput + 1];
    // The output comes first: its strides decide the order of the dimensions.
    strides[0] = y.strides;
    for (int k = 0; k < kMaxInputs; ++k) strides[k + 1] = k < count && inputs[k] ? inputs[k].strides : zeros;
    layout_ = make_layout(y.dims, y.shape, strides);
    total_rows_ = layout_.numel() / layout_.inner();
    for (int k = 0; k <= count; ++k) linear_[k] = is_linear(k);
    for (int k = 0; k <= count; ++k) crossed_ |= layout_.inner() >= kNarrow && is_transposed(k);
    for (int k = 0; k < count; ++k) operands_[k] = describe(inputs[k].data, inputs[k].dtype, k + 1);
    operands_[kOutput] = describe(y.data, y.dtype, 0);
    find_numbers();
    choose_tiles();
  }

  void run() const {
    const int64_t tiles = (total_rows_ + rows_ - 1) / rows_ * chunks_;
    const int64_t grain = std::max<int64_t>(1, kBlock / (rows_ * columns_));
    parallel_for(tiles, grain, [this](int64_t begin, int64_t end) { run_tiles(begin, end); });
  }

 private:
  Operand describe(const void* data, DType dtype, int k) const {
    Operand operand{data, dtype, false, true};
    const int64_t stride = layout_.inner_stride(k);
    const bool row_contiguous = stride == 1 || layout_.inner() == 1;
    const bool wide = layout_.inner() >= kNarrow && !crossed_;  // then a tile is within one row
    operand.direct = dtype == dtype_of<F>() && !crossed_ && (linear_[k] || (wide && row_contiguous));
    for (int d = 0; d < layout_.dims; ++d) operand.constant &= layout_.strides[k][d] == 0;
    if (operand.constant && layout_.numel() > 1) operand.direct = false;
    operand.repeated = !operand.constant && layout_.inner() < kNarrow && layout_.dims > 1;
    for (int d = 0; d + 1 < layout_.dims; ++d) operand.repeated &= layout_.strides[k][d] == 0;
    operand.grouped = !operand.direct && !operand.constant && !operand.repeated && !crossed_ &&
                      layout_.inner() < kNarrow && layout_.dims > 2 && layout_.strides[k][layout_.dims - 2] == 0;
    operand.spread = !operand.constant && wide && stride == 0;
    return operand;
  }

  /// Finds the operand that is a number for each row of the other one, if the op has a loop for that.
  void find_numbers() {
    int others = 0;
    for (int k = 0; k < count_; ++k) {
      if (!operands_[k].data) continue;
      if (operands_[k].spread && numbers_ < 0)
        numbers_ = k;
      else if (operands_[k].direct && others++ == 0)
        rest_ = k;
      else
        others = 2;
    }
    if (!by_number_.function || !operands_[kOutput].direct || others != 1 || (by_number_.subtracts && numbers_ == 0))
      numbers_ = -1;
  }

  /// A tile is rows_ whole rows (narrow rows), columns_ elements of one row, or both (a transposed operand).
  void choose_tiles() {
    bool all_direct = operands_[kOutput].direct, any_spread = false;
    for (int k = 0; k < count_; ++k) {
      all_direct &= operands_[k].direct || !operands_[k].data;
      any_spread |= operands_[k].spread;
    }
    const int64_t inner = layout_.inner();
    columns_ = inner;
    if (crossed_) {
      rows_ = kCrossedRows;
      columns_ = kCrossedColumns;
    } else if (inner < kNarrow) {
      rows_ = kStagedTile / inner;
    } else {
      columns_ = std::min(inner, any_spread && numbers_ < 0    ? kSpread
                                 : all_direct || numbers_ >= 0 ? kDirectTile
                                                               : kStagedTile);
    }
    chunks_ = (inner + columns_ - 1) / columns_;
  }

  struct Tile {
    int64_t row, rows, column, columns;
    int64_t size() const { return rows * columns; }
  };
  Tile tile_from(int64_t row, int64_t column) const {
    return {row, std::min(rows_, total_rows_ - row), column, std::min(columns_, layout_.inner() - column)};
  }
  Tile tile_at(int64_t index) const { return tile_from(index / chunks_ * rows_, index % chunks_ * columns_); }
  Tile tile_after(const Tile& tile) const {
    const int64_t column = tile.column + columns_;
    return column < layout_.inner() ? tile_from(tile.row, column) : tile_from(tile.row + rows_, 0);
  }

  /// Of tiles within rows that are combined with a number each.
  void run_numbers(int64_t begin, int64_t end) const {
    const Operand& numbers = operands_[numbers_];
    Tile tile = tile_at(begin);
    for (int64_t index = begin; index < end; ++index, tile = tile_after(tile)) {
      F number;
      load_tile(numbers.dtype, numbers.data, row_offset(numbers_ + 1, tile.row), 0, 1, &number);
      const double value = convert<F, double>(number);
      const MulScalar op{by_number_.subtracts ? -value : value};  // laid out as AddScalar is
      const F* const in = static_cast<const F*>(operands_[rest_].data) + offset(rest_ + 1, tile);
      by_number_.function(&op, &in, static_cast<F*>(y_) + offset(0, tile), tile.size());
    }
  }

  void run_tiles(int64_t begin, int64_t end) const {
    if (numbers_ >= 0) return run_numbers(begin, end);
    alignas(64) Word<F> words[kMaxInputs + 1][kStagedTile];  // the constructors of 16-bit elements would fill it with 0
    F* staging[kMaxInputs + 1];
    for (int k = 0; k <= kMaxInputs; ++k) staging[k] = reinterpret_cast<F*>(words[k]);
    const F* in[kMaxInputs] = {};
    for (int k = 0; k < count_; ++k) {
      const Operand& operand = operands_[k];
      if (!operand.data || operand.direct) continue;
      in[k] = staging[k];
      if (operand.constant)
        load_tile(operand.dtype, operand.data, 0, 0, kStagedTile, staging[k]);
      else if (operand.repeated)
        load(operand, k + 1, {0, rows_, 0, columns_}, staging[k]);
    }
    int64_t spread_row = -1;  // the row of which the values are staged
    int64_t groups[kMaxInputs];
    std::fill_n(groups, kMaxInputs, -1);  // the group of rows that is staged
    Tile tile = tile_at(begin);
    for (int64_t index = begin; index < end; ++index, tile = tile_after(tile)) {
      for (int k = 0; k < count_; ++k) {
        const Operand& operand = operands_[k];
        if (!operand.data) continue;
        if (operand.direct)
          in[k] = static_cast<const F*>(operand.data) + offset(k + 1, tile);
        else if (operand.spread && tile.row != spread_row)
          load(operand, k + 1, {tile.row, 1, 0, columns_}, staging[k]);
        else if (operand.grouped)
          load_group(operand, k + 1, tile, groups[k], staging[k]);
        else if (!operand.spread && !operand.constant && !operand.repeated)
          load(operand, k + 1, tile, staging[k]);
      }
      spread_row = tile.row;
      if (operands_[kOutput].direct) {
        function_(op_, in, static_cast<F*>(y_) + offset(0, tile), tile.size());
      } else {
        function_(op_, in, staging[kOutput], tile.size());
        store(tile, staging[kOutput]);
      }
    }
  }

  /// Loads the tile unless all of its rows are of the group that is staged: the index of rows that differ in the last
  /// dimension but one alone, or -1.
  void load_group(const Operand& operand, int k, const Tile& tile, int64_t& staged, F* buffer) const {
    const int64_t size = layout_.shape[layout_.dims - 2];
    const int64_t group = tile.row / size, last = (tile.row + tile.rows - 1) / size;
    if (group == last && group == staged) return;
    load(operand, k, tile, buffer);
    staged = group == last ? group : -1;
  }
  /// True when the operand's elements are contiguous in iteration order, also where another's prevent that dimensions
  /// are merged.
  bool is_linear(int k) const {
    int64_t expected = 1;
    for (int d = layout_.dims - 1; d >= 0; expected *= layout_.shape[d--])
      if (layout_.shape[d] != 1 && layout_.strides[k][d] != expected) return false;
    return true;
  }
  /// True when neighbours in memory are elements of different rows.
  bool is_transposed(int k) const {
    const int d = layout_.dims - 2;
    return d >= 0 && layout_.shape[d] >= kCrossedRows && layout_.strides[k][d] == 1 &&
           layout_.inner_stride(k) >= kCrossedRows;
  }
  /// The offset of a row's first element. Divisions would take as long as many elements.
  int64_t row_offset(int k, int64_t row) const {
    return layout_.dims == 2 ? row * layout_.strides[k][0] : layout_.row_offset(k, row);
  }
  int64_t offset(int k, const Tile& tile) const {
    if (linear_[k]) return tile.row * layout_.inner() + tile.column;
    return row_offset(k, tile.row) + tile.column * layout_.inner_stride(k);
  }
  /// True when the tile's elements are equally far apart in memory.
  bool is_one_run(int k, const Tile& tile) const {
    return tile.rows == 1 || (tile.columns == layout_.inner() && linear_[k]);
  }

  void load(const Operand& operand, int k, const Tile& tile, F* buffer) const {
    const int64_t step = layout_.inner_stride(k);
    if (is_one_run(k, tile)) return load_tile(operand.dtype, operand.data, offset(k, tile), step, tile.size(), buffer);
    const int64_t row_step = layout_.strides[k][layout_.dims - 2];
    if (step == 0 && layout_.dims == 2) {
      alignas(64) Word<F> words[kStagedTile];
      F* const values = reinterpret_cast<F*>(words);
      load_tile(operand.dtype, operand.data, tile.row * row_step, row_step, tile.rows, values);
      return repeat_each(values, tile.rows, tile.columns, buffer);
    }
    const int64_t size = layout_.shape[layout_.dims - 2];
    const bool by_columns = is_transposed(k) && tile.row % size + tile.rows <= size;
    dispatch_any(operand.dtype, [&]<class T>() {
      const Stored<T>* const from = static_cast<const Stored<T>*>(operand.data) + tile.column * step;
      if (by_columns) {
        const Stored<T>* const first = from + row_offset(k, tile.row);
        for (int64_t c = 0; c < tile.columns; ++c)
          convert_strided<T, F>(first + c * step, 1, buffer + c, tile.columns, tile.rows);
        return;
      }
      for (int64_t r = 0; r < tile.rows; ++r)
        convert_strided<T, F>(from + row_offset(k, tile.row + r), step, buffer + r * tile.columns, 1, tile.columns);
    });
  }

  void store(const Tile& tile, const F* buffer) const {
    const DType dtype = operands_[kOutput].dtype;
    const int64_t step = layout_.inner_stride(0);
    if (is_one_run(0, tile)) return store_tile(dtype, y_, offset(0, tile), step, tile.size(), buffer);
    dispatch_any(dtype, [&]<class T>() {
      Stored<T>* const to = static_cast<Stored<T>*>(y_) + tile.column * step;
      for (int64_t r = 0; r < tile.rows; ++r)
        convert_strided<F, T>(buffer + r * tile.columns, 1, to + row_offset(0, tile.row + r), step, tile.columns);
    });
  }

  TileFunction<F> function_;
  const void* op_;
  int count_;
  void* y_;
  NumberLoop<F> by_number_;
  int numbers_ = -1, rest_ = 0;  // the operands that run_numbers() combines
  Operand operands_[kMaxInputs + 1];
  Layout<kMaxInputs + 1> layout_;
  bool linear_[kMaxInputs + 1];  // is_linear() of each
  int64_t total_rows_;           // in the layout
  bool crossed_ = false;         // an operand is transposed: a tile is a part of several rows
  int64_t rows_ = 1, columns_ = 1, chunks_ = 1;
};

/// find(index): the forward loop of that op. Products by an input's derivative are products too.
template <class F, class Find>
NumberLoop<F> number_loop(const PointwiseCall& call, const Find& find) {
  static_assert(sizeof(AddScalar) == sizeof(double) && sizeof(MulScalar) == sizeof(double));
  if (call.builtin < 0 || call.pass.kind == PointwisePass::kSecond || std::is_same_v<F, int64_t>) return {};
  if (call.builtin == index_of<Mul>()) return {find(index_of<MulScalar>())};
  if (call.pass.kind != PointwisePass::kForward) return {};
  if (call.builtin == index_of<Add>()) return {find(index_of<AddScalar>())};
  return {call.builtin == index_of<Sub>() ? find(index_of<AddScalar>()) : nullptr, true};
}

template <class F>
void run(const PointwiseCall& call, TileFunction<F> custom, const ConstView* inputs, int count, View y) {
  const TileFunction<F> function = call.builtin >= 0 ? builtin_loop<F>(call.builtin, call.pass) : custom;
  const auto find = [](int builtin) { return builtin_loop<F>(builtin, {}); };
  Driver<F>(function, call.op, inputs, count, y, number_loop<F>(call, find)).run();
}

/// The 16-bit type whose loops can compute the call: that of all operands but masks. float32 if there is none.
DType half_type(const PointwiseCall& call, const ConstView* inputs, int count, const View& y) {
  DType common = y.dtype;
  for (int k = 0; k < count && common == DType::kBool; ++k) common = inputs[k].dtype;
  const auto fits = [&](DType dtype) { return dtype == common || dtype == DType::kBool; };
  bool all_fit = call.builtin >= 0 && call.pass.kind == PointwisePass::kForward && is_low_precision(common);
  for (int k = 0; k < count; ++k) all_fit &= fits(inputs[k].dtype);
  return all_fit ? common : DType::kFloat32;
}

/// False where the op has no loop for T.
template <class T>
bool run_halves(const PointwiseCall& call, const ConstView* inputs, int count, View y) {
  const TileFunction<T> function = half_loop<T>(call.builtin);
  if (function) Driver<T>(function, call.op, inputs, count, y, number_loop<T>(call, half_loop<T>)).run();
  return function != nullptr;
}

void run_floats(const PointwiseCall& call, const ConstView* inputs, int count, View y) {
  const DType half = half_type(call, inputs, count, y);
  if (half == DType::kBFloat16 && run_halves<BFloat16>(call, inputs, count, y)) return;
  if (half == DType::kFloat16 && run_halves<Float16>(call, inputs, count, y)) return;
  run<float>(call, call.custom.f32, inputs, count, y);
}

}  // namespace

void pointwise(Stream, const PointwiseCall& call, const ConstView* inputs, int count, View y) {
  if (y.numel() == 0) return;
  switch (call.compute) {
    case DType::kFloat64:
      return run<double>(call, call.custom.f64, inputs, count, y);
    case DType::kInt64:
      return run<int64_t>(call, call.custom.i64, inputs, count, y);
    default:
      return run_floats(call, inputs, count, y);
  }
}

}  // namespace tern::kernels::TERN_CPU
