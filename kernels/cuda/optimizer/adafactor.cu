#include "tern/kernels/cuda/optimizer/layerwise_list.h"

namespace tern::kernels::cuda {
namespace {

/// Blocks on a multiprocessor, at least. Without this bound ptxas takes fewer registers than it may and spills.
constexpr int kTogether = 2;

constexpr int kTileWarps = kListThreads / kWarpSize;
constexpr int kTileSteps = static_cast<int>(kLayerTileColumns) / kListThreads;  // columns of a thread
static_assert(LayerTiles::kRowChunk == kListThreads && kTileSteps * kListThreads == kLayerTileColumns);

/// This block's tile of a tensor [..., rows, columns].
struct DeviceTile {
  LayerTiles tiles;
  int64_t matrix, row, column;
  int rows, columns;
  __device__ explicit DeviceTile(const LayerEntry& tensor) : tiles(tensor.size, tensor.rows, tensor.columns) {
    const int64_t index = static_cast<int64_t>(blockIdx.x) - tensor.first_block, of_matrix = tiles.down * tiles.across;
    matrix = index / of_matrix;
    row = index % of_matrix / tiles.across * kLayerTileRows;
    column = index % tiles.across * kLayerTileColumns;
    rows = static_cast<int>(min(kLayerTileRows, tiles.rows - row));
    columns = static_cast<int>(min(kLayerTileColumns, tiles.columns - column));
  }
  __device__ int64_t at(int r, int c) const { return (matrix * tiles.rows + row + r) * tiles.columns + column + c; }
};

/// The sums of the squares of a tile's gradients by rows and by columns, and of its weights.
template <class W, class G, class F>
__device__ void sum_tile(const LayerEntry& tensor, const LayerSums& sums, F factor) {
  TERN_SHARED(F, row_parts, [kLayerTileRows * kTileWarps]);
  const DeviceTile tile(tensor);
  const auto thread = static_cast<int>(threadIdx.x), warp = thread / kWarpSize;
  F column_sums[kTileSteps] = {}, weight_sum = 0;
  for (int r = 0; r < tile.rows; ++r) {
    F row_sum = 0;
#pragma unroll
    for (int k = 0; k < kTileSteps; ++k) {
      const int c = thread + k * kListThreads;
      if (c >= tile.columns) continue;
      const F gradient = factor * load_number<F>(static_cast<const G*>(tensor.gradient) + tile.at(r, c));
      const F weight = load_one_weight<F, W>(tensor, tile.at(r, c));
      row_sum += gradient * gradient;
      column_sums[k] += gradient * gradient;
      weight_sum += weight * weight;
    }
    row_sum = warp_sum(row_sum);
    if (thread % kWarpSize == 0) row_parts[r * kTileWarps + warp] = row_sum;
  }
  block_barrier();
  if (thread < tile.rows) {
    double sum = 0;
    for (int w = 0; w < kTileWarps; ++w) sum += static_cast<double>(row_parts[thread * kTileWarps + w]);
    double* const to =
        sums.sums + tile.tiles.row_sums() + (tile.matrix * tile.tiles.rows + tile.row) * tile.tiles.across;
    store_one(to + thread * tile.tiles.across + tile.column / kLayerTileColumns, sum);
  }
  double* const to = sums.sums + tile.tiles.column_sums() +
                     (tile.matrix * tile.tiles.down + tile.row / kLayerTileRows) * tile.tiles.columns + tile.column;
#pragma unroll
  for (int k = 0; k < kTileSteps; ++k) {
    const int c = thread + k * kListThreads;
    if (c < tile.columns) store_one(to + c, static_cast<double>(column_sums[k]));
  }
  sums.store_weight(block_sum<kListThreads>(static_cast<double>(weight_sum)));
}

/// A block of a tensor without matrices: its averages, and the sums of weights and changes.
template <class W, class G, class F>
__device__ void sum_vector(const LayerEntry& tensor, const LayerSums& sums, const AdafactorRule::Step<F>& step,
                           F factor) {
  F weight_sum = 0, change_sum = 0;
  for_each_element<kListElements<W, G>>(tensor, [&]<int kCount>(int64_t at) {
    F gradient[kCount], weight[kCount], variance[kCount];
    F* const variances = static_cast<F*>(tensor.states[2]) + at;
    load_values(static_cast<const G*>(tensor.gradient) + at, gradient);
    updates::load_weight<W>(tensor, at, weight);
    load_values(variances, variance);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const F scaled = factor * gradient[i];
      variance[i] = step.moved(variance[i], scaled * scaled);
      const F change = step.change(scaled, variance[i]);
      weight_sum += weight[i] * weight[i];
      change_sum += change * change;
    }
    store_values(variances, variance);
  });
  sums.store_weight(block_sum<kListThreads>(static_cast<double>(weight_sum)));
  sums.store_change(block_sum<kListThreads>(static_cast<double>(change_sum)));
}

template <class W, class G>
__global__ void __launch_bounds__(kListThreads, kTogether)
    adafactor_sums_kernel(TERN_GRID_CONSTANT(LayerUpdate<AdafactorRule>) update) {
  using F = ComputeType<W>;
  using Step = LayerStep<AdafactorRule, F>;
  TERN_SHARED(Step, shared);
  if (update.step.is_skipped()) return;
  const LayerEntry& tensor = find_tensor(update.tensors, update.count, static_cast<int>(blockIdx.x));
  if (threadIdx.x == 0) shared = prepare_layer<AdafactorRule, F>(update, tensor.group);
  block_barrier();
  const auto step = shared.step;
  const F factor = shared.factor;
  if (tensor.rows > 0)
    sum_tile<W, G>(tensor, sums_of(update, tensor), factor);
  else
    sum_vector<W, G>(tensor, sums_of(update, tensor), step, factor);
}

/// The averages of 256 rows of a matrix, and their sum; or of 256 columns. Blocks are numbered through the matrices, of
/// each the rows first.
template <class F>
__global__ void __launch_bounds__(kListThreads, kTogether)
    adafactor_averages_kernel(TERN_GRID_CONSTANT(LayerUpdate<AdafactorRule>) update) {
  using Step = LayerStep<AdafactorRule, F>;
  TERN_SHARED(Step, shared);
  if (update.step.is_skipped()) return;
  const LayerEntry& tensor = find_tensor(update.tensors, update.count, static_cast<int>(blockIdx.x));
  if (threadIdx.x == 0) shared = prepare_layer<AdafactorRule, F>(update, tensor.group);
  block_barrier();
  const auto step = shared.step;
  const LayerTiles tiles(tensor.size, tensor.rows, tensor.columns);
  double* const sums = update.workspace + tensor.workspace;
  const int64_t chunks = tiles.row_chunks(), of_matrix = chunks + ceil_div(tiles.columns, kListThreads);
  const int64_t index = static_cast<int64_t>(blockIdx.x) - tensor.first_block, matrix = index / of_matrix;
  const int64_t chunk = index % of_matrix;
  // The sums of this thread's row or column, their distance, and its average.
  const bool is_row = chunk < chunks;
  const int64_t length = is_row ? tiles.rows : tiles.columns, parts = is_row ? tiles.across : tiles.down;
  const int64_t at = (is_row ? chunk : chunk - chunks) * kListThreads + threadIdx.x;
  const double* const from = is_row ? sums + tiles.row_sums() + (matrix * length + at) * parts
                                    : sums + tiles.column_sums() + matrix * parts * length + at;
  F* const average = static_cast<F*>(tensor.states[is_row ? 0 : 1]) + matrix * length + at;
  F moved = 0;
  if (at < length) {
    double sum = 0;
    for (int64_t p = 0; p < parts; ++p) sum += load_one(from + p * (is_row ? 1 : length));
    const auto count = static_cast<double>(is_row ? tiles.columns : tiles.rows);
    moved = step.moved(load_one(average), static_cast<F>(sum / count));
    store_one(average, moved);
  }
  const double total = block_sum<kListThreads>(static_cast<double>(moved));
  if (is_row && threadIdx.x == 0) store_one(sums + tiles.chunk_sums() + matrix * chunks + chunk, total);
}

/// body(element, change) for this thread's elements of a tile.
template <class G, class F, class Body>
__device__ void for_each_change(const LayerEntry& tensor, const LayerSums& sums, const AdafactorRule::Step<F>& step,
                                F factor, const Body& body) {
  TERN_SHARED(F, of_rows, [kLayerTileRows]);  // inverse roots: of the rows' averages over their mean
  const DeviceTile tile(tensor);
  const int64_t chunks = tile.tiles.row_chunks();
  const double total = sum_of(sums.sums + tile.tiles.chunk_sums() + tile.matrix * chunks, chunks, 1);
  const F inverse = 1 / math::max(static_cast<F>(total / static_cast<double>(tile.tiles.rows)), step.smallest);
  const F* const rows = static_cast<const F*>(tensor.states[0]) + tile.matrix * tile.tiles.rows + tile.row;
  const F* const columns = static_cast<const F*>(tensor.states[1]) + tile.matrix * tile.tiles.columns + tile.column;
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread < tile.rows) of_rows[thread] = 1 / math::sqrt(load_one(rows + thread) * inverse);
  F of_columns[kTileSteps];  // and of the columns' averages
#pragma unroll
  for (int k = 0; k < kTileSteps; ++k) {
    const int c = thread + k * kListThreads;
    of_columns[k] = c < tile.columns ? 1 / math::sqrt(load_one(columns + c)) : F(0);
  }
  block_barrier();
  for (int r = 0; r < tile.rows; ++r) {
    const F of_row = of_rows[r];
#pragma unroll
    for (int k = 0; k < kTileSteps; ++k) {
      const int c = thread + k * kListThreads;
      if (c >= tile.columns) continue;
      const F gradient = factor * load_number<F>(static_cast<const G*>(tensor.gradient) + tile.at(r, c));
      body(tile.at(r, c), step.change(gradient, of_row, of_columns[k]));
    }
  }
}

