// The RNN API of the stand-in cuDNN: descriptors, sizes, and calls whose arguments are checked.

#if __has_include(<cudnn.h>)

#include <algorithm>
#include <atomic>
#include <mutex>

#include "tern/tests/emulator/cudnn/recurrent_state.h"
#include "tern/tests/emulator/runtime/numbers.h"
#include "tern/tests/emulator/runtime/queue.h"

namespace tern::standin {
namespace dnn {
namespace {

constexpr size_t kRecurrentWorkspace = 1000;  // of inference; of training twice as much

/// Descriptors of one type. Queued calls find out when theirs is gone.
template <class T>
class LiveDescriptors {
 public:
  static LiveDescriptors& all() {
    static LiveDescriptors instance;
    return instance;
  }
  cudnnStatus_t create(T** to) {
    if (!to) return bad("no place for the descriptor");
    auto made = std::make_shared<T>();
    const std::lock_guard lock(mutex_);
    *to = made.get();
    live_[made.get()] = std::move(made);
    return CUDNN_STATUS_SUCCESS;
  }
  cudnnStatus_t destroy(T* descriptor) {
    const std::lock_guard lock(mutex_);
    return live_.erase(descriptor) == 1 ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
  }
  std::shared_ptr<T> find(const T* descriptor) {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(descriptor);
    return found == live_.end() ? nullptr : found->second;
  }
  int count() {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(live_.size());
  }

 private:
  std::mutex mutex_;
  std::map<const T*, std::shared_ptr<T>> live_;
};
template <class T>
std::shared_ptr<T> find(T* descriptor) {
  return LiveDescriptors<T>::all().find(descriptor);
}

struct LastCall {
  std::mutex mutex;
  RecurrentCall call;
};
LastCall& last() {
  static LastCall instance;
  return instance;
}

bool is_type(cudnnDataType_t type) {
  return type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16;
}

/// Checks of what a call is given; the first that fails is the reason.
class Check {
 public:
  Check& that(bool holds, const std::string& reason) {
    if (!holds && reason_.empty()) reason_ = reason;
    return *this;
  }
  bool ok() const { return reason_.empty(); }
  cudnnStatus_t status() const { return ok() ? CUDNN_STATUS_SUCCESS : bad(reason_); }

