#pragma once
// Optimizers whose step depends on norms or means of whole parameters, over all parameters in a few passes: LAMB and
// Adafactor. Clipping, the loss scale and skipped steps are those of optimizer.h, as are master copies and
// compensations. Sums are of fixed blocks of a parameter, added in order: a parameter's result depends neither on the
// number of threads nor on the other parameters. Tensors without elements stay as they are.
//
// Elements read + written by a step, for one weight of fp32 (a 16-bit weight with an fp32 copy: the copy, and the
// weight written too):
//   LAMB        weight, gradient, 2 states + 2 states; then weight, 2 states + weight: 7 + 3, 40 bytes; in groups whose
//               trust ratio is always 1: 4 + 3, 28 bytes, as Adam
//   Adafactor   matrix: weight, gradient; gradient; weight, gradient + weight: 5 + 1, 24 bytes, and 1/20 for the sums
//               vector: weight, gradient, variance + variance; weight, gradient, variance + weight: 6 + 2, 32 bytes

#include "tern/kernels/optimizer/optimizer.h"

namespace tern::kernels {

/// The hyper-parameters of a group: optim/lamb.h.
struct LambRule {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-6, weight_decay = 0.01;
  bool always_adapt = false;
  bool maximize = false;

  /// Whether the step is scaled by a trust ratio.
  TERN_HD constexpr bool adapts() const { return weight_decay != 0 || always_adapt; }

  template <class F>
  struct Step {
    F first, beta2, second, unbias1, unbias2, eps, decay, rate;
    /// The step's direction, before the trust ratio.
    TERN_HD F change(F weight, F average, F square) const {
      return average * unbias1 / (math::sqrt(square * unbias2) + eps) + decay * weight;
    }
    TERN_HD void average(F gradient, F& average, F& square) const {
      average += first * (gradient - average);
      square = square * beta2 + second * gradient * gradient;
    }
  };
  /// The numbers of update `count`, from 1.
  template <class F>
  TERN_HD Step<F> prepare(int64_t count) const {
    const auto n = static_cast<double>(count);
    return {.first = static_cast<F>(1 - beta1),
            .beta2 = static_cast<F>(beta2),
            .second = static_cast<F>(1 - beta2),
            .unbias1 = static_cast<F>(1 / (1 - math::pow(beta1, n))),
            .unbias2 = static_cast<F>(1 / (1 - math::pow(beta2, n))),
            .eps = static_cast<F>(eps),
            .decay = static_cast<F>(weight_decay),
            .rate = static_cast<F>(lr)};
  }
  /// |weight| / |change| from the sums of squares; 1 where either is 0.
  TERN_HD static double trust_ratio(double weight, double change) {
    return weight > 0 && change > 0 ? math::sqrt(weight) / math::sqrt(change) : 1.0;
  }
};

/// The hyper-parameters of a group: optim/adafactor.h.
struct AdafactorRule {
  double lr = 1e-2, beta2_decay = -0.8, eps1 = 0, eps2 = 1e-3, d = 1, weight_decay = 0;
  bool maximize = false;

