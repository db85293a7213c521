#if __has_include(<cudnn.h>)

#include "tern/kernels/cuda/cudnn/graph.h"

#include <algorithm>

namespace tern::kernels::cuda {
namespace {

constexpr int kSuggestions = 16;
constexpr int64_t kAlignment = 16;
constexpr size_t kMaxPlans = 1024;  // eager training on ragged batches keeps creating new shapes

bool is_refusal(cudnnStatus_t status) { return status / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000; }

/// Reads descriptors that cuDNN fills in; returns their number.
int64_t get_descriptors(cudnnBackendDescriptor_t from, cudnnBackendAttributeName_t attribute, int64_t max_count,
                        cudnnBackendDescriptor_t* filled) {
  int64_t count = 0;
  TERN_CUDNN_CHECK(
      cudnn().BackendGetAttribute(from, attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, max_count, &count, filled));
  return std::min(count, max_count);
}

bool is_within(const CudnnLimits& limits, cudnnBackendDescriptor_t configuration) {
  const CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t filled = engine.get();
  get_descriptors(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, 1, &filled);
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT] = {};
  int64_t count = 0;
  TERN_CUDNN_CHECK(cudnn().BackendGetAttribute(engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                               CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count,
                                               notes));
  return std::none_of(notes, notes + count, [&](cudnnBackendNumericalNote_t note) {
    return note == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC ||
           std::find(limits.excluded.begin(), limits.excluded.end(), note) != limits.excluded.end();
  });
}

}  // namespace

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t made = nullptr;
  TERN_CUDNN_CHECK(cudnn().BackendCreateDescriptor(type, &made));
  handle_.reset(made);
}

void CudnnDescriptor::set_bytes(cudnnBackendAttributeName_t attribute, cudnnBackendAttributeType_t type, int64_t count,
                                const void* values) {
  TERN_CUDNN_CHECK(cudnn().BackendSetAttribute(get(), attribute, type, count, values));
}

cudnnStatus_t CudnnDescriptor::try_finalize() { return cudnn().BackendFinalize(get()); }
void CudnnDescriptor::finalize() { TERN_CUDNN_CHECK(cudnn().BackendFinalize(get())); }

CudnnDescriptor& CudnnGraph::keep(CudnnDescriptor descriptor) {
  descriptors_.push_back(std::make_unique<CudnnDescriptor>(std::move(descriptor)));
  return *descriptors_.back();
}

CudnnGraph::Tensor CudnnGraph::add_tensor(cudnnDataType_t type, const Numbers& dims, const Numbers& strides,
                                          bool inside, bool by_value, cudnnBackendDescriptor_t ragged) {
  CudnnDescriptor& d = keep(CudnnDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR));
  const int64_t id = next_id_++;
  d.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
  d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
  d.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, dims.data(), static_cast<int64_t>(dims.size()));
  d.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides.data(), static_cast<int64_t>(dims.size()));
  d.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, kAlignment);
  d.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, inside);
  d.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, by_value);
  if (ragged) d.set(CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, ragged);
  d.finalize();
  if (!inside) ids_.push_back(id);
  return {d.get(), type, dims, strides, ragged};
}

CudnnGraph::Tensor CudnnGraph::memory(cudnnDataType_t type, const Numbers& dims, const Numbers& strides,
                                      const Tensor* ragged) {
  return add_tensor(type, dims, strides, false, false, ragged ? ragged->descriptor : nullptr);
}
CudnnGraph::Tensor CudnnGraph::scalar(cudnnDataType_t type) {
  return add_tensor(type, {1, 1, 1, 1}, {1, 1, 1, 1}, false, true, nullptr);
}
CudnnGraph::Tensor CudnnGraph::inside(cudnnDataType_t type, const Numbers& d) {
  return add_tensor(type, d, {d[1] * d[2] * d[3], d[2] * d[3], d[3], 1}, true, false, nullptr);
}

void CudnnGraph::add_pointwise(const CudnnDescriptor& mode, std::initializer_list<Tensor> inputs, const Tensor& y) {
  CudnnDescriptor& d = keep(CudnnDescriptor(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR));
  const cudnnBackendAttributeName_t names[] = {
      CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
  d.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, mode.get());
  const cudnnBackendAttributeName_t* name = names;
  for (const Tensor& x : inputs) d.set(*name++, CUDNN_TYPE_BACKEND_DESCRIPTOR, x.descriptor);
  d.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, y.descriptor);
  d.finalize();
  operations_.push_back(d.get());
}

