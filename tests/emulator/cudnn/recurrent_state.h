#pragma once
// The descriptors of the stand-in cuDNN's recurrent layers, and the passes over their sequences.

#include "tern/tests/emulator/cudnn/state.h"

struct cudnnTensorStruct {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::vector<int> dims, strides;  // empty until they are set
};

struct cudnnRNNStruct {
  bool is_set = false;
  cudnnRNNMode_t mode = CUDNN_LSTM;
  bool has_bias = false, is_padded = false;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
  int64_t input = 0, hidden = 0, state = 0;

  int64_t gates() const { return mode == CUDNN_LSTM ? 4 : mode == CUDNN_GRU ? 3 : 1; }
  bool projects() const { return state != hidden; }
  int64_t matrices() const { return 2 * gates() + projects(); }
};

struct cudnnRNNDataStruct {
  bool is_set = false;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  cudnnRNNDataLayout_t layout = CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED;
  int64_t steps = 0, width = 0;
  std::vector<int> lengths;

  int64_t batch() const { return static_cast<int64_t>(lengths.size()); }
  int64_t rows() const;
  int64_t row(int64_t sequence, int64_t step) const;
};

namespace tern::standin::dnn {

/// A matrix and its bias in the memory of weights, in bytes from its begin; -1: there is none.
struct PlacedWeight {
  int64_t rows, columns, matrix, bias;
};
/// In the order of cuDNN's numbers. As nothing says how cuDNN orders them in memory, the last one comes first, and
/// there are gaps.
std::vector<PlacedWeight> placed_weights(const cudnnRNNStruct& layer, int64_t& bytes);

/// What forward of training keeps, in doubles: a mark, and for each row the gates, two vectors of `hidden`, one of
/// `state`.
inline constexpr int64_t kKeptMark = 8;
inline int64_t kept_row(const cudnnRNNStruct& l) { return (l.gates() + 2) * l.hidden + l.state; }

/// The pointers of one call; those that the pass does not have are null.
struct RecurrentJob {
  std::shared_ptr<const cudnnRNNStruct> layer;
  std::shared_ptr<const cudnnRNNDataStruct> rows;  // of x
  const void *x = nullptr, *hx = nullptr, *cx = nullptr, *weights = nullptr;
  void *y = nullptr, *hy = nullptr, *cy = nullptr;  // y: also what the backward passes read
  const void *dy = nullptr, *dhy = nullptr, *dcy = nullptr;
  void *dx = nullptr, *dhx = nullptr, *dcx = nullptr, *dweights = nullptr;
  double* kept = nullptr;
};
void recurrent_forward_pass(const RecurrentJob& job);
void recurrent_data_pass(const RecurrentJob& job);
void recurrent_weights_pass(const RecurrentJob& job);

}  // namespace tern::standin::dnn