  template <class F>
  struct Step {
    F share;                               // 1 - beta2
    F keep;                                // of the weight
    F smallest, smallest_square, largest;  // largest: 1 / smallest
    /// average + share * (value - average), exact at either end.
    TERN_HD F moved(F average, F value) const {
      return share < F(0.5) ? average + share * (value - average) : value - (1 - share) * (value - average);
    }
    /// The gradient over the root of its mean square.
    TERN_HD F change(F gradient, F mean_square) const {
      return gradient / math::sqrt(math::max(mean_square, smallest_square));
    }
    /// The same where the mean square is a product: of a row's number and a column's, whose inverse roots are given.
    TERN_HD F change(F gradient, F of_row, F of_column) const {
      return gradient * math::min(of_row * of_column, largest);
    }
  };
  template <class F>
  TERN_HD Step<F> prepare(int64_t count) const {
    const double least = eps1 > 0 ? eps1 : sizeof(F) == 8 ? 0x1p-52 : 0x1p-23;
    return {.share = static_cast<F>(math::pow(static_cast<double>(count), beta2_decay)),
            .keep = static_cast<F>(1 - lr * weight_decay),
            .smallest = static_cast<F>(least),
            .smallest_square = static_cast<F>(least * least),
            .largest = static_cast<F>(1 / least)};
  }
  /// What the change is multiplied by, from the sums of squares of `size` weights and changes.
  TERN_HD double rate(int64_t count, double weight, double change, int64_t size) const {
    const auto n = static_cast<double>(size);
    const double relative = math::min(lr, 1 / math::sqrt(static_cast<double>(count)));
    const double length = math::max(math::sqrt(change / n) / d, 1.0);
    return math::max(math::sqrt(weight / n), eps2) * relative / length;
  }
};

/// Elements of a block, and the size of a tile of a matrix, whose sums are added in order.
inline constexpr int64_t kLayerBlock = 16384, kLayerTileRows = 64, kLayerTileColumns = 1024;

/// The matrices of a tensor, cut into tiles; a tensor without rows is cut into blocks instead. In the workspace of
/// update_adafactor a tensor has, as doubles: for each tile two sums (weights, changes); for each row one sum a tile,
/// then for each column; and for each chunk of kRowChunk rows of a matrix their mean squares' sum.
struct LayerTiles {
  static constexpr int64_t kRowChunk = 256;
  int64_t rows = 0, columns = 0, matrices = 0;  // rows == 0: no matrix
  int64_t down = 0, across = 0;                 // tiles of a matrix
  int64_t count = 0;                            // of all tiles
  TERN_HD explicit LayerTiles(int64_t size, int64_t of_rows, int64_t of_columns) {
    if (of_rows == 0) {
      count = (size + kLayerBlock - 1) / kLayerBlock;
      return;
    }
    rows = of_rows;
    columns = of_columns;
    matrices = size / (rows * columns);
    down = (rows + kLayerTileRows - 1) / kLayerTileRows;
    across = (columns + kLayerTileColumns - 1) / kLayerTileColumns;
    count = matrices * down * across;
  }
  TERN_HD int64_t row_chunks() const { return (rows + kRowChunk - 1) / kRowChunk; }
  // Offsets in the tensor's part of the workspace, in doubles.
  TERN_HD int64_t row_sums() const { return 2 * count; }
  TERN_HD int64_t column_sums() const { return row_sums() + matrices * rows * across; }
  TERN_HD int64_t chunk_sums() const { return column_sums() + matrices * columns * down; }
  TERN_HD int64_t doubles() const { return chunk_sums() + matrices * row_chunks(); }
};

/// Bytes of workspace for update_lamb.
TERN_KERNEL(int64_t, lamb_workspace, Stream stream, const OptimizerTensor* tensors, int64_t count);
/// One step of LAMB on all tensors. States: the averages of the gradients and of their squares. groups[t.group] is the
/// rule of tensor t. `workspace` is aligned to 16 bytes.
TERN_KERNEL(void, update_lamb, Stream stream, const LambRule* groups, const OptimizerTensor* tensors, int64_t count,
            const OptimizerStep& step, void* workspace);

/// Bytes of workspace for update_adafactor.
TERN_KERNEL(int64_t, adafactor_workspace, Stream stream, const OptimizerTensor* tensors, int64_t count);
/// One step of Adafactor on all tensors, likewise. States of a tensor [..., rows, columns]: the averages of the
/// squares' means by rows, [..., rows], and by columns, [..., columns]; of other tensors (rows == 0), in the third
/// place, the averages of the squares.
TERN_KERNEL(void, update_adafactor, Stream stream, const AdafactorRule* groups, const OptimizerTensor* tensors,
            int64_t count, const OptimizerStep& step, void* workspace);

}  // namespace tern::kernels
