// Handles and descriptors of the stand-in cuDNN.

#if __has_include(<cudnn.h>)

#include <algorithm>
#include <mutex>

#include "tern/tests/emulator/cudnn/state.h"
#include "tern/tests/emulator/runtime/queue.h"
#include "tern/tests/emulator/runtime/standin.h"

namespace tern::standin {
namespace dnn {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<const void*, std::shared_ptr<Descriptor>> descriptors;
  std::string message;
  int64_t workspace = 4096;
  bool first_is_nondeterministic = true;
  CudnnRefuses refuses = CudnnRefuses::kNothing;
  int last_engine = -1, last_operations = 0;
};
Registry& registry() {
  static Registry instance;
  return instance;
}

std::shared_ptr<Descriptor> find(const void* pointer) {
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().descriptors.find(pointer);
  return found == registry().descriptors.end() ? nullptr : found->second;
}

/// A rule for one attribute of a kind of descriptor: its type, its number of elements, and whether it must be set.
struct Rule {
  int attribute;
  cudnnBackendAttributeType_t type;
  int64_t min_count, max_count;
  bool needed;
};

constexpr auto kLink = CUDNN_TYPE_BACKEND_DESCRIPTOR;

const std::map<cudnnBackendDescriptorType_t, std::vector<Rule>>& rules() {
  static const std::map<cudnnBackendDescriptorType_t, std::vector<Rule>> all = {
      {CUDNN_BACKEND_TENSOR_DESCRIPTOR,
       {{CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, 1, true},
        {CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1, true},
        {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, 5, true},
        {CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, 5, true},
        {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, 1, true},
        {CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, 1, false},
        {CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, 1, false},
        {CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, kLink, 1, 1, false}}},
      {CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
       {{CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, 1, true},
        {CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, 1, true},
        {CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, 1, 1, false},
        {CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, 1, false}}},
      {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
       {{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kLink, 1, 1, true},
        {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, kLink, 1, 1, true},
        {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, kLink, 1, 1, false},
        {CUDNN_ATTR_OPERATION_POINTWISE_TDESC, kLink, 1, 1, false},
        {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, kLink, 1, 1, true}}},
      {CUDNN_BACKEND_MATMUL_DESCRIPTOR, {{CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1, true}}},
      {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
       {{CUDNN_ATTR_OPERATION_MATMUL_ADESC, kLink, 1, 1, true},
        {CUDNN_ATTR_OPERATION_MATMUL_BDESC, kLink, 1, 1, true},
        {CUDNN_ATTR_OPERATION_MATMUL_CDESC, kLink, 1, 1, true},
        {CUDNN_ATTR_OPERATION_MATMUL_DESC, kLink, 1, 1, true},
        {CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, kLink, 1, 1, false},
        {CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, kLink, 1, 1, false},
        {CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, kLink, 1, 1, false}}},
      {CUDNN_BACKEND_REDUCTION_DESCRIPTOR,
       {{CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, 1, true},
        {CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1, true}}},
      {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
       {{CUDNN_ATTR_OPERATION_REDUCTION_XDESC, kLink, 1, 1, true},
        {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, kLink, 1, 1, true},
        {CUDNN_ATTR_OPERATION_REDUCTION_DESC, kLink, 1, 1, true}}},
      {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
       {{CUDNN_ATTR_OPERATION_RESHAPE_XDESC, kLink, 1, 1, true},
        {CUDNN_ATTR_OPERATION_RESHAPE_YDESC, kLink, 1, 1, true}}},
      {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR,
       {{CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1, true},
        {CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, 1, true},
        {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, 1, true},
        {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, 3, true},
        {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, 3, true},
        {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, 3, true},
        {CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, 3, true}}},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
       {{CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1, 1, true},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1, 1, true},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, kLink, 1, 1, true},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, kLink, 1, 1, true},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, kLink, 1, 1, true},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, kLink, 1, 1, true}}},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
       {{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_TYPE_FLOAT, 1, 1, true},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_TYPE_FLOAT, 1, 1, true},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, kLink, 1, 1, true},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, kLink, 1, 1, true},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, kLink, 1, 1, true},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, kLink, 1, 1, true}}},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
       {{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_TYPE_FLOAT, 1, 1, true},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, CUDNN_TYPE_FLOAT, 1, 1, true},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, kLink, 1, 1, true},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, kLink, 1, 1, true},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, kLink, 1, 1, true},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, kLink, 1, 1, true}}},
      {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
       {{CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, 1, true},
        {CUDNN_ATTR_OPERATIONGRAPH_OPS, kLink, 1, 100, true}}},
      {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
       {{CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, kLink, 1, 1, true},
        {CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, 1, true}}},
      {CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, {{CUDNN_ATTR_ENGINECFG_ENGINE, kLink, 1, 1, true}}},
      {CUDNN_BACKEND_ENGINE_DESCRIPTOR, {{CUDNN_ATTR_ENGINE_OPERATION_GRAPH, kLink, 1, 1, true}}},
      {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
       {{CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, 1, false},
        {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, kLink, 1, 1, true}}},
      {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
       {{CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 1, 100, true},
        {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 1, 100, true},
        {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, 1, true}}},
  };
  return all;
}