 private:
  std::string reason_;
};

/// What all calls have, and the memory that the queued work needs.
struct Arguments {
  cudnnHandle_t handle;
  cudnnRNNDescriptor_t layer;
  const int32_t* device_lengths;
  cudnnRNNDataDescriptor_t x, y;
  cudnnTensorDescriptor_t state, cell;  // cell: of calls that have cells
  size_t weights, workspace, kept;      // bytes
  const void *weights_at, *workspace_at, *kept_at;
  bool training;
};

bool is_state(const cudnnTensorDescriptor_t descriptor, const cudnnRNNStruct& layer, int64_t batch, int64_t width) {
  const auto t = find(descriptor);
  const int b = static_cast<int>(batch), w = static_cast<int>(width);
  return t && t->type == layer.type && t->dims == std::vector{1, b, w} && t->strides == std::vector{b * w, w, 1};
}

bool is_data(const cudnnRNNDataStruct& data, const cudnnRNNStruct& layer, int64_t width) {
  return data.is_set && data.type == layer.type && data.width == width &&
         (data.layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED) == !layer.is_padded;
}

size_t kept_bytes(const cudnnRNNStruct& layer, const cudnnRNNDataStruct& rows) {
  return static_cast<size_t>(kKeptMark + rows.rows() * kept_row(layer)) * sizeof(double);
}

Check check(const Arguments& a, RecurrentJob& job) {
  Check c;
  const auto layer = find(a.layer);
  const auto x = find(a.x), y = find(a.y);
  c.that(a.handle, "no handle").that(layer && layer->is_set, "no layer").that(x && y, "no rows");
  if (!c.ok()) return c;
  int64_t weights = 0;
  placed_weights(*layer, weights);
  c.that(!a.device_lengths, "lengths in device memory, which cuDNN 9 does not take")
      .that(is_data(*x, *layer, layer->input), "the rows of x do not fit the layer")
      .that(is_data(*y, *layer, layer->state), "the rows of y do not fit the layer")
      .that(x->layout == y->layout && x->lengths == y->lengths && x->steps == y->steps, "x and y differ")
      .that(is_state(a.state, *layer, x->batch(), layer->state), "the state's descriptor does not fit")
      .that(layer->mode != CUDNN_LSTM || !a.cell || is_state(a.cell, *layer, x->batch(), layer->hidden),
            "the cell's descriptor does not fit")
      .that(a.weights == static_cast<size_t>(weights) && a.weights_at, "the memory of weights has another size")
      .that(a.workspace >= kRecurrentWorkspace * (a.training ? 2 : 1) && a.workspace_at, "too little workspace")
      .that(!a.training || (a.kept >= kept_bytes(*layer, *x) && a.kept_at), "too little reserve space");
  job.layer = layer;
  job.rows = x;
  job.kept = a.training ? static_cast<double*>(const_cast<void*>(a.kept_at)) : nullptr;
  return c;
}

using RecurrentPass = void (*)(const RecurrentJob&);

/// Queues a pass. The memory of all tensors is checked before it, and the descriptors must still be there.
cudnnStatus_t enqueue_pass(const Arguments& a, const RecurrentJob& job, const char* name, RecurrentPass pass) {
  struct Memory {
    const void* at;
    size_t bytes;
    const char* what;
  };
  const auto size = static_cast<size_t>(standin::bytes_of(cuda_type(job.layer->type)));
  const auto bytes = [&](int64_t rows, int64_t width) { return static_cast<size_t>(rows * width) * size; };
  const int64_t rows = job.rows->rows(), batch = job.rows->batch(), hidden = job.layer->hidden;
  const size_t x = bytes(rows, job.layer->input), y = bytes(rows, job.layer->state);
  const size_t state = bytes(batch, job.layer->state), cell = bytes(batch, hidden);
  const std::vector<Memory> all = {{job.x, x, "x"},
                                   {job.dx, x, "dx"},
                                   {job.y, y, "y"},
                                   {job.dy, y, "dy"},
                                   {job.hx, state, "hx"},
                                   {job.hy, state, "hy"},
                                   {job.dhx, state, "dhx"},
                                   {job.dhy, state, "dhy"},
                                   {job.cx, cell, "cx"},
                                   {job.cy, cell, "cy"},
                                   {job.dcx, cell, "dcx"},
                                   {job.dcy, cell, "dcy"},
                                   {a.weights_at, a.weights, "the weights"},
                                   {a.workspace_at, a.workspace, "the workspace"},
                                   {job.kept, job.kept ? a.kept : 0, "the reserve space"}};
  for (const Memory& m : all)
    if (reinterpret_cast<uintptr_t>(m.at) % 16 != 0) return bad(std::string(m.what) + " is not aligned to 16 bytes");
  const std::weak_ptr<const cudnnRNNStruct> layer = job.layer;
  const std::weak_ptr<const cudnnRNNDataStruct> data = job.rows;
  RecurrentJob queued = job;
  queued.layer = nullptr;
  queued.rows = nullptr;
  const std::string text = name;
  const cudaError_t error = enqueue(a.handle->stream, name, [=] {
    RecurrentJob now = queued;
    now.layer = layer.lock();
    now.rows = data.lock();
    if (!now.layer || !now.rows) throw DeviceError(cudaErrorUnknown, text + ": the descriptors are gone");
    for (const Memory& m : all)
      if (m.at) require_device_memory(m.at, m.bytes, (text + ": " + m.what).c_str());
    std::fill_n(static_cast<unsigned char*>(const_cast<void*>(a.workspace_at)), a.workspace, 0xff);
    pass(now);
  });
  return error == cudaSuccess ? CUDNN_STATUS_SUCCESS : reject(CUDNN_STATUS_EXECUTION_FAILED, cudaGetErrorName(error));
}

}  // namespace
}  // namespace dnn

RecurrentCall last_recurrent_call() {
  const std::lock_guard lock(dnn::last().mutex);
  return dnn::last().call;
}
int live_recurrent_descriptors() {
  return dnn::LiveDescriptors<cudnnRNNStruct>::all().count() + dnn::LiveDescriptors<cudnnRNNDataStruct>::all().count() +
         dnn::LiveDescriptors<cudnnTensorStruct>::all().count();
}

}  // namespace tern::standin

