#include "tern/kernels/optimizer/layerwise.h"

#include "tern/kernels/cpu/optimizer/weights.h"
#include "tern/kernels/parallel.h"
#include "tern/kernels/workspace_parts.h"

namespace tern::kernels::TERN_CPU {
namespace {

constexpr int64_t kLayerAlignment = 16;  // that of a workspace

/// Where every tensor's blocks begin among those of all: body(tensor, block of the tensor) runs for each. begins:
/// memory for a number more than there are tensors.
class BlockLine {
 public:
  template <class Count>
  BlockLine(int64_t* begins, int64_t tensors, const Count& count) : begins_(begins), tensors_(tensors) {
    begins[0] = 0;
    for (int64_t t = 0; t < tensors; ++t) begins[t + 1] = begins[t] + count(t);
  }
  int64_t begin(int64_t tensor) const { return begins_[tensor]; }

  template <class Body>
  void for_each(const Body& body) const {
    parallel_for(begins_[tensors_], 1, [&](int64_t begin, int64_t end) {
      int64_t tensor = std::upper_bound(begins_, begins_ + tensors_ + 1, begin) - begins_ - 1;
      for (int64_t b = begin; b < end; ++b) {
        while (b >= begins_[tensor + 1]) ++tensor;
        body(tensor, b - begins_[tensor]);
      }
    });
  }

 private:
  const int64_t* begins_;
  int64_t tensors_;
};

/// body.operator()<F>() for the type that the tensor's weights are computed in.
template <class Body>
void with_compute_type(const OptimizerTensor& tensor, const Body& body) {
  if (tensor.weight_dtype == DType::kFloat64)
    body.template operator()<double>();
  else
    body.template operator()<float>();
}

/// Tiles of at most kTile elements of [begin, end).
template <class Body>
void for_each_run(int64_t begin, int64_t end, const Body& body) {
  for (; begin < end; begin += kTile) body(begin, std::min(kTile, end - begin));
}

/// A group's rule, and what its gradients are multiplied by.
template <class Rule>
struct GroupStep {
  Rule rule;
  double factor;
};
template <class Rule>
GroupStep<Rule> group_step(const Rule* groups, int32_t group, const OptimizerStep& step) {
  Rule rule = groups[group];
  if (step.lr) rule.lr = step.lr[group];
  const double factor = step.gradient_factor();
  return {rule, rule.maximize ? -factor : factor};
}

struct Square {
  template <class F>
  auto operator()(F x) const {
    return x * x;
  }
};

struct TwoSums {
  double weight, change;
};

/// A block of the first pass of LAMB: the averages, and the sums of squares of weights and changes. Where the ratio is
/// known to be 1, the weights too.
template <class F>
TwoSums lamb_block(const OptimizerTensor& tensor, LambRule::Step<F> step, bool adapts, F factor, int64_t begin,
                   int64_t end) {
  LaneSum<F> weight_sum, change_sum;
  for_each_run(begin, end, [&](int64_t at, int64_t n) {
    alignas(64) F gradients[kTile], tile[kTile], changes[kTile];
    load_gradients(tensor, at, n, factor, gradients);
    F* const averages = static_cast<F*>(tensor.states[0]) + at;
    F* const squares = static_cast<F*>(tensor.states[1]) + at;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) step.average(gradients[i], averages[i], squares[i]);
    if (!adapts) {
      return update_stored<F>(tensor, at, n, [&](F* stored) {
#pragma GCC ivdep
        for (int64_t i = 0; i < n; ++i) stored[i] -= step.rate * step.change(stored[i], averages[i], squares[i]);
      });
    }
    const F* const weights = load_weights(tensor, at, n, tile);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) changes[i] = step.change(weights[i], averages[i], squares[i]);
    weight_sum.add(n, Square(), weights);
    change_sum.add(n, Square(), changes);
  });
  return {static_cast<double>(weight_sum.total()), static_cast<double>(change_sum.total())};
}

/// A block of the second pass.
template <class F>
void lamb_apply(const OptimizerTensor& tensor, LambRule::Step<F> step, F rate, int64_t begin, int64_t end) {
  for_each_run(begin, end, [&](int64_t at, int64_t n) {
    const F* const averages = static_cast<const F*>(tensor.states[0]) + at;
    const F* const squares = static_cast<const F*>(tensor.states[1]) + at;
    update_stored<F>(tensor, at, n, [&](F* weights) {
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) weights[i] -= rate * step.change(weights[i], averages[i], squares[i]);
    });
  });
}

