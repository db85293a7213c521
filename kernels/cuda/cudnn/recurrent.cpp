#include "tern/kernels/cuda/cudnn/recurrent.h"

#include <atomic>
#include <cstdlib>
#include <regex>

#include "tern/kernels/base/check.h"
#include "tern/kernels/recurrent/sequence.h"

namespace tern::kernels::cuda {
namespace {

/// True when cuBLAS has buffers of one size, so that a product does not depend on which of them is free.
bool has_one_buffer_size() {
  const char* const text = std::getenv("CUBLAS_WORKSPACE_CONFIG");
  return text && std::regex_match(text, std::regex(":[1-9][0-9]*:[1-9][0-9]*"));
}
std::atomic<bool>& is_on() {
  static std::atomic<bool> instance = has_one_buffer_size();
  return instance;
}

}  // namespace

void set_cudnn_recurrent(bool on) { is_on() = on; }
bool cudnn_recurrent() { return is_on(); }

}  // namespace tern::kernels::cuda

#if __has_include(<cudnn.h>)

#include <cuda_runtime_api.h>

#include <climits>
#include <deque>
#include <map>

#include "tern/kernels/copy.h"
#include "tern/kernels/cuda/cudnn/graph.h"
#include "tern/kernels/cuda/gemm/settings.h"
#include "tern/kernels/cuda/support/check.h"
#include "tern/kernels/cuda/support/timing.h"
#include "tern/kernels/workspace_parts.h"