CudnnGraph::Tensor CudnnGraph::pointwise(cudnnPointwiseMode_t mode, std::initializer_list<Tensor> inputs,
                                         cudnnDataType_t result, cudnnDataType_t compute, const Tensor* to) {
  Numbers dims = inputs.begin()->dims;
  for (const Tensor& x : inputs)
    for (size_t i = 0; i < dims.size(); ++i) dims[i] = std::max(dims[i], x.dims[i]);
  const Tensor y = to ? *to : inside(result, dims);
  CudnnDescriptor& d = keep(CudnnDescriptor(CUDNN_BACKEND_POINTWISE_DESCRIPTOR));
  d.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
  d.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, compute);
  if (mode == CUDNN_POINTWISE_RELU_FWD)
    d.set(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, CUDNN_PROPAGATE_NAN);
  d.finalize();
  add_pointwise(d, inputs, y);
  return y;
}

CudnnGraph::Tensor CudnnGraph::index(const Tensor& like, int64_t axis) {
  const Tensor y = inside(CUDNN_DATA_INT32, like.dims);
  CudnnDescriptor& d = keep(CudnnDescriptor(CUDNN_BACKEND_POINTWISE_DESCRIPTOR));
  d.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, CUDNN_POINTWISE_GEN_INDEX);
  d.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_INT32);
  d.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, axis);
  d.finalize();
  add_pointwise(d, {like}, y);
  return y;
}

CudnnGraph::Tensor CudnnGraph::reduce(cudnnReduceTensorOp_t op, const Tensor& x) {
  const Tensor y = inside(CUDNN_DATA_FLOAT, {x.dims[0], x.dims[1], x.dims[2], 1});
  CudnnDescriptor& kind = keep(CudnnDescriptor(CUDNN_BACKEND_REDUCTION_DESCRIPTOR));
  kind.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, op);
  kind.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  kind.finalize();
  CudnnDescriptor& d = keep(CudnnDescriptor(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR));
  d.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, x.descriptor);
  d.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, y.descriptor);
  d.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, kind.get());
  d.finalize();
  operations_.push_back(d.get());
  return y;
}

CudnnGraph::Tensor CudnnGraph::matmul(const Tensor& a, const Tensor& b, const Lengths& lengths, const Tensor* to) {
  const Tensor c = to ? *to : inside(CUDNN_DATA_FLOAT, {a.dims[0], a.dims[1], a.dims[2], b.dims[3]});
  CudnnDescriptor& kind = keep(CudnnDescriptor(CUDNN_BACKEND_MATMUL_DESCRIPTOR));
  kind.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  kind.finalize();
  CudnnDescriptor& d = keep(CudnnDescriptor(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR));
  d.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, a.descriptor);
  d.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, b.descriptor);
  d.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, c.descriptor);
  d.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, kind.get());
  const std::pair<const Tensor*, cudnnBackendAttributeName_t> overrides[] = {
      {lengths.m, CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC},
      {lengths.n, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC},
      {lengths.k, CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC}};
  for (const auto& [length, name] : overrides)
    if (length) d.set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, length->descriptor);
  d.finalize();
  operations_.push_back(d.get());
  return c;
}

CudnnGraph::Tensor CudnnGraph::transpose(const Tensor& x, cudnnDataType_t type) {
  const Tensor y = add_tensor(type, exchanged(x.dims), exchanged(x.strides), true, false, x.ragged);
  CudnnDescriptor& d = keep(CudnnDescriptor(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR));
  d.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, x.descriptor);
  d.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, y.descriptor);
  d.finalize();
  operations_.push_back(d.get());
  return y;
}

CudnnGraph::Tensor CudnnGraph::inside_like(const Tensor& like, cudnnDataType_t type) {
  return add_tensor(type, like.dims, like.strides, true, false, nullptr);
}