template <class W, class G>
__global__ void __launch_bounds__(kListThreads, kTogether)
    adafactor_changes_kernel(TERN_GRID_CONSTANT(LayerUpdate<AdafactorRule>) update) {
  using F = ComputeType<W>;
  using Step = LayerStep<AdafactorRule, F>;
  TERN_SHARED(Step, shared);
  if (update.step.is_skipped()) return;
  const LayerEntry& tensor = find_tensor(update.tensors, update.count, static_cast<int>(blockIdx.x));
  if (tensor.rows == 0) return;
  if (threadIdx.x == 0) shared = prepare_layer<AdafactorRule, F>(update, tensor.group);
  block_barrier();
  const auto step = shared.step;
  const F factor = shared.factor;
  const LayerSums sums = sums_of(update, tensor);
  F change_sum = 0;
  for_each_change<G>(tensor, sums, step, factor, [&](int64_t, F change) { change_sum += change * change; });
  sums.store_change(block_sum<kListThreads>(static_cast<double>(change_sum)));
}

template <class W, class G>
__global__ void __launch_bounds__(kListThreads, kTogether)
    adafactor_apply_kernel(TERN_GRID_CONSTANT(LayerUpdate<AdafactorRule>) update) {
  using F = ComputeType<W>;
  using Step = LayerStep<AdafactorRule, F>;
  TERN_SHARED(Step, shared);
  if (update.step.is_skipped()) return;
  const LayerEntry& tensor = find_tensor(update.tensors, update.count, static_cast<int>(blockIdx.x));
  if (threadIdx.x == 0) shared = prepare_layer<AdafactorRule, F>(update, tensor.group);
  block_barrier();
  const auto step = shared.step;
  const F factor = shared.factor;
  const LayerSums sums = sums_of(update, tensor);
  const int64_t blocks = LayerTiles(tensor.size, tensor.rows, tensor.columns).count;
  const double weight = sums.weight(blocks), change_sum = sums.change(blocks);
  const F rate = static_cast<F>(shared.rule.rate(shared.count, weight, change_sum, tensor.size));
  if (tensor.rows > 0)
    return for_each_change<G>(tensor, sums, step, factor, [&](int64_t at, F change) {
      const F updated[1] = {load_one_weight<F, W>(tensor, at) * step.keep - rate * change};
      updates::store_weight<W>(tensor, at, updated);
    });
  for_each_element<kListElements<W, G>>(tensor, [&]<int kCount>(int64_t at) {
    F gradient[kCount], kept[kCount], variance[kCount];
    load_values(static_cast<const G*>(tensor.gradient) + at, gradient);
    updates::load_weight<W>(tensor, at, kept);
    load_values(static_cast<const F*>(tensor.states[2]) + at, variance);
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      kept[i] = kept[i] * step.keep - rate * step.change(factor * gradient[i], variance[i]);
    updates::store_weight<W>(tensor, at, kept);
  });
}