namespace tern::kernels::cuda {
namespace {

constexpr int64_t kPart = 256;               // alignment of the parts of a workspace
constexpr size_t kMostRecurrentPlans = 512;  // packed batches have other lengths every time

struct RnnFunctions {
  TERN_LIBRARY_FUNCTION(cudnn_library(), cudnn, CreateTensorDescriptor);
  TERN_LIBRARY_FUNCTION(cudnn_library(), cudnn, SetTensorNdDescriptor);
  TERN_LIBRARY_FUNCTION(cudnn_library(), cudnn, GetTensorNdDescriptor);
  TERN_LIBRARY_FUNCTION(cudnn_library(), cudnn, DestroyTensorDescriptor);
  TERN_LIBRARY_FUNCTION(cudnn_library(), cudnn, CreateRNNDescriptor);
  TERN_LIBRARY_FUNCTION(cudnn_library(), cudnn, SetRNNDescriptor_v8);
  TERN_LIBRARY_FUNCTION(cudnn_library(), cudnn, DestroyRNNDescriptor);
  TERN_LIBRARY_FUNCTION(cudnn_library(), cudnn, CreateRNNDataDescriptor);
  TERN_LIBRARY_FUNCTION(cudnn_library(), cudnn, SetRNNDataDescriptor);
  TERN_LIBRARY_FUNCTION(cudnn_library(), cudnn, DestroyRNNDataDescriptor);
  TERN_LIBRARY_FUNCTION(cudnn_library(), cudnn, GetRNNTempSpaceSizes);
  TERN_LIBRARY_FUNCTION(cudnn_library(), cudnn, GetRNNWeightSpaceSize);
  TERN_LIBRARY_FUNCTION(cudnn_library(), cudnn, GetRNNWeightParams);
  TERN_LIBRARY_FUNCTION(cudnn_library(), cudnn, RNNForward);
  TERN_LIBRARY_FUNCTION(cudnn_library(), cudnn, RNNBackwardData_v8);
  TERN_LIBRARY_FUNCTION(cudnn_library(), cudnn, RNNBackwardWeights_v8);
};
const RnnFunctions& rnn() {
  static const RnnFunctions functions{};  // retried after a failure
  return functions;
}

/// Owns a descriptor of any of the three kinds.
struct DestroyDescriptor {
  void operator()(cudnnTensorDescriptor_t d) const { rnn().DestroyTensorDescriptor(d); }
  void operator()(cudnnRNNDescriptor_t d) const { rnn().DestroyRNNDescriptor(d); }
  void operator()(cudnnRNNDataDescriptor_t d) const { rnn().DestroyRNNDataDescriptor(d); }
};
template <class T>
using Owned = std::unique_ptr<T, DestroyDescriptor>;
template <class T>
Owned<T> make_owned(cudnnStatus_t (*create)(T**), const char* name) {
  T* made = nullptr;
  if (const cudnnStatus_t status = create(&made); status != CUDNN_STATUS_SUCCESS) detail::fail_cudnn(status, name);
  return Owned<T>(made);
}

/// The call, or a library of cuDNN's, is one that this cuDNN lacks.
bool is_refused(cudnnStatus_t status) {
  return status / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000 || status == CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED;
}

cudnnDataType_t rnn_type(DType dtype) {
  return dtype == DType::kBFloat16  ? CUDNN_DATA_BFLOAT16
         : dtype == DType::kFloat16 ? CUDNN_DATA_HALF
                                    : CUDNN_DATA_FLOAT;
}
cudnnRNNMode_t rnn_mode(RecurrentKind kind) {
  return kind == RecurrentKind::kLstm   ? CUDNN_LSTM
         : kind == RecurrentKind::kGru  ? CUDNN_GRU
         : kind == RecurrentKind::kTanh ? CUDNN_RNN_TANH
                                        : CUDNN_RNN_RELU;
}

/// cuDNN's descriptions of a layer and of its sequences, and what they need.
struct RnnPlan {
  Owned<cudnnRNNStruct> layer;
  Owned<cudnnRNNDataStruct> x, y;
  Owned<cudnnTensorStruct> state, cell;
  size_t weights = 0, workspace = 0, training_workspace = 0, reserve = 0;  // bytes
  bool refused = false;
  bool is_recorded = false;  // in a CUDA graph, which may be run at any time
};

int as_int(int64_t n) { return static_cast<int>(n); }

int64_t state_of(const RecurrentSequence& s) { return s.state.size(1); }
bool has_bias(const RecurrentSequence& s) { return bool(s.input_bias) || bool(s.state_bias); }

std::vector<int64_t> key_of(const RecurrentSequence& s) {
  std::vector<int64_t> key = {static_cast<int64_t>(s.kind),
                              static_cast<int64_t>(s.rows),
                              static_cast<int64_t>(s.x.dtype),
                              s.x.dtype == DType::kFloat32 && tf32(),
                              s.x.size(1),
                              s.hidden(),
                              state_of(s),
                              bool(s.projection),
                              has_bias(s),
                              s.batch};
  // One length stands for all where they are equal.
  key.insert(key.end(), s.lengths, s.lengths + (s.rows == SequenceRows::kByStep ? s.batch : 1));
  return key;
}

cudnnStatus_t describe_layer(const RnnPlan& plan, const RecurrentSequence& s) {
  const DType dtype = s.x.dtype;
  const cudnnMathType_t math = dtype != DType::kFloat32 ? CUDNN_TENSOR_OP_MATH
                               : tf32()                 ? CUDNN_DEFAULT_MATH
                                                        : CUDNN_FMA_MATH;
  return rnn().SetRNNDescriptor_v8(
      plan.layer.get(), CUDNN_RNN_ALGO_STANDARD, rnn_mode(s.kind),
      has_bias(s) ? CUDNN_RNN_DOUBLE_BIAS : CUDNN_RNN_NO_BIAS, CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT,
      rnn_type(dtype), CUDNN_DATA_FLOAT, math, as_int(s.x.size(1)), as_int(s.hidden()), as_int(state_of(s)), 1, nullptr,
      s.rows == SequenceRows::kByStep ? CUDNN_RNN_PADDED_IO_DISABLED : CUDNN_RNN_PADDED_IO_ENABLED);
}

cudnnStatus_t describe_rows(cudnnRNNDataDescriptor_t to, const RecurrentSequence& s, int64_t width) {
  const std::vector<int> lengths(s.lengths, s.lengths + s.batch);
  const cudnnRNNDataLayout_t layout = s.rows == SequenceRows::kByStep ? CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED
                                      : s.rows == SequenceRows::kStepsFirst
                                          ? CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED
                                          : CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED;
  return rnn().SetRNNDataDescriptor(to, rnn_type(s.x.dtype), layout, lengths[0], as_int(s.batch), as_int(width),
                                    lengths.data(), nullptr);
}

cudnnStatus_t describe_state(cudnnTensorDescriptor_t to, const RecurrentSequence& s, int64_t width) {
  const int dims[] = {1, as_int(s.batch), as_int(width)}, strides[] = {dims[1] * dims[2], dims[2], 1};
  return rnn().SetTensorNdDescriptor(to, rnn_type(s.x.dtype), 3, dims, strides);
}

std::shared_ptr<RnnPlan> make_plan(cudnnHandle_t handle, const RecurrentSequence& s) {
  auto plan = std::make_shared<RnnPlan>();
  const auto accepted = [&](cudnnStatus_t status, const char* what) {
    if (is_refused(status)) plan->refused = true;
    if (status != CUDNN_STATUS_SUCCESS && !plan->refused) detail::fail_cudnn(status, what);
    return !plan->refused;
  };
  // The first call into cuDNN's library of RNNs, which may be missing.
  cudnnRNNDescriptor_t layer = nullptr;
  if (!accepted(rnn().CreateRNNDescriptor(&layer), "cudnnCreateRNNDescriptor")) return plan;
  plan->layer.reset(layer);
  plan->x = make_owned(rnn().CreateRNNDataDescriptor, "cudnnCreateRNNDataDescriptor");
  plan->y = make_owned(rnn().CreateRNNDataDescriptor, "cudnnCreateRNNDataDescriptor");
  plan->state = make_owned(rnn().CreateTensorDescriptor, "cudnnCreateTensorDescriptor");
  plan->cell = make_owned(rnn().CreateTensorDescriptor, "cudnnCreateTensorDescriptor");
  const RnnPlan& p = *plan;
  const bool described =
      accepted(describe_layer(p, s), "cudnnSetRNNDescriptor_v8") &&
      accepted(describe_rows(p.x.get(), s, s.x.size(1)), "cudnnSetRNNDataDescriptor of x") &&
      accepted(describe_rows(p.y.get(), s, state_of(s)), "cudnnSetRNNDataDescriptor of y") &&
      accepted(describe_state(p.state.get(), s, state_of(s)), "cudnnSetTensorNdDescriptor of the state") &&
      accepted(describe_state(p.cell.get(), s, s.hidden()), "cudnnSetTensorNdDescriptor of the cell") &&
      accepted(rnn().GetRNNWeightSpaceSize(handle, p.layer.get(), &plan->weights), "cudnnGetRNNWeightSpaceSize") &&
      accepted(rnn().GetRNNTempSpaceSizes(handle, p.layer.get(), CUDNN_FWD_MODE_INFERENCE, p.x.get(), &plan->workspace,
                                          nullptr),
               "cudnnGetRNNTempSpaceSizes of inference") &&
      accepted(rnn().GetRNNTempSpaceSizes(handle, p.layer.get(), CUDNN_FWD_MODE_TRAINING, p.x.get(),
                                          &plan->training_workspace, &plan->reserve),
               "cudnnGetRNNTempSpaceSizes of training");
  if (!described) plan->refused = true;
  return plan;
}

/// The plans of one device. The oldest are forgotten, but not those in CUDA graphs, which may read what they hold.
class RnnPlans {
 public:
  static RnnPlans& of(int index) {
    static std::mutex mutex;
    static auto& devices = *new std::map<int, RnnPlans>;  // never destroyed, as CudnnDevice
    const std::lock_guard lock(mutex);
    return devices[index];
  }
  std::shared_ptr<const RnnPlan> plan(Stream stream, const RecurrentSequence& s) {
    std::vector<int64_t> key = key_of(s);
    const bool recorded = is_capturing(stream);
    const std::lock_guard lock(mutex_);
    std::shared_ptr<RnnPlan>& found = plans_[key];
    if (!found) {
      try {
        found = CudnnDevice::of(stream.index).with(stream, [&](cudnnHandle_t handle) { return make_plan(handle, s); });
      } catch (...) {
        plans_.erase(key);
        throw;
      }
      order_.push_back(std::move(key));
    }
    found->is_recorded = found->is_recorded || recorded;
    const std::shared_ptr<const RnnPlan> result = found;
    for (; order_.size() > kMostRecurrentPlans; order_.pop_front())
      if (!plans_.at(order_.front())->is_recorded) plans_.erase(order_.front());
    return result;
  }