void CudnnGraph::convolution(Pass pass, const Window& window, const Tensor& x, const Tensor& w, const Tensor& y) {
  CudnnDescriptor& kind = keep(CudnnDescriptor(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR));
  const auto dims = static_cast<int64_t>(window.stride.size());
  kind.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  kind.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION);
  kind.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, dims);
  kind.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, window.stride.data(), dims);
  kind.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, window.before.data(), dims);
  kind.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, window.behind.data(), dims);
  kind.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, window.dilation.data(), dims);
  kind.finalize();

  struct Names {
    cudnnBackendDescriptorType_t operation;
    cudnnBackendAttributeName_t alpha, beta, kind, x, w, y;
  };
  static constexpr Names kNames[] = {
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY}};
  const Names& names = kNames[static_cast<size_t>(pass)];
  CudnnDescriptor& d = keep(CudnnDescriptor(names.operation));
  d.set(names.alpha, CUDNN_TYPE_FLOAT, 1.0f);
  d.set(names.beta, CUDNN_TYPE_FLOAT, 0.0f);
  d.set(names.kind, CUDNN_TYPE_BACKEND_DESCRIPTOR, kind.get());
  d.set(names.x, CUDNN_TYPE_BACKEND_DESCRIPTOR, x.descriptor);
  d.set(names.w, CUDNN_TYPE_BACKEND_DESCRIPTOR, w.descriptor);
  d.set(names.y, CUDNN_TYPE_BACKEND_DESCRIPTOR, y.descriptor);
  d.finalize();
  operations_.push_back(d.get());
}

std::optional<CudnnPlan> CudnnGraph::plan(cudnnHandle_t handle, const CudnnLimits& limits, int64_t first) {
  CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations_.data(),
            static_cast<int64_t>(operations_.size()));
  CudnnDescriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  cudnnStatus_t status = graph.try_finalize();
  if (status == CUDNN_STATUS_SUCCESS) {
    heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, graph.get());
    heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
    status = heuristic.try_finalize();
  }
  if (is_refusal(status)) return std::nullopt;
  if (status != CUDNN_STATUS_SUCCESS) detail::fail_cudnn(status, "cudnnBackendFinalize of a graph");

  std::vector<CudnnDescriptor> suggestions;
  std::vector<cudnnBackendDescriptor_t> filled;
  for (int i = 0; i < kSuggestions; ++i) {
    suggestions.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    filled.push_back(suggestions.back().get());
  }
  const int64_t count = get_descriptors(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, kSuggestions, filled.data());
  for (int64_t i = first; i < count; ++i) {
    if (!is_within(limits, filled[static_cast<size_t>(i)])) continue;
    CudnnPlan plan{CudnnDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)};
    plan.plan_.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle);
    plan.plan_.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                   filled[static_cast<size_t>(i)]);
    status = plan.plan_.try_finalize();
    if (is_refusal(status)) continue;
    if (status != CUDNN_STATUS_SUCCESS) detail::fail_cudnn(status, "cudnnBackendFinalize of a plan");
    int64_t one = 0, workspace = 0;
    TERN_CUDNN_CHECK(cudnn().BackendGetAttribute(plan.plan_.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                                 CUDNN_TYPE_INT64, 1, &one, &workspace));
    if (workspace > limits.workspace) continue;
    plan.ids_ = ids_;
    plan.suggestion_ = i;
    return plan;
  }
  return std::nullopt;
}

void CudnnPlan::run(cudnnHandle_t handle, const std::vector<void*>& pointers, void* workspace) const {
  TERN_CHECK(pointers.size() == ids_.size(), "cuDNN: the graph has ", ids_.size(), " tensors outside, got ",
             pointers.size(), " pointers");
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  const auto count = static_cast<int64_t>(ids_.size());
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids_.data(), count);
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers.data(), count);
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
  pack.finalize();
  TERN_CUDNN_CHECK(cudnn().BackendExecute(handle, plan_.get(), pack.get()));
}

CudnnDevice& CudnnDevice::of(int index) {
  static std::mutex mutex;
  static auto& devices = *new std::map<int, CudnnDevice>;
  const std::lock_guard lock(mutex);
  return devices.try_emplace(index, index).first->second;
}

std::shared_ptr<const CudnnPlan> CudnnDevice::plan(const std::vector<int64_t>& key, const Build& build) {
  const std::lock_guard lock(mutex_);
  const auto found = plans_.find(key);
  if (found != plans_.end()) return found->second;
  if (plans_.size() >= kMaxPlans) plans_.clear();
  std::optional<CudnnPlan> made = build(handle_);
  return plans_[key] = made ? std::make_shared<const CudnnPlan>(std::move(*made)) : nullptr;
}

void CudnnDevice::run(Stream stream, const CudnnPlan& plan, const std::vector<void*>& pointers, void* workspace) {
  with(stream, [&](cudnnHandle_t handle) { plan.run(handle, pointers, workspace); });
}

}  // namespace tern::kernels::cuda

#endif