int64_t blocks_of(const OptimizerTensor& tensor) { return (tensor.size + kLayerBlock - 1) / kLayerBlock; }

/// The sums of a tensor's blocks, in order.
TwoSums fold(const TwoSums* sums, int64_t count) {
  TwoSums total{0, 0};
  for (int64_t b = 0; b < count; ++b) {
    total.weight += sums[b].weight;
    total.change += sums[b].change;
  }
  return total;
}

}  // namespace

namespace {

/// Parts of the workspace of LAMB.
struct LambMemory {
  TwoSums* sums;    // of the blocks
  int64_t* begins;  // of the tensors' blocks
  double* ratios;   // of the tensors
  int64_t bytes;

  LambMemory(const OptimizerTensor* tensors, int64_t count, void* workspace) {
    WorkspaceParts parts(workspace, kLayerAlignment);
    int64_t blocks = 0;
    for (int64_t t = 0; t < count; ++t) blocks += blocks_of(tensors[t]);
    sums = parts.take<TwoSums>(blocks);
    begins = parts.take<int64_t>(count + 1);
    ratios = parts.take<double>(count);
    bytes = parts.bytes();
  }
};

}  // namespace

int64_t lamb_workspace(Stream, const OptimizerTensor* tensors, int64_t count) {
  return LambMemory(tensors, count, nullptr).bytes;
}

void update_lamb(Stream, const LambRule* groups, const OptimizerTensor* tensors, int64_t count,
                 const OptimizerStep& step, void* workspace) {
  if (step.is_skipped()) return;
  ++step.count();
  const LambMemory memory(tensors, count, workspace);
  const BlockLine line(memory.begins, count, [&](int64_t t) { return blocks_of(tensors[t]); });
  TwoSums* const sums = memory.sums;
  line.for_each([&](int64_t t, int64_t block) {
    const OptimizerTensor& tensor = tensors[t];
    const auto [rule, factor] = group_step(groups, tensor.group, step);
    const int64_t begin = block * kLayerBlock, end = std::min(begin + kLayerBlock, tensor.size);
    with_compute_type(tensor, [&, &rule = rule, &factor = factor]<class F>() {
      sums[line.begin(t) + block] = lamb_block<F>(tensor, rule.template prepare<F>(step.count()), rule.adapts(),
                                                  static_cast<F>(factor), begin, end);
    });
  });
  for (int64_t t = 0; t < count; ++t) {
    const TwoSums total = fold(sums + line.begin(t), blocks_of(tensors[t]));
    memory.ratios[t] = LambRule::trust_ratio(total.weight, total.change);
  }
  line.for_each([&](int64_t t, int64_t block) {
    const OptimizerTensor& tensor = tensors[t];
    const LambRule rule = group_step(groups, tensor.group, step).rule;
    if (!rule.adapts()) return;
    const int64_t begin = block * kLayerBlock, end = std::min(begin + kLayerBlock, tensor.size);
    with_compute_type(tensor, [&]<class F>() {
      lamb_apply<F>(tensor, rule.prepare<F>(step.count()), static_cast<F>(rule.lr * memory.ratios[t]), begin, end);
    });
  });
}

namespace {

/// A tile of a tensor of update_adafactor, and the tensor's part of the workspace.
struct LayerTile {
  const OptimizerTensor& tensor;
  const LayerTiles& tiles;
  double* workspace;
  int64_t index;                               // of the tile, in the tensor
  int64_t matrix, row, rows, column, columns;  // first row and column, and how many; without matrices none
  int64_t begin, end;                          // without matrices: elements