size_t bytes_of(cudnnBackendAttributeType_t type) {
  const bool wide =
      type == CUDNN_TYPE_INT64 || type == CUDNN_TYPE_HANDLE || type == CUDNN_TYPE_VOID_PTR || type == kLink;
  return type == CUDNN_TYPE_BOOLEAN ? sizeof(bool) : wide ? 8 : sizeof(int);  // the others are enumerations
}

const Descriptor* graph_of(const Descriptor* d) {
  if (d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) d = d->link(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  if (d->type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) d = d->link(CUDNN_ATTR_ENGINECFG_ENGINE);
  if (d->type == CUDNN_BACKEND_ENGINE_DESCRIPTOR) d = d->link(CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
  return d->type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR ? d->link(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH) : d;
}

/// What the library says of an engine.
std::vector<cudnnBackendNumericalNote_t> notes_of(const Descriptor& engine) {
  const int bits = convolution_bits(*graph_of(&engine));
  std::vector<cudnnBackendNumericalNote_t> notes;
  if (bits == 0 || bits == 16) notes.push_back(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  if (engine.engine == 0 && (bits > 0 || registry().first_is_nondeterministic))
    notes.push_back(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
  if (bits == 32 && engine.engine == 1) notes.push_back(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
  if (bits == 16 && engine.engine == 1) notes.push_back(CUDNN_NUMERICAL_NOTE_WINOGRAD);
  if (bits > 0 && engine.engine == 2) notes.push_back(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION);
  return notes;
}

/// Fills in `to` as the library would.
void fill(Descriptor& to, int attribute, const std::shared_ptr<Descriptor>& link, int engine) {
  void* const pointer = link.get();
  Descriptor::Value value{kLink, 1, std::vector<char>(sizeof pointer)};
  std::memcpy(value.bytes.data(), &pointer, sizeof pointer);
  to.values[attribute] = value;
  to.uses->push_back(link);
  to.engine = engine;
  to.finalized = true;
}

}  // namespace

cudnnStatus_t reject(cudnnStatus_t status, const std::string& reason) {
  const std::lock_guard lock(registry().mutex);
  registry().message = reason;
  return status;
}
CudnnRefuses refuses() { return registry().refuses; }

cudnnStatus_t set(void* pointer, int attribute, cudnnBackendAttributeType_t type, int64_t count, const void* from) {
  const auto d = find(pointer);
  if (!d) return bad("sets an attribute of what is not a live descriptor");
  if (d->finalized) return bad("sets an attribute of a finalized descriptor");
  const std::vector<Rule>& known = rules().at(d->type);
  const auto rule = std::ranges::find(known, attribute, &Rule::attribute);
  const std::string name = "attribute " + std::to_string(attribute);
  if (rule == known.end()) return bad(name + " does not belong to the descriptor");
  if (rule->type != type) return bad(name + " has another type");
  if (!from || count < rule->min_count || count > rule->max_count) return bad(name + " has another number of elements");
  Descriptor::Value value{type, count, std::vector<char>(static_cast<size_t>(count) * bytes_of(type))};
  std::memcpy(value.bytes.data(), from, value.bytes.size());
  for (int64_t i = 0; type == kLink && i < count; ++i) {
    const auto link = find(static_cast<void* const*>(from)[i]);
    if (!link || !link->finalized) return bad(name + " is not a finalized descriptor");
    d->uses->push_back(link);
  }
  d->values[attribute] = value;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize(void* pointer) {
  const auto d = find(pointer);
  if (!d || d->finalized) return bad("finalizes what is not a live descriptor, or twice");
  for (const Rule& rule : rules().at(d->type))
    if (rule.needed && !d->has(rule.attribute))
      return bad("attribute " + std::to_string(rule.attribute) + " is not set");
  if (d->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR)
    for (const int attribute : {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_ATTR_TENSOR_STRIDES})
      for (const int64_t n : d->list<int64_t>(attribute))
        if (n <= 0) return bad("a dimension or stride is not positive");
  if (d->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR &&
      d->values.at(CUDNN_ATTR_TENSOR_DIMENSIONS).count != d->values.at(CUDNN_ATTR_TENSOR_STRIDES).count)
    return bad("a tensor has another number of strides than of dimensions");
  if (d->type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
    if (const std::string reason = check_graph(*d, registry().refuses); !reason.empty())
      return reject(CUDNN_STATUS_NOT_SUPPORTED, reason);
  if (d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)
    d->engine = d->link(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->engine;
  d->finalized = true;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t get(void* pointer, int attribute, cudnnBackendAttributeType_t type, int64_t max_count, int64_t* count,
                  void* to) {
  const auto d = find(pointer);
  if (!d || !d->finalized || !count || !to) return bad("reads what is not a finalized descriptor");
  if (attribute == CUDNN_ATTR_ENGINEHEUR_RESULTS && type == kLink && d->type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) {
    const bool convolution = convolution_bits(*graph_of(d.get())) > 0;
    *count = std::min<int64_t>(max_count, convolution ? 5 : registry().first_is_nondeterministic ? 2 : 1);
    for (int64_t i = 0; i < *count; ++i) {
      const auto configuration = find(static_cast<void**>(to)[i]);
      if (!configuration || configuration->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR || configuration->finalized)
        return bad("the place for a suggestion is not a fresh configuration");
      auto engine = std::make_shared<Descriptor>();
      engine->type = CUDNN_BACKEND_ENGINE_DESCRIPTOR;
      fill(*engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, find(d->link(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)),
           static_cast<int>(i));
      fill(*configuration, CUDNN_ATTR_ENGINECFG_ENGINE, engine, static_cast<int>(i));
    }
    return CUDNN_STATUS_SUCCESS;
  }
  if (attribute == CUDNN_ATTR_ENGINECFG_ENGINE && type == kLink && d->type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR &&
      max_count == 1) {
    const auto engine = find(*static_cast<void**>(to));
    if (!engine || engine->type != CUDNN_BACKEND_ENGINE_DESCRIPTOR) return bad("the place for the engine is none");
    *engine = *d->link(CUDNN_ATTR_ENGINECFG_ENGINE);
    *count = 1;
    return CUDNN_STATUS_SUCCESS;
  }
  if (attribute == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && type == CUDNN_TYPE_NUMERICAL_NOTE &&
      d->type == CUDNN_BACKEND_ENGINE_DESCRIPTOR && max_count >= CUDNN_NUMERICAL_NOTE_TYPE_COUNT) {
    const std::vector<cudnnBackendNumericalNote_t> notes = notes_of(*d);
    std::ranges::copy(notes, static_cast<cudnnBackendNumericalNote_t*>(to));
    *count = static_cast<int64_t>(notes.size());
    return CUDNN_STATUS_SUCCESS;
  }
  if (attribute == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && type == CUDNN_TYPE_INT64 &&
      d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
    *static_cast<int64_t*>(to) = registry().workspace;
    *count = 1;
    return CUDNN_STATUS_SUCCESS;
  }
  return bad("reads attribute " + std::to_string(attribute) + ", which the stand-in does not return");
}

cudnnStatus_t execute(cudnnHandle_t handle, void* plan_pointer, void* pack_pointer) {
  const auto plan = find(plan_pointer), pack = find(pack_pointer);
  if (!handle || !plan || !pack || !plan->finalized || !pack->finalized ||
      plan->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR || pack->type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
    return bad("executes what is not a finalized plan with a finalized pack");
  const auto ids = pack->list<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto data = pack->list<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  if (ids.size() != data.size()) return bad("the pack has another number of pointers than of ids");
  Pointers given;
  for (size_t i = 0; i < ids.size(); ++i) given[ids[i]] = data[i];
  const Descriptor& graph = *graph_of(plan.get());
  std::vector<int64_t> in_memory, by_value;
  outside(graph, in_memory, by_value);
  if (in_memory.size() + by_value.size() != given.size()) return bad("the pack has other tensors than the graph");
  Pointers pointers;
  Scalars scalars;
  for (const int64_t id : by_value) {
    if (!given[id]) return bad("a number by value is missing");
    scalars[id] = *static_cast<const float*>(given[id]);
  }
  for (const int64_t id : in_memory) {
    pointers[id] = given[id];
    if (!given[id] || reinterpret_cast<uintptr_t>(given[id]) % 16 != 0)
      return bad("a tensor is missing or not aligned");
  }
  void* const workspace = pack->get<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  const auto workspace_bytes = static_cast<size_t>(registry().workspace);
  registry().last_engine = plan->engine;
  registry().last_operations = static_cast<int>(graph.values.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).count);
  const auto work = [plan, &graph, pointers, scalars, workspace, workspace_bytes] {
    require_device_memory(workspace, workspace_bytes, "cudnnBackendExecute: workspace");
    std::memset(workspace, 0xff, workspace_bytes);
    compute(graph, pointers, scalars);
  };
  const cudaError_t error = enqueue(handle->stream, "cudnnBackendExecute", work);
  return error == cudaSuccess ? CUDNN_STATUS_SUCCESS : reject(CUDNN_STATUS_EXECUTION_FAILED, cudaGetErrorName(error));
}

}  // namespace dnn

std::string cudnn_message() {
  const std::lock_guard lock(dnn::registry().mutex);
  return dnn::registry().message;
}
void set_cudnn_engines(int64_t workspace_bytes, bool first_is_nondeterministic) {
  dnn::registry().workspace = workspace_bytes;
  dnn::registry().first_is_nondeterministic = first_is_nondeterministic;
}
void set_cudnn_refuses(CudnnRefuses what) { dnn::registry().refuses = what; }
int last_cudnn_engine() { return dnn::registry().last_engine; }
int last_cudnn_operations() { return dnn::registry().last_operations; }

}  // namespace tern::standin

namespace dnn = tern::standin::dnn;

extern "C" {

size_t CUDNNWINAPI cudnnGetVersion() { return CUDNN_VERSION; }

const char* CUDNNWINAPI cudnnGetErrorString(cudnnStatus_t status) {
  constexpr std::pair<cudnnStatus_t, const char*> kNames[] = {
      {CUDNN_STATUS_SUCCESS, "CUDNN_STATUS_SUCCESS"},
      {CUDNN_STATUS_NOT_INITIALIZED, "CUDNN_STATUS_NOT_INITIALIZED"},
      {CUDNN_STATUS_BAD_PARAM, "CUDNN_STATUS_BAD_PARAM"},
      {CUDNN_STATUS_NOT_SUPPORTED, "CUDNN_STATUS_NOT_SUPPORTED"},
      {CUDNN_STATUS_INTERNAL_ERROR, "CUDNN_STATUS_INTERNAL_ERROR"},
      {CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED, "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"},
      {CUDNN_STATUS_EXECUTION_FAILED, "CUDNN_STATUS_EXECUTION_FAILED"}};
  for (const auto& [value, name] : kNames)
    if (value == status) return name;
  return "CUDNN_STATUS_UNKNOWN";
}

void CUDNNWINAPI cudnnGetLastErrorString(char* message, size_t size) {
  const std::string text = tern::standin::cudnn_message();
  if (size > 0) message[text.copy(message, size - 1)] = 0;
}

cudnnStatus_t CUDNNWINAPI cudnnCreate(cudnnHandle_t* handle) {
  STANDIN_FAULT(cudnnCreate);
  const tern::standin::DeviceConfig config = tern::standin::configuration();
  if (!handle) return dnn::bad("no place for the handle");
  if (config.driver != tern::standin::DriverState::kOk || config.devices == 0)
    return dnn::reject(CUDNN_STATUS_NOT_INITIALIZED, "no driver or no device");
  *handle = new cudnnContext;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CUDNNWINAPI cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  STANDIN_FAULT(cudnnSetStream);
  if (!handle) return dnn::bad("no handle");
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CUDNNWINAPI cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                                       cudnnBackendDescriptor_t* descriptor) {
  STANDIN_FAULT(cudnnBackendCreateDescriptor);
  if (!descriptor) return dnn::bad("no place for the descriptor");
  if (dnn::rules().count(type) == 0) return dnn::reject(CUDNN_STATUS_NOT_SUPPORTED, "a descriptor of another type");
  auto made = std::make_shared<dnn::Descriptor>();
  made->type = type;
  *descriptor = made.get();
  const std::lock_guard lock(dnn::registry().mutex);
  dnn::registry().descriptors[made.get()] = made;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CUDNNWINAPI cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  const std::lock_guard lock(dnn::registry().mutex);
  return dnn::registry().descriptors.erase(descriptor) == 1 ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t CUDNNWINAPI cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                                   cudnnBackendAttributeName_t attribute,
                                                   cudnnBackendAttributeType_t type, int64_t count, const void* from) {
  STANDIN_FAULT(cudnnBackendSetAttribute);
  return dnn::set(descriptor, attribute, type, count, from);
}

cudnnStatus_t CUDNNWINAPI cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
                                                   cudnnBackendAttributeName_t attribute,
                                                   cudnnBackendAttributeType_t type, int64_t max_count, int64_t* count,
                                                   void* to) {
  STANDIN_FAULT(cudnnBackendGetAttribute);
  return dnn::get(descriptor, attribute, type, max_count, count, to);
}

cudnnStatus_t CUDNNWINAPI cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  STANDIN_FAULT(cudnnBackendFinalize);
  return dnn::finalize(descriptor);
}

cudnnStatus_t CUDNNWINAPI cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                              cudnnBackendDescriptor_t pack) {
  STANDIN_FAULT(cudnnBackendExecute);
  return dnn::execute(handle, plan, pack);
}

}  // extern "C"

#endif
