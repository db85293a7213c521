// Handles and descriptors of the stand-in cuBLASLt.

#include <memory>
#include <mutex>
#include <utility>

#include "tern/tests/emulator/cublaslt/state.h"
#include "tern/tests/emulator/runtime/standin.h"

namespace tern::standin {
namespace lt {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<const void*, std::unique_ptr<Object>> objects;
  std::string message;
};
Registry& registry() {
  static Registry instance;
  return instance;
}

template <class Pointer>
cublasStatus_t create(Pointer* result, std::unique_ptr<Object> object) {
  if (!result) return reject(CUBLAS_STATUS_INVALID_VALUE, "no place for the new object");
  *result = reinterpret_cast<Pointer>(object.get());
  const std::lock_guard lock(registry().mutex);
  registry().objects[object.get()] = std::move(object);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t destroy(const void* pointer, Kind kind) {
  if (!find(pointer, kind))
    return reject(CUBLAS_STATUS_INVALID_VALUE, "destroys what is not a live object of its kind");
  const std::lock_guard lock(registry().mutex);
  registry().objects.erase(pointer);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t set_attribute(void* pointer, Kind kind, int attribute, const void* from, size_t bytes) {
  auto* object = const_cast<Object*>(find(pointer, kind));
  if (!object) return reject(CUBLAS_STATUS_INVALID_VALUE, "sets an attribute of what is not a live object");
  const std::string name = "attribute " + std::to_string(attribute);
  const auto found = object->attributes.find(attribute);
  if (found == object->attributes.end()) return reject(CUBLAS_STATUS_INVALID_VALUE, name + " does not exist");
  if (!from || bytes != found->second.bytes)
    return reject(CUBLAS_STATUS_INVALID_VALUE,
                  name + " has " + std::to_string(found->second.bytes) + " bytes, not " + std::to_string(bytes));
  std::memcpy(found->second.data, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

const Object* find(const void* pointer, Kind kind) {
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().objects.find(pointer);
  return found == registry().objects.end() || found->second->kind != kind ? nullptr : found->second.get();
}

cublasStatus_t reject(cublasStatus_t status, const std::string& reason) {
  const std::lock_guard lock(registry().mutex);
  registry().message = reason;
  return status;
}

}  // namespace lt

std::string cublaslt_message() {
  const std::lock_guard lock(lt::registry().mutex);
  return lt::registry().message;
}

size_t live_cublaslt_objects() {
  const std::lock_guard lock(lt::registry().mutex);
  return lt::registry().objects.size();
}

}  // namespace tern::standin

using tern::standin::lt::Kind;
using tern::standin::lt::Object;
namespace lt = tern::standin::lt;

extern "C" {

size_t CUBLASWINAPI cublasLtGetVersion() { return CUBLAS_VERSION; }

const char* CUBLASWINAPI cublasLtGetStatusName(cublasStatus_t status) {
  constexpr std::pair<cublasStatus_t, const char*> kNames[] = {
      {CUBLAS_STATUS_SUCCESS, "CUBLAS_STATUS_SUCCESS"},
      {CUBLAS_STATUS_NOT_INITIALIZED, "CUBLAS_STATUS_NOT_INITIALIZED"},
      {CUBLAS_STATUS_ALLOC_FAILED, "CUBLAS_STATUS_ALLOC_FAILED"},
      {CUBLAS_STATUS_INVALID_VALUE, "CUBLAS_STATUS_INVALID_VALUE"},
      {CUBLAS_STATUS_ARCH_MISMATCH, "CUBLAS_STATUS_ARCH_MISMATCH"},
      {CUBLAS_STATUS_MAPPING_ERROR, "CUBLAS_STATUS_MAPPING_ERROR"},
      {CUBLAS_STATUS_EXECUTION_FAILED, "CUBLAS_STATUS_EXECUTION_FAILED"},
      {CUBLAS_STATUS_INTERNAL_ERROR, "CUBLAS_STATUS_INTERNAL_ERROR"},
      {CUBLAS_STATUS_NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED"},
      {CUBLAS_STATUS_LICENSE_ERROR, "CUBLAS_STATUS_LICENSE_ERROR"}};
  for (const auto& [value, name] : kNames)
    if (value == status) return name;
  return "CUBLAS_STATUS_UNKNOWN";
}

cublasStatus_t CUBLASWINAPI cublasLtCreate(cublasLtHandle_t* handle) {
  STANDIN_FAULT(cublasLtCreate);
  const tern::standin::DeviceConfig config = tern::standin::configuration();
  if (config.driver != tern::standin::DriverState::kOk || config.devices == 0)
    return lt::reject(CUBLAS_STATUS_NOT_INITIALIZED, "no driver or no device");
  auto object = std::make_unique<Object>(Kind::kHandle);
  object->device = tern::standin::current_device();
  return lt::create(handle, std::move(object));
}
cublasStatus_t CUBLASWINAPI cublasLtDestroy(cublasLtHandle_t handle) {
  STANDIN_FAULT(cublasLtDestroy);
  return lt::destroy(handle, Kind::kHandle);
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* result, cublasComputeType_t compute,
                                                     cudaDataType_t scale) {
  STANDIN_FAULT(cublasLtMatmulDescCreate);
  auto object = std::make_unique<Object>(Kind::kOperation);
  for (const int a : {CUBLASLT_MATMUL_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSB}) object->define(a, int32_t{0});
  for (const int a : {CUBLASLT_MATMUL_DESC_BIAS_POINTER, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE})
    object->define(a, int64_t{0});
  object->define(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, static_cast<int32_t>(compute));
  object->define(CUBLASLT_MATMUL_DESC_SCALE_TYPE, static_cast<int32_t>(scale));
  object->define(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<uint32_t>(CUBLASLT_EPILOGUE_DEFAULT));
  object->define(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, int32_t{-1});
  return lt::create(result, std::move(object));
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t pointer) {
  STANDIN_FAULT(cublasLtMatmulDescDestroy);
  return lt::destroy(pointer, Kind::kOperation);
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t pointer,
                                                           cublasLtMatmulDescAttributes_t attribute, const void* from,
                                                           size_t bytes) {
  STANDIN_FAULT(cublasLtMatmulDescSetAttribute);
  return lt::set_attribute(pointer, Kind::kOperation, attribute, from, bytes);
}

cublasStatus_t CUBLASWINAPI cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* result, cudaDataType type, uint64_t rows,
                                                       uint64_t cols, int64_t ld) {
  STANDIN_FAULT(cublasLtMatrixLayoutCreate);
  auto object = std::make_unique<Object>(Kind::kLayout);
  object->define(CUBLASLT_MATRIX_LAYOUT_TYPE, static_cast<uint32_t>(type));
  object->define(CUBLASLT_MATRIX_LAYOUT_ROWS, rows);
  object->define(CUBLASLT_MATRIX_LAYOUT_COLS, cols);
  object->define(CUBLASLT_MATRIX_LAYOUT_LD, ld);
  object->define(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, int32_t{1});
  object->define(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, int64_t{0});
  return lt::create(result, std::move(object));
}
cublasStatus_t CUBLASWINAPI cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t pointer) {
  STANDIN_FAULT(cublasLtMatrixLayoutDestroy);
  return lt::destroy(pointer, Kind::kLayout);
}
cublasStatus_t CUBLASWINAPI cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t pointer,
                                                             cublasLtMatrixLayoutAttribute_t attribute,
                                                             const void* from, size_t bytes) {
  STANDIN_FAULT(cublasLtMatrixLayoutSetAttribute);
  return lt::set_attribute(pointer, Kind::kLayout, attribute, from, bytes);
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* result) {
  STANDIN_FAULT(cublasLtMatmulPreferenceCreate);
  auto object = std::make_unique<Object>(Kind::kPreference);
  object->define(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{0});
  object->define(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_MASK));
  for (const int a : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    object->define(a, uint32_t{256});
  return lt::create(result, std::move(object));
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t pointer) {
  STANDIN_FAULT(cublasLtMatmulPreferenceDestroy);
  return lt::destroy(pointer, Kind::kPreference);
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t pointer,
                                                                 cublasLtMatmulPreferenceAttributes_t attribute,
                                                                 const void* from, size_t bytes) {
  STANDIN_FAULT(cublasLtMatmulPreferenceSetAttribute);
  return lt::set_attribute(pointer, Kind::kPreference, attribute, from, bytes);
}

}  // extern "C"