  LayerTile(const OptimizerTensor& of, const LayerTiles& its, double* memory, int64_t number)
      : tensor(of), tiles(its), workspace(memory), index(number) {
    begin = number * kLayerBlock;
    end = std::min(begin + kLayerBlock, of.size);
    if (tiles.rows == 0) return;
    const int64_t in_matrix = number % (tiles.down * tiles.across);
    matrix = number / (tiles.down * tiles.across);
    row = in_matrix / tiles.across * kLayerTileRows;
    column = in_matrix % tiles.across * kLayerTileColumns;
    rows = std::min(kLayerTileRows, tiles.rows - row);
    columns = std::min(kLayerTileColumns, tiles.columns - column);
  }
  int64_t at(int64_t r) const { return (matrix * tiles.rows + row + r) * tiles.columns + column; }
  double& weight_sum() const { return workspace[2 * index]; }
  double& change_sum() const { return workspace[2 * index + 1]; }
  /// A row's sum in this tile.
  double& row_sum(int64_t r) const {
    return workspace[tiles.row_sums() + (matrix * tiles.rows + row + r) * tiles.across + column / kLayerTileColumns];
  }
  /// The sums of the tile's columns, one after another.
  double* column_sums() const {
    return workspace + tiles.column_sums() + (matrix * tiles.down + row / kLayerTileRows) * tiles.columns + column;
  }
};

/// The first pass over a tile of a matrix: the sums of the squares of gradients by rows and by columns, and of weights.
template <class F>
void adafactor_sums(const LayerTile& tile, F factor) {
  alignas(64) F columns[kLayerTileColumns] = {};
  double weights_total = 0;
  for (int64_t r = 0; r < tile.rows; ++r) {
    LaneSum<F> row_sum, row_weights;
    for_each_run(0, tile.columns, [&](int64_t c, int64_t n) {
      alignas(64) F gradients[kTile], stored[kTile];
      load_gradients(tile.tensor, tile.at(r) + c, n, factor, gradients);
      for (int64_t i = 0; i < n; ++i) gradients[i] *= gradients[i];
      row_sum.add(
          n, [](auto x) { return x; }, gradients);
      add_to(columns + c, gradients, n);
      row_weights.add(n, Square(), load_weights(tile.tensor, tile.at(r) + c, n, stored));
    });
    tile.row_sum(r) = static_cast<double>(row_sum.total());
    weights_total += static_cast<double>(row_weights.total());
  }
  std::copy_n(columns, tile.columns, tile.column_sums());
  tile.weight_sum() = weights_total;
}

/// The same for a block of a tensor without matrices, whose averages move at once: the sums of weights and changes.
template <class F>
void adafactor_vector_sums(const LayerTile& tile, AdafactorRule::Step<F> step, F factor) {
  LaneSum<F> weight_sum, change_sum;
  for_each_run(tile.begin, tile.end, [&](int64_t at, int64_t n) {
    alignas(64) F gradients[kTile], stored[kTile];
    load_gradients(tile.tensor, at, n, factor, gradients);
    weight_sum.add(n, Square(), load_weights(tile.tensor, at, n, stored));
    F* const variance = static_cast<F*>(tile.tensor.states[2]) + at;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
      variance[i] = step.moved(variance[i], gradients[i] * gradients[i]);
      gradients[i] = step.change(gradients[i], variance[i]);
    }
    change_sum.add(n, Square(), gradients);
  });
  tile.weight_sum() = static_cast<double>(weight_sum.total());
  tile.change_sum() = static_cast<double>(change_sum.total());
}

/// Moves the averages of one matrix; the sum of those of its rows goes to the matrix's first chunk.
template <class F>
void adafactor_averages(const OptimizerTensor& tensor, const LayerTiles& tiles, double* workspace, int64_t matrix,
                        AdafactorRule::Step<F> step) {
  F* const rows = static_cast<F*>(tensor.states[0]) + matrix * tiles.rows;
  F* const columns = static_cast<F*>(tensor.states[1]) + matrix * tiles.columns;
  const double* const row_sums = workspace + tiles.row_sums() + matrix * tiles.rows * tiles.across;
  const double* const column_sums = workspace + tiles.column_sums() + matrix * tiles.columns * tiles.down;
  double total = 0;
  for (int64_t r = 0; r < tiles.rows; ++r) {
    double sum = 0;
    for (int64_t a = 0; a < tiles.across; ++a) sum += row_sums[r * tiles.across + a];
    rows[r] = step.moved(rows[r], static_cast<F>(sum / static_cast<double>(tiles.columns)));
    total += static_cast<double>(rows[r]);
  }
  for_each_run(0, tiles.columns, [&](int64_t c, int64_t n) {
    double sums[kTile] = {};
    for (int64_t d = 0; d < tiles.down; ++d)
      for (int64_t i = 0; i < n; ++i) sums[i] += column_sums[d * tiles.columns + c + i];
    for (int64_t i = 0; i < n; ++i)
      columns[c + i] = step.moved(columns[c + i], static_cast<F>(sums[i] / static_cast<double>(tiles.rows)));
  });
  workspace[tiles.chunk_sums() + matrix * tiles.row_chunks()] = total;
}