namespace dnn = tern::standin::dnn;

extern "C" {

// ---- descriptors ----

cudnnStatus_t CUDNNWINAPI cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* to) {
  STANDIN_FAULT(cudnnCreateTensorDescriptor);
  return dnn::LiveDescriptors<cudnnTensorStruct>::all().create(to);
}
cudnnStatus_t CUDNNWINAPI cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t descriptor) {
  return dnn::LiveDescriptors<cudnnTensorStruct>::all().destroy(descriptor);
}
cudnnStatus_t CUDNNWINAPI cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t descriptor, cudnnDataType_t type,
                                                     int count, const int dims[], const int strides[]) {
  STANDIN_FAULT(cudnnSetTensorNdDescriptor);
  const auto t = dnn::find(descriptor);
  if (!t || count < 3 || count > CUDNN_DIM_MAX || !dims || !strides) return dnn::bad("not 3 dimensions or more");
  for (int d = 0; d < count; ++d)
    if (dims[d] <= 0 || strides[d] <= 0) return dnn::bad("a dimension or stride is not positive");
  t->type = type;
  t->dims.assign(dims, dims + count);
  t->strides.assign(strides, strides + count);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t CUDNNWINAPI cudnnGetTensorNdDescriptor(const cudnnTensorDescriptor_t descriptor, int most,
                                                     cudnnDataType_t* type, int* count, int dims[], int strides[]) {
  STANDIN_FAULT(cudnnGetTensorNdDescriptor);
  const auto t = dnn::find(descriptor);
  if (!t || !type || !count || !dims || !strides || most < static_cast<int>(t->dims.size()))
    return dnn::bad("no descriptor, or no place for its numbers");
  *type = t->type;
  *count = static_cast<int>(t->dims.size());
  std::copy(t->dims.begin(), t->dims.end(), dims);
  std::copy(t->strides.begin(), t->strides.end(), strides);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CUDNNWINAPI cudnnCreateRNNDescriptor(cudnnRNNDescriptor_t* to) {
  STANDIN_FAULT(cudnnCreateRNNDescriptor);
  return dnn::LiveDescriptors<cudnnRNNStruct>::all().create(to);
}
cudnnStatus_t CUDNNWINAPI cudnnDestroyRNNDescriptor(cudnnRNNDescriptor_t descriptor) {
  return dnn::LiveDescriptors<cudnnRNNStruct>::all().destroy(descriptor);
}
cudnnStatus_t CUDNNWINAPI cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t descriptor, cudnnRNNAlgo_t algorithm,
                                                   cudnnRNNMode_t mode, cudnnRNNBiasMode_t bias,
                                                   cudnnDirectionMode_t direction, cudnnRNNInputMode_t input,
                                                   cudnnDataType_t type, cudnnDataType_t compute, cudnnMathType_t math,
                                                   int32_t input_size, int32_t hidden_size, int32_t state_size,
                                                   int32_t layers, cudnnDropoutDescriptor_t dropout, uint32_t flags) {
  STANDIN_FAULT(cudnnSetRNNDescriptor_v8);
  const auto layer = dnn::find(descriptor);
  if (!layer || layer->is_set) return dnn::bad("no fresh descriptor of a layer");
  if (dnn::refuses() == tern::standin::CudnnRefuses::kRecurrentLayers)
    return dnn::reject(CUDNN_STATUS_NOT_SUPPORTED, "recurrent layers are refused");
  if (input_size < 1 || hidden_size < 1 || state_size < 1 || state_size > hidden_size || layers != 1 || dropout ||
      flags > CUDNN_RNN_PADDED_IO_ENABLED)
    return dnn::bad("sizes of a recurrent layer, or dropout");
  if (state_size != hidden_size && mode != CUDNN_LSTM)
    return dnn::reject(CUDNN_STATUS_NOT_SUPPORTED, "only LSTM has a projection");
  const bool wide = type == CUDNN_DATA_FLOAT;
  if (algorithm != CUDNN_RNN_ALGO_STANDARD || direction != CUDNN_UNIDIRECTIONAL || input != CUDNN_LINEAR_INPUT ||
      (bias != CUDNN_RNN_DOUBLE_BIAS && bias != CUDNN_RNN_NO_BIAS) || !dnn::is_type(type) ||
      compute != CUDNN_DATA_FLOAT || (wide ? math == CUDNN_TENSOR_OP_MATH : math != CUDNN_TENSOR_OP_MATH))
    return dnn::reject(CUDNN_STATUS_NOT_SUPPORTED, "a recurrent layer that the stand-in does not have");
  layer->is_set = true;
  layer->mode = mode;
  layer->has_bias = bias == CUDNN_RNN_DOUBLE_BIAS;
  layer->is_padded = flags == CUDNN_RNN_PADDED_IO_ENABLED;
  layer->type = type;
  layer->math = math;
  layer->input = input_size;
  layer->hidden = hidden_size;
  layer->state = state_size;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CUDNNWINAPI cudnnCreateRNNDataDescriptor(cudnnRNNDataDescriptor_t* to) {
  STANDIN_FAULT(cudnnCreateRNNDataDescriptor);
  return dnn::LiveDescriptors<cudnnRNNDataStruct>::all().create(to);
}
cudnnStatus_t CUDNNWINAPI cudnnDestroyRNNDataDescriptor(cudnnRNNDataDescriptor_t descriptor) {
  return dnn::LiveDescriptors<cudnnRNNDataStruct>::all().destroy(descriptor);
}
cudnnStatus_t CUDNNWINAPI cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t descriptor, cudnnDataType_t type,
                                                    cudnnRNNDataLayout_t layout, int steps, int batch, int width,
                                                    const int lengths[], void*) {
  STANDIN_FAULT(cudnnSetRNNDataDescriptor);
  const auto data = dnn::find(descriptor);
  if (!data || data->is_set || !dnn::is_type(type) || steps < 1 || batch < 1 || width < 1 || !lengths)
    return dnn::bad("no fresh descriptor of rows, or sizes");
  const std::vector<int> given(lengths, lengths + batch);
  if (*std::min_element(given.begin(), given.end()) < 1 || *std::max_element(given.begin(), given.end()) != steps)
    return dnn::bad("lengths are not in 1 to the number of steps");
  if (layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED ? !std::is_sorted(given.rbegin(), given.rend())
                                                       : given.front() != given.back())
    return dnn::bad("lengths ascend, or are not equal where the stand-in has no padding");
  data->is_set = true;
  data->type = type;
  data->layout = layout;
  data->steps = steps;
  data->width = width;
  data->lengths = given;
  return CUDNN_STATUS_SUCCESS;
}

// ---- sizes ----

cudnnStatus_t CUDNNWINAPI cudnnGetRNNTempSpaceSizes(cudnnHandle_t handle, cudnnRNNDescriptor_t descriptor,
                                                    cudnnForwardMode_t mode, cudnnRNNDataDescriptor_t rows,
                                                    size_t* workspace, size_t* kept) {
  STANDIN_FAULT(cudnnGetRNNTempSpaceSizes);
  const auto layer = dnn::find(descriptor);
  const auto data = dnn::find(rows);
  const bool training = mode == CUDNN_FWD_MODE_TRAINING;
  if (!handle || !layer || !layer->is_set || !data || !data->is_set || !workspace || (training && !kept))
    return dnn::bad("sizes of what is not described");
  *workspace = dnn::kRecurrentWorkspace * (training ? 2 : 1);
  if (kept) *kept = training ? dnn::kept_bytes(*layer, *data) : 0;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t CUDNNWINAPI cudnnGetRNNWeightSpaceSize(cudnnHandle_t handle, cudnnRNNDescriptor_t descriptor,
                                                     size_t* bytes) {
  STANDIN_FAULT(cudnnGetRNNWeightSpaceSize);
  const auto layer = dnn::find(descriptor);
  if (!handle || !layer || !layer->is_set || !bytes) return dnn::bad("the size of weights that are not described");
  int64_t found = 0;
  dnn::placed_weights(*layer, found);
  *bytes = static_cast<size_t>(found);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t CUDNNWINAPI cudnnGetRNNWeightParams(cudnnHandle_t handle, cudnnRNNDescriptor_t descriptor,
                                                  int32_t pseudo_layer, size_t bytes, const void* space, int32_t id,
                                                  cudnnTensorDescriptor_t matrix, void** matrix_at,
                                                  cudnnTensorDescriptor_t bias, void** bias_at) {
  STANDIN_FAULT(cudnnGetRNNWeightParams);
  const auto layer = dnn::find(descriptor);
  const auto m = dnn::find(matrix), b = dnn::find(bias);
  if (!handle || !layer || !layer->is_set || pseudo_layer != 0 || !space || !m || !b || !matrix_at || !bias_at)
    return dnn::bad("a place of weights that are not described");
  int64_t expected = 0;
  const std::vector<dnn::PlacedWeight> all = dnn::placed_weights(*layer, expected);
  if (bytes != static_cast<size_t>(expected) || id < 0 || id >= static_cast<int32_t>(all.size()))
    return dnn::bad("the memory of weights has another size, or no such weight");
  const dnn::PlacedWeight& placed = all[static_cast<size_t>(id)];
  char* const base = static_cast<char*>(const_cast<void*>(space));
  const auto fill = [&](cudnnTensorStruct& to, int64_t rows, int64_t columns) {
    const int r = static_cast<int>(rows), c = static_cast<int>(columns);
    to = {layer->type, {1, r, c}, {r * c, c, 1}};
  };
  fill(*m, placed.rows, placed.columns);
  *matrix_at = base + placed.matrix;
  *bias_at = placed.bias < 0 ? nullptr : base + placed.bias;
  fill(*b, placed.bias < 0 ? 0 : placed.rows, 1);
  return CUDNN_STATUS_SUCCESS;
}

// ---- passes ----

cudnnStatus_t CUDNNWINAPI cudnnRNNForward(cudnnHandle_t handle, cudnnRNNDescriptor_t layer, cudnnForwardMode_t mode,
                                          const int32_t lengths[], cudnnRNNDataDescriptor_t x_rows, const void* x,
                                          cudnnRNNDataDescriptor_t y_rows, void* y, cudnnTensorDescriptor_t state,
                                          const void* hx, void* hy, cudnnTensorDescriptor_t cell, const void* cx,
                                          void* cy, size_t weight_bytes, const void* weights, size_t workspace_bytes,
                                          void* workspace, size_t kept_bytes, void* kept) {
  STANDIN_FAULT(cudnnRNNForward);
  const bool training = mode == CUDNN_FWD_MODE_TRAINING;
  const dnn::Arguments a{handle,       layer,           lengths,    x_rows,  y_rows,    state, cell,
                         weight_bytes, workspace_bytes, kept_bytes, weights, workspace, kept,  training};
  dnn::RecurrentJob job;
  auto c = dnn::check(a, job);
  c.that(x && y, "x or y is missing");
  if (!c.ok()) return c.status();
  if (dnn::refuses() == tern::standin::CudnnRefuses::kRecurrentCalls)
    return dnn::reject(CUDNN_STATUS_NOT_SUPPORTED, "recurrent calls are refused");
  job.x = x;
  job.y = y;
  job.hx = hx;
  job.hy = hy;
  if (job.layer->mode == CUDNN_LSTM) job.cx = cx, job.cy = cy;
  job.weights = weights;
  {
    const std::lock_guard lock(dnn::last().mutex);
    dnn::last().call = {job.layer->math, job.rows->layout, training};
  }
  return dnn::enqueue_pass(a, job, "cudnnRNNForward", dnn::recurrent_forward_pass);
}

cudnnStatus_t CUDNNWINAPI cudnnRNNBackwardData_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t layer,
                                                  const int32_t lengths[], cudnnRNNDataDescriptor_t y_rows,
                                                  const void* y, const void* dy, cudnnRNNDataDescriptor_t x_rows,
                                                  void* dx, cudnnTensorDescriptor_t state, const void* hx,
                                                  const void* dhy, void* dhx, cudnnTensorDescriptor_t cell,
                                                  const void* cx, const void* dcy, void* dcx, size_t weight_bytes,
                                                  const void* weights, size_t workspace_bytes, void* workspace,
                                                  size_t kept_bytes, void* kept) {
  STANDIN_FAULT(cudnnRNNBackwardData_v8);
  const dnn::Arguments a{handle,       layer,           lengths,    x_rows,  y_rows,    state, cell,
                         weight_bytes, workspace_bytes, kept_bytes, weights, workspace, kept,  true};
  dnn::RecurrentJob job;
  auto c = dnn::check(a, job);
  c.that(y && dy && dx, "y, dy or dx is missing");
  if (!c.ok()) return c.status();
  job.y = const_cast<void*>(y);
  job.dy = dy;
  job.dx = dx;
  job.hx = hx;
  job.dhy = dhy;
  job.dhx = dhx;
  if (job.layer->mode == CUDNN_LSTM) job.cx = cx, job.dcy = dcy, job.dcx = dcx;
  job.weights = weights;
  return dnn::enqueue_pass(a, job, "cudnnRNNBackwardData_v8", dnn::recurrent_data_pass);
}

cudnnStatus_t CUDNNWINAPI cudnnRNNBackwardWeights_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t layer,
                                                     cudnnWgradMode_t mode, const int32_t lengths[],
                                                     cudnnRNNDataDescriptor_t x_rows, const void* x,
                                                     cudnnTensorDescriptor_t state, const void* hx,
                                                     cudnnRNNDataDescriptor_t y_rows, const void* y,
                                                     size_t weight_bytes, void* dweights, size_t workspace_bytes,
                                                     void* workspace, size_t kept_bytes, void* kept) {
  STANDIN_FAULT(cudnnRNNBackwardWeights_v8);
  const dnn::Arguments a{handle,       layer,           lengths,    x_rows,   y_rows,    state, nullptr,
                         weight_bytes, workspace_bytes, kept_bytes, dweights, workspace, kept,  true};
  dnn::RecurrentJob job;
  auto c = dnn::check(a, job);
  c.that(x && y, "x or y is missing");
  if (!c.ok()) return c.status();
  if (mode != CUDNN_WGRAD_MODE_ADD) return dnn::reject(CUDNN_STATUS_NOT_SUPPORTED, "gradients are added alone");
  job.x = x;
  job.y = const_cast<void*>(y);
  job.hx = hx;
  job.dweights = dweights;
  return dnn::enqueue_pass(a, job, "cudnnRNNBackwardWeights_v8", dnn::recurrent_weights_pass);
}

}  // extern "C"

#endif