std::pair<int64_t, int64_t> adafactor_size(const OptimizerTensor& t) {
  if (t.size == 0) return {0, 0};
  const LayerTiles tiles(t.size, t.rows, t.columns);
  return {tiles.count, tiles.doubles()};
}

/// The update's tensors that are matrices, with the blocks of adafactor_averages_kernel; how many blocks.
int64_t keep_matrices(LayerUpdate<AdafactorRule>& update) {
  int64_t blocks = 0;
  int32_t kept = 0;
  for (int32_t i = 0; i < update.count; ++i) {
    LayerEntry entry = update.tensors[i];
    if (entry.rows == 0) continue;
    const LayerTiles tiles(entry.size, entry.rows, entry.columns);
    entry.first_block = static_cast<int32_t>(blocks);
    blocks += tiles.matrices * (tiles.row_chunks() + ceil_div(tiles.columns, kListThreads));
    update.tensors[kept++] = entry;
  }
  update.count = kept;
  return blocks;
}

}  // namespace

int64_t adafactor_workspace(Stream, const OptimizerTensor* tensors, int64_t count) {
  return layer_workspace(tensors, count, adafactor_size);
}

void update_adafactor(Stream stream, const AdafactorRule* groups, const OptimizerTensor* tensors, int64_t count,
                      const OptimizerStep& step, void* workspace) {
  launch(count_kernel<OptimizerStep>, dim3(1), dim3(1), 0, stream, step);
  run_layers(groups, tensors, count, step, workspace, adafactor_size,
             [&](const LayerUpdate<AdafactorRule>& update, int64_t blocks, DType weight, DType gradient) {
               const dim3 grid(grid_blocks(blocks)), threads(kListThreads);
               LayerUpdate<AdafactorRule> matrices = update;
               const int64_t folds = keep_matrices(matrices);
               with_layer_types(weight, gradient, [&]<class W, class G>() {
                 launch(adafactor_sums_kernel<W, G>, grid, threads, 0, stream, update);
                 if (folds > 0) {
                   launch(adafactor_averages_kernel<ComputeType<W>>, dim3(grid_blocks(folds)), threads, 0, stream,
                          matrices);
                   launch(adafactor_changes_kernel<W, G>, grid, threads, 0, stream, update);
                 }
                 launch(adafactor_apply_kernel<W, G>, grid, threads, 0, stream, update);
               });
             });
}

}  // namespace tern::kernels::cuda