/// 1 / the mean of a matrix's row averages, at least `smallest`.
template <class F>
F inverse_row_mean(const LayerTile& tile, F smallest) {
  const double total = tile.workspace[tile.tiles.chunk_sums() + tile.matrix * tile.tiles.row_chunks()];
  return 1 / math::max(static_cast<F>(total / static_cast<double>(tile.tiles.rows)), smallest);
}

/// body(first element, n, changes) for every run of a tile of a matrix.
template <class F, class Body>
void for_each_change(const LayerTile& tile, AdafactorRule::Step<F> step, F factor, const Body& body) {
  const F* const rows = static_cast<const F*>(tile.tensor.states[0]) + tile.matrix * tile.tiles.rows + tile.row;
  const F* const columns =
      static_cast<const F*>(tile.tensor.states[1]) + tile.matrix * tile.tiles.columns + tile.column;
  const F inverse = inverse_row_mean(tile, step.smallest);
  alignas(64) F of_columns[kLayerTileColumns];  // inverse roots
  for (int64_t c = 0; c < tile.columns; ++c) of_columns[c] = 1 / math::sqrt(columns[c]);
  for (int64_t r = 0; r < tile.rows; ++r) {
    const F of_row = 1 / math::sqrt(rows[r] * inverse);
    for_each_run(0, tile.columns, [&](int64_t c, int64_t n) {
      alignas(64) F changes[kTile];
      load_gradients(tile.tensor, tile.at(r) + c, n, factor, changes);
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) changes[i] = step.change(changes[i], of_row, of_columns[c + i]);
      body(tile.at(r) + c, n, changes);
    });
  }
}

constexpr int64_t kSumRuns = 32;  // runs of kTile elements that are added in fp32

template <class F>
void adafactor_change_sum(const LayerTile& tile, AdafactorRule::Step<F> step, F factor) {
  double total = 0;
  LaneSum<F> sum;
  int64_t runs = 0;
  for_each_change<F>(tile, step, factor, [&](int64_t, int64_t n, const F* changes) {
    sum.add(n, Square(), changes);
    if (++runs % kSumRuns != 0) return;
    total += static_cast<double>(sum.total());
    sum = {};
  });
  tile.change_sum() = total + static_cast<double>(sum.total());
}

template <class F>
void adafactor_apply(const LayerTile& tile, AdafactorRule::Step<F> step, F factor, F rate) {
  const auto apply = [&](int64_t at, int64_t n, const F* changes) {
    update_stored<F>(tile.tensor, at, n, [&](F* weights) {
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) weights[i] = weights[i] * step.keep - rate * changes[i];
    });
  };
  if (tile.tiles.rows > 0) return for_each_change<F>(tile, step, factor, apply);
  for_each_run(tile.begin, tile.end, [&](int64_t at, int64_t n) {
    alignas(64) F changes[kTile];
    load_gradients(tile.tensor, at, n, factor, changes);
    const F* const variance = static_cast<const F*>(tile.tensor.states[2]) + at;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) changes[i] = step.change(changes[i], variance[i]);
    apply(at, n, changes);
  });
}

LayerTiles tiles_of(const OptimizerTensor& tensor) {
  return tensor.size == 0 ? LayerTiles(0, 0, 0) : LayerTiles(tensor.size, tensor.rows, tensor.columns);
}

/// Parts of the workspace of Adafactor, all but `begins` with an entry for each tensor.
struct AdafactorMemory {
  LayerTiles* tiles;
  double **sums, *rates;
  int64_t* begins[3];  // of the tensors' parts in three lines
  int64_t bytes;