 private:
  std::mutex mutex_;
  std::map<std::vector<int64_t>, std::shared_ptr<RnnPlan>> plans_;
  std::deque<std::vector<int64_t>> order_;  // of those that may be forgotten
};

/// The parts of a workspace. Sizes are the same without memory.
struct RnnMemory {
  RnnMemory(const RecurrentSequence& s, const RnnPlan& plan, bool training, bool backward, void* memory)
      : parts(memory, kPart) {
    workspace_bytes = training ? plan.training_workspace : plan.workspace;
    weights = parts.take<char>(static_cast<int64_t>(plan.weights));
    workspace = parts.take<char>(static_cast<int64_t>(workspace_bytes));
    if (!backward) return;
    const int64_t size = size_of(s.x.dtype);
    dweights = parts.take<char>(static_cast<int64_t>(plan.weights));
    dx = parts.take<char>(s.x.numel() * size);
    dy = parts.take<char>(s.x.size(0) * state_of(s) * size);
  }
  WorkspaceParts parts;
  char *weights, *workspace, *dweights = nullptr;
  char *dx, *dy;  // of tensors that are absent
  size_t workspace_bytes;
};

void clear(Stream stream, void* at, size_t bytes) {
  TERN_CUDA_CHECK(cudaMemsetAsync(at, 0, bytes, static_cast<cudaStream_t>(stream.handle)));
}

/// Rows [first, first + rows) of a contiguous matrix, or elements of a vector.
template <class AnyView>
AnyView part_of(const AnyView& whole, int64_t first, int64_t rows) {
  AnyView part = whole;
  part.shape[0] = rows;
  part.data = static_cast<decltype(part.data)>(const_cast<char*>(static_cast<const char*>(whole.data)) +
                                               first * whole.strides[0] * size_of(whole.dtype));
  return part;
}

/// A matrix or bias in cuDNN's memory of weights.
View placed(cudnnTensorDescriptor_t description, void* at, DType dtype, const View& like, const char* what) {
  int count = 0, dims[8] = {}, strides[8] = {};
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  TERN_CUDNN_CHECK(rnn().GetTensorNdDescriptor(description, 8, &type, &count, dims, strides));
  int64_t numel = 1;
  for (int d = 0; d < std::min(count, 8); ++d) numel *= dims[d];
  TERN_CHECK(at && type == rnn_type(dtype) && numel == like.numel(), "cuDNN: the ", what, " of a recurrent layer has ",
             at ? numel : 0, " elements in cuDNN's memory, expected ", like.numel());
  View view = like;
  view.data = at;
  view.dtype = dtype;
  return view;
}

/// visit(weights of the caller, the same in cuDNN's memory that begins at `space`) for each gate's part of each weight
/// that is present. Gates are in PyTorch's order in both: cuDNN's matrices 0 to gates - 1 take the input, as many after
/// them the state, and the one behind these is the projection. `Weights` has the members of RecurrentSequence.
template <class Weights, class Visit>
void for_each_weight(cudnnHandle_t handle, const RecurrentSequence& s, const RnnPlan& plan, const Weights& weights,
                     char* space, const Visit& visit) {
  const Owned<cudnnTensorStruct> matrix = make_owned(rnn().CreateTensorDescriptor, "cudnnCreateTensorDescriptor"),
                                 bias = make_owned(rnn().CreateTensorDescriptor, "cudnnCreateTensorDescriptor");
  const int64_t gates = gates_of(s.kind), hidden = s.hidden();
  const auto find = [&](int64_t id, const auto& whole_matrix, const auto& whole_bias, int64_t first, int64_t rows) {
    void *matrix_at = nullptr, *bias_at = nullptr;
    TERN_CUDNN_CHECK(rnn().GetRNNWeightParams(handle, plan.layer.get(), 0, plan.weights, space,
                                              static_cast<int32_t>(id), matrix.get(), &matrix_at, bias.get(),
                                              &bias_at));
    const auto give = [&](const auto& whole, cudnnTensorDescriptor_t description, void* at, const char* what) {
      if (!whole) return;
      const auto part = part_of(whole, first, rows);
      const View like(at, s.x.dtype, part.dims, part.shape, part.strides);
      visit(part, placed(description, at, s.x.dtype, like, what));
    };
    give(whole_matrix, matrix.get(), matrix_at, "matrix");
    give(whole_bias, bias.get(), bias_at, "bias");
  };
  for (int64_t gate = 0; gate < gates; ++gate) {
    find(gate, weights.input, weights.input_bias, gate * hidden, hidden);
    find(gates + gate, weights.state, weights.state_bias, gate * hidden, hidden);
  }
  if (s.projection) find(2 * gates, weights.projection, decltype(weights.projection)(), 0, state_of(s));
}

/// The weights in cuDNN's order; a bias of two that is absent is 0.
void pack_weights(Stream stream, cudnnHandle_t handle, const RecurrentSequence& s, const RnnPlan& plan, char* space) {
  clear(stream, space, plan.weights);
  std::vector<ConstView> from;
  std::vector<View> to;
  for_each_weight(handle, s, plan, s, space, [&](const ConstView& own, const View& packed) {
    from.push_back(own);
    to.push_back(packed);
  });
  copy_many(stream, from.data(), to.data(), static_cast<int64_t>(to.size()));
}

/// Gradients of weights from cuDNN's order, converted to the types that are wanted.
void unpack_gradients(Stream stream, cudnnHandle_t handle, const RecurrentSequence& s, const RnnPlan& plan,
                      const RecurrentSequenceGradients& g, char* space) {
  std::map<DType, std::pair<std::vector<ConstView>, std::vector<View>>> lists;  // copy_many() takes one type of results
  for_each_weight(handle, s, plan, g, space, [&](const View& own, const View& packed) {
    lists[own.dtype].first.push_back(packed);
    lists[own.dtype].second.push_back(own);
  });
  for (const auto& [dtype, list] : lists)
    copy_many(stream, list.first.data(), list.second.data(), static_cast<int64_t>(list.first.size()));
}

bool is_aligned_16(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

/// True when cuDNN may be asked at all.
bool may_take(const RecurrentSequence& s) {
  const DType dtype = s.x.dtype;
  if (!cudnn_recurrent() || (dtype != DType::kFloat32 && !is_low_precision(dtype))) return false;
  // A single step copies the weights for one product with them.
  if (s.batch == 0 || s.lengths[0] < 2 || s.x.size(1) == 0) return false;
  for (const void* data : {s.x.data, s.initial.data, s.initial_cell.data})
    if (!is_aligned_16(data)) return false;
  const int64_t widest = std::max({s.x.size(1), s.width(), state_of(s)});
  return s.x.size(0) <= INT_MAX / widest && cudnn_info().found;
}

}  // namespace

RecurrentSequenceSizes recurrent_sequence_sizes(Stream stream, const RecurrentSequence& s, bool training) {
  RecurrentSequenceSizes sizes;
  if (!may_take(s)) return sizes;
  const auto plan = RnnPlans::of(stream.index).plan(stream, s);
  if (plan->refused) return sizes;
  sizes.taken = true;
  sizes.forward = RnnMemory(s, *plan, training, false, nullptr).parts.bytes();
  if (training) sizes.backward = RnnMemory(s, *plan, true, true, nullptr).parts.bytes();
  if (training) sizes.kept = static_cast<int64_t>(plan->reserve);
  return sizes;
}

bool recurrent_sequence_forward(Stream stream, const RecurrentSequence& s, View output, View last, View last_cell,
                                void* kept, void* workspace) {
  const auto plan = RnnPlans::of(stream.index).plan(stream, s);
  const RnnMemory memory(s, *plan, kept != nullptr, false, workspace);
  return CudnnDevice::of(stream.index).with(stream, [&](cudnnHandle_t handle) {
    pack_weights(stream, handle, s, *plan, memory.weights);
    const cudnnStatus_t status =
        rnn().RNNForward(handle, plan->layer.get(), kept ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE, nullptr,
                         plan->x.get(), s.x.data, plan->y.get(), output.data, plan->state.get(), s.initial.data,
                         last.data, plan->cell.get(), s.initial_cell.data, last_cell.data, plan->weights,
                         memory.weights, memory.workspace_bytes, memory.workspace, kept ? plan->reserve : 0, kept);
    if (is_refused(status)) return false;
    if (status != CUDNN_STATUS_SUCCESS) detail::fail_cudnn(status, "cudnnRNNForward");
    return true;
  });
}

void recurrent_sequence_backward(Stream stream, const RecurrentSequence& s, ConstView output,
                                 const RecurrentSequenceGradients& g, void* kept, void* workspace) {
  const auto plan = RnnPlans::of(stream.index).plan(stream, s);
  const RnnMemory memory(s, *plan, true, true, workspace);
  const void* dy = g.output.data;
  if (!dy) {
    clear(stream, memory.dy, static_cast<size_t>(output.numel() * size_of(output.dtype)));
    dy = memory.dy;
  }
  CudnnDevice::of(stream.index).with(stream, [&](cudnnHandle_t handle) {
    pack_weights(stream, handle, s, *plan, memory.weights);
    TERN_CUDNN_CHECK(rnn().RNNBackwardData_v8(
        handle, plan->layer.get(), nullptr, plan->y.get(), output.data, dy, plan->x.get(), g.x ? g.x.data : memory.dx,
        plan->state.get(), s.initial.data, g.last.data, g.initial.data, plan->cell.get(), s.initial_cell.data,
        g.last_cell.data, g.initial_cell.data, plan->weights, memory.weights, memory.workspace_bytes, memory.workspace,
        plan->reserve, kept));
    if (!g.input && !g.state && !g.input_bias && !g.state_bias && !g.projection) return;
    clear(stream, memory.dweights, plan->weights);  // cuDNN adds to it
    TERN_CUDNN_CHECK(rnn().RNNBackwardWeights_v8(handle, plan->layer.get(), CUDNN_WGRAD_MODE_ADD, nullptr,
                                                 plan->x.get(), s.x.data, plan->state.get(), s.initial.data,
                                                 plan->y.get(), output.data, plan->weights, memory.dweights,
                                                 memory.workspace_bytes, memory.workspace, plan->reserve, kept));
    unpack_gradients(stream, handle, s, *plan, g, memory.dweights);
  });
}

}  // namespace tern::kernels::cuda

#else  // cuDNN's headers are a separate package

namespace tern::kernels::cuda {

RecurrentSequenceSizes recurrent_sequence_sizes(Stream, const RecurrentSequence&, bool) { return {}; }
bool recurrent_sequence_forward(Stream, const RecurrentSequence&, View, View, View, void*, void*) { return false; }
void recurrent_sequence_backward(Stream, const RecurrentSequence&, ConstView, const RecurrentSequenceGradients&, void*,
                                 void*) {
  fail("recurrent: this build had no headers of cuDNN");
}

}  // namespace tern::kernels::cuda

#endif