  AdafactorMemory(const OptimizerTensor* tensors, int64_t count, void* workspace) {
    WorkspaceParts parts(workspace, kLayerAlignment);
    tiles = parts.take<LayerTiles>(count);
    sums = parts.take<double*>(count);
    rates = parts.take<double>(count);
    for (int64_t*& line : begins) line = parts.take<int64_t>(count + 1);
    for (int64_t t = 0; t < count; ++t) {
      const LayerTiles of_tensor = tiles_of(tensors[t]);
      double* const memory = parts.take<double>(of_tensor.doubles());
      if (!workspace) continue;
      tiles[t] = of_tensor;
      sums[t] = memory;
    }
    bytes = parts.bytes();
  }
};

/// One step of Adafactor in passes over the tiles of all tensors.
class AdafactorPasses {
 public:
  AdafactorPasses(const AdafactorRule* groups, const OptimizerTensor* tensors, int64_t count, const OptimizerStep& step,
                  void* workspace)
      : groups_(groups), tensors_(tensors), count_(count), step_(step), memory_(tensors, count, workspace) {}

  void run() const {
    const LayerTiles* const tiles = memory_.tiles;
    const BlockLine all(memory_.begins[0], count_, [&](int64_t t) { return tiles[t].count; });
    const BlockLine matrices(memory_.begins[1], count_, [&](int64_t t) { return tiles[t].matrices; });
    const BlockLine in_matrices(memory_.begins[2], count_,
                                [&](int64_t t) { return tiles[t].rows > 0 ? tiles[t].count : 0; });
    for_each_tile(all, [&]<class F>(const LayerTile& tile, const auto& step, F factor, double) {
      if (tile.tiles.rows > 0)
        adafactor_sums<F>(tile, factor);
      else
        adafactor_vector_sums<F>(tile, step, factor);
    });
    matrices.for_each([&](int64_t t, int64_t matrix) {
      const AdafactorRule rule = group_step(groups_, tensors_[t].group, step_).rule;
      with_compute_type(tensors_[t], [&]<class F>() {
        adafactor_averages(tensors_[t], tiles[t], memory_.sums[t], matrix, rule.prepare<F>(step_.count()));
      });
    });
    for_each_tile(in_matrices, [&]<class F>(const LayerTile& tile, const auto& step, F factor, double) {
      adafactor_change_sum<F>(tile, step, factor);
    });
    for (int64_t t = 0; t < count_; ++t) {
      const TwoSums total = fold(reinterpret_cast<const TwoSums*>(memory_.sums[t]), tiles[t].count);
      const AdafactorRule rule = group_step(groups_, tensors_[t].group, step_).rule;
      const int64_t size = tensors_[t].size;
      memory_.rates[t] = size == 0 ? 0 : rule.rate(step_.count(), total.weight, total.change, size);
    }
    for_each_tile(
        all,
        [&]<class F>(const LayerTile& tile, const auto& step, F factor, double rate) {
          adafactor_apply<F>(tile, step, factor, static_cast<F>(rate));
        },
        memory_.rates);
  }

 private:
  /// body.operator()<F>(tile, numbers of the step, factor of the gradients, rate of the tensor).
  template <class Body>
  void for_each_tile(const BlockLine& line, const Body& body, const double* rates = nullptr) const {
    line.for_each([&](int64_t t, int64_t index) {
      const OptimizerTensor& tensor = tensors_[t];
      const auto [rule, factor] = group_step(groups_, tensor.group, step_);
      const LayerTile tile(tensor, memory_.tiles[t], memory_.sums[t], index);
      with_compute_type(tensor, [&, &rule = rule, &factor = factor]<class F>() {
        body.template operator()<F>(tile, rule.template prepare<F>(step_.count()), static_cast<F>(factor),
                                    rates ? rates[t] : 0);
      });
    });
  }

  const AdafactorRule* groups_;
  const OptimizerTensor* tensors_;
  int64_t count_;
  const OptimizerStep& step_;
  const AdafactorMemory memory_;
};

}  // namespace

int64_t adafactor_workspace(Stream, const OptimizerTensor* tensors, int64_t count) {
  return AdafactorMemory(tensors, count, nullptr).bytes;
}

void update_adafactor(Stream, const AdafactorRule* groups, const OptimizerTensor* tensors, int64_t count,
                      const OptimizerStep& step, void* workspace) {
  if (step.is_skipped()) return;
  ++step.count();
  AdafactorPasses(groups, tensors, count, step, workspace).run();
}

}  // namespace tern::kernels::TERN_CPU
