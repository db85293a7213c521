// The stand-in cuBLASLt's checks of a product, its heuristic, and the call.

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "tern/tests/emulator/cublaslt/state.h"

namespace tern::standin {
namespace lt {
namespace {

constexpr uint64_t kMagic = 0x7465726e6c74ull;  // first word of a valid algorithm
constexpr uint64_t kHugeWorkspace = uint64_t{64} << 20;
constexpr int64_t kVector = 16;  // bytes

std::atomic<uint64_t> last_algorithm = 0, calls = 0;
std::atomic<int> last_epilogue = 0, last_compute = 0;
std::array<std::atomic<int>, 8> delays = {};

cublasStatus_t invalid(const std::string& reason) { return reject(CUBLAS_STATUS_INVALID_VALUE, reason); }
cublasStatus_t unsupported(const std::string& reason) { return reject(CUBLAS_STATUS_NOT_SUPPORTED, reason); }

cublasStatus_t read_layout(const Object* object, const char* name, Matrix& matrix) {
  if (!object) return invalid(std::string("the layout of ") + name + " is not a live layout");
  matrix.type = static_cast<cudaDataType_t>(object->get<uint32_t>(CUBLASLT_MATRIX_LAYOUT_TYPE));
  matrix.rows = object->get<int64_t>(CUBLASLT_MATRIX_LAYOUT_ROWS);
  matrix.cols = object->get<int64_t>(CUBLASLT_MATRIX_LAYOUT_COLS);
  matrix.ld = object->get<int64_t>(CUBLASLT_MATRIX_LAYOUT_LD);
  matrix.batch = object->get<int32_t>(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
  matrix.batch_stride = object->get<int64_t>(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
  if (matrix.rows < 1 || matrix.cols < 1 || matrix.batch < 1) return invalid(std::string(name) + " is empty");
  if (matrix.rows > INT32_MAX || matrix.cols > INT32_MAX) return unsupported("more than 2^31 rows or columns");
  if (matrix.ld < matrix.rows)
    return invalid("the leading dimension of " + std::string(name) + " is " + std::to_string(matrix.ld) +
                   ", expected at least " + std::to_string(matrix.rows));
  return CUBLAS_STATUS_SUCCESS;
}

/// The table of supported types in NVIDIA's documentation of cublasLtMatmul, restricted to Tern's types.
cublasStatus_t check_types(const Product& p) {
  const auto is = [&](cudaDataType_t scale, cudaDataType_t inputs, cudaDataType_t result) {
    return p.scale == scale && p.a.type == inputs && p.b.type == inputs && p.c.type == result && p.d.type == result;
  };
  const bool full = p.compute == CUBLAS_COMPUTE_32F, wide = p.compute == CUBLAS_COMPUTE_64F;
  if ((full || p.compute == CUBLAS_COMPUTE_32F_FAST_TF32) && is(CUDA_R_32F, CUDA_R_32F, CUDA_R_32F))
    return CUBLAS_STATUS_SUCCESS;
  for (const cudaDataType_t half : {CUDA_R_16BF, CUDA_R_16F})
    if (full && (is(CUDA_R_32F, half, half) || is(CUDA_R_32F, half, CUDA_R_32F))) return CUBLAS_STATUS_SUCCESS;
  if (wide && is(CUDA_R_64F, CUDA_R_64F, CUDA_R_64F)) return CUBLAS_STATUS_SUCCESS;
  return unsupported("this combination of compute, scale and matrix types");
}

cublasStatus_t check_shapes(const Product& p) {
  const int64_t inner_b = p.transpose_b ? p.b.cols : p.b.rows, cols_b = p.transpose_b ? p.b.rows : p.b.cols;
  if ((p.transpose_a ? p.a.cols : p.a.rows) != p.m || cols_b != p.n || inner_b != p.k)
    return invalid("op(A), op(B) and D do not fit together");
  if (p.c.rows != p.m || p.c.cols != p.n) return invalid("C and D have different shapes");
  for (const Matrix* matrix : {&p.a, &p.b, &p.c})
    if (matrix->batch != p.d.batch) return invalid("the matrices have different batch counts");
  if (p.d.batch > 1 && p.d.batch_stride < p.d.elements()) return invalid("the matrices of D overlap");
  if (p.a.batch_stride < 0 || p.b.batch_stride < 0 || p.c.batch_stride < 0) return unsupported("a negative stride");
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t read_epilogue(const Object& object, Product& p) {
  p.epilogue = object.get<uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE);
  p.bias = object.get<void*>(CUBLASLT_MATMUL_DESC_BIAS_POINTER);
  p.bias_stride = object.get<int64_t>(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE);
  if (p.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_SUCCESS;
  if (p.epilogue != CUBLASLT_EPILOGUE_BIAS && p.epilogue != CUBLASLT_EPILOGUE_BGRADB)
    return invalid("epilogue " + std::to_string(p.epilogue) + " does not exist, or the stand-in lacks it");
  if (p.wide()) return unsupported("an epilogue for fp64");
  if (!p.bias) return invalid("the epilogue has no bias pointer");
  const int32_t type = object.get<int32_t>(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
  if (type != -1 && type != static_cast<int32_t>(p.d.type)) return invalid("the bias has another type than D");
  if (reinterpret_cast<uintptr_t>(p.bias) % kVector != 0) return unsupported("a bias that is not aligned");
  return CUBLAS_STATUS_SUCCESS;
}

// --- algorithms ---

/// An algorithm can be used for all products with the same signature.
uint64_t signature(const Product& p) {
  return uint64_t{p.compute} << 32 | uint64_t{p.a.type} << 20 | uint64_t{p.d.type} << 8 | p.transpose_a << 1 |
         p.transpose_b;
}

uint64_t workspace_of(MatmulAlgorithm algorithm, const Product& p) {
  if (algorithm == MatmulAlgorithm::kHuge) return kHugeWorkspace;
  if (algorithm == MatmulAlgorithm::kSplit) return static_cast<uint64_t>(4 * 4 * p.m * p.n * p.d.batch);
  return algorithm == MatmulAlgorithm::kInPlace ? 4096 : 0;
}

/// The alignment of a matrix: that of its pointer and its strides.
int64_t alignment(const Matrix& matrix, int64_t pointer) {
  int64_t steps = matrix.rows > 1 && matrix.cols > 1 ? matrix.ld : 0;
  if (matrix.batch > 1) steps |= matrix.batch_stride;
  const int64_t bits = steps * bytes_of(matrix.type) | pointer;
  return bits & -bits;
}
bool serves(MatmulAlgorithm algorithm, const Product& p, const std::array<int64_t, 4>& pointers) {
  const Matrix* const matrices[] = {&p.a, &p.b, &p.c, &p.d};
  const bool split = algorithm == MatmulAlgorithm::kSplit || algorithm == MatmulAlgorithm::kInPlace;
  if (split && (p.k < 512 || p.m * p.n > p.k * 64 || p.wide())) return false;
  if (split && p.epilogue != CUBLASLT_EPILOGUE_DEFAULT) return false;
  for (int i = 0; i < 4; ++i) {
    const int64_t minimum = algorithm == MatmulAlgorithm::kGeneral ? bytes_of(matrices[i]->type) : kVector;
    if (alignment(*matrices[i], pointers[i]) < minimum) return false;
  }
  return true;
}

int64_t alignment_of(const void* pointer) {
  const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(pointer)) | 256;
  return address & -address;
}

cublasStatus_t read_algorithm(const cublasLtMatmulAlgo_t& algo, const Product& p, MatmulAlgorithm& algorithm) {
  if (algo.data[0] != kMagic || algo.data[1] < 1 || algo.data[1] > static_cast<uint64_t>(MatmulAlgorithm::kGeneral))
    return invalid("the algorithm is not one");
  if (algo.data[2] != signature(p)) return invalid("the algorithm was made for a product of another kind");
  algorithm = static_cast<MatmulAlgorithm>(algo.data[1]);
  return CUBLAS_STATUS_SUCCESS;
}

double scalar(const Product& p, const void* pointer) {
  return p.wide() ? *static_cast<const double*>(pointer) : *static_cast<const float*>(pointer);
}

/// Checks that all memory accessed by the call is device memory.
void require_memory(const Product& p, const Arguments& t, const void* workspace, size_t workspace_bytes) {
  const auto whole = [&](const Matrix& matrix, const void* data, const char* name) {
    const int64_t elements = (matrix.batch - 1) * matrix.batch_stride + matrix.elements();
    require_device_memory(data, static_cast<size_t>(elements * bytes_of(matrix.type)), name);
  };
  whole(p.a, t.a, "cublasLtMatmul: A");
  whole(p.b, t.b, "cublasLtMatmul: B");
  if (t.beta_value != 0) whole(p.c, t.c, "cublasLtMatmul: C");
  whole(p.d, t.d, "cublasLtMatmul: D");
  if (p.epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
    const int64_t elements = (p.d.batch - 1) * p.bias_stride + p.bias_size();
    require_device_memory(p.bias, static_cast<size_t>(elements * bytes_of(p.d.type)), "cublasLtMatmul: bias");
  }
  if (workspace_bytes > 0) require_device_memory(workspace, workspace_bytes, "cublasLtMatmul: workspace");
}

cublasStatus_t from_cuda(cudaError_t error) {
  if (error == cudaSuccess) return CUBLAS_STATUS_SUCCESS;
  return reject(CUBLAS_STATUS_EXECUTION_FAILED, cudaGetErrorName(error));
}

}  // namespace

cublasStatus_t read_product(cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                            cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, Product& p) {
  const Object* object = find(operation, Kind::kOperation);
  if (!object) return invalid("the operation is not a live descriptor");
  p.compute = static_cast<cublasComputeType_t>(object->get<int32_t>(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE));
  p.scale = static_cast<cudaDataType_t>(object->get<int32_t>(CUBLASLT_MATMUL_DESC_SCALE_TYPE));
  p.transpose_a = object->get<int32_t>(CUBLASLT_MATMUL_DESC_TRANSA) != CUBLAS_OP_N;
  p.transpose_b = object->get<int32_t>(CUBLASLT_MATMUL_DESC_TRANSB) != CUBLAS_OP_N;
  for (const auto& [layout, name, matrix] : {std::tuple{a, "A", &p.a}, {b, "B", &p.b}, {c, "C", &p.c}, {d, "D", &p.d}})
    if (const cublasStatus_t status = read_layout(find(layout, Kind::kLayout), name, *matrix)) return status;
  p.m = p.d.rows;
  p.n = p.d.cols;
  p.k = p.transpose_a ? p.a.rows : p.a.cols;
  for (const cublasStatus_t status : {check_types(p), check_shapes(p)})
    if (status != CUBLAS_STATUS_SUCCESS) return status;
  return read_epilogue(*object, p);
}

}  // namespace lt

MatmulAlgorithm last_matmul_algorithm() { return static_cast<MatmulAlgorithm>(lt::last_algorithm.load()); }
int last_matmul_epilogue() { return lt::last_epilogue; }
int last_matmul_compute_type() { return lt::last_compute; }
void slow_down(MatmulAlgorithm algorithm, int milliseconds) {
  lt::delays[static_cast<size_t>(algorithm)] = milliseconds;
}

}  // namespace tern::standin

namespace lt = tern::standin::lt;
using tern::standin::MatmulAlgorithm;

extern "C" {

cublasStatus_t CUBLASWINAPI cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                                           cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                           cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                           cublasLtMatmulPreference_t preference, int wanted,
                                                           cublasLtMatmulHeuristicResult_t* results, int* count) {
  STANDIN_FAULT(cublasLtMatmulAlgoGetHeuristic);
  if (!lt::find(handle, lt::Kind::kHandle)) return lt::reject(CUBLAS_STATUS_NOT_INITIALIZED, "not a live handle");
  const lt::Object* wishes = lt::find(preference, lt::Kind::kPreference);
  if (!wishes || wanted < 1 || !results || !count) return lt::invalid("no preference, or no room for results");
  lt::Product p;
  *count = 0;
  if (const cublasStatus_t status = lt::read_product(operation, a, b, c, d, p)) return status;
  const auto alignment = [&](int attribute) { return static_cast<int64_t>(wishes->get<uint32_t>(attribute)); };
  const std::array<int64_t, 4> pointers = {
      alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES), alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES),
      alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES), alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES)};
  const auto limit = wishes->get<uint64_t>(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
  const auto schemes = wishes->get<uint32_t>(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
  for (const MatmulAlgorithm algorithm : {MatmulAlgorithm::kHuge, MatmulAlgorithm::kInPlace, MatmulAlgorithm::kSplit,
                                          MatmulAlgorithm::kAligned, MatmulAlgorithm::kGeneral}) {
    const uint64_t workspace = lt::workspace_of(algorithm, p);
    if (*count == wanted || workspace > limit || !lt::serves(algorithm, p, pointers)) continue;
    if (algorithm == MatmulAlgorithm::kInPlace && !(schemes & CUBLASLT_REDUCTION_SCHEME_INPLACE)) continue;
    if (algorithm == MatmulAlgorithm::kSplit && !(schemes & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)) continue;
    cublasLtMatmulHeuristicResult_t& result = results[(*count)++];
    result = {};
    result.algo.data[0] = lt::kMagic;
    result.algo.data[1] = static_cast<uint64_t>(algorithm);
    result.algo.data[2] = lt::signature(p);
    result.workspaceSize = workspace;
    result.state = CUBLAS_STATUS_SUCCESS;
    result.wavesCount = 1;
  }
  return *count > 0 ? CUBLAS_STATUS_SUCCESS : lt::unsupported("no algorithm for these alignments and this workspace");
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                                    cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                    const cublasLtMatmulAlgo_t* algo,
                                                    cublasLtMatmulHeuristicResult_t* result) {
  STANDIN_FAULT(cublasLtMatmulAlgoCheck);
  if (!lt::find(handle, lt::Kind::kHandle)) return lt::reject(CUBLAS_STATUS_NOT_INITIALIZED, "not a live handle");
  if (!algo || !result) return lt::invalid("no algorithm, or no room for the result");
  lt::Product p;
  MatmulAlgorithm algorithm = MatmulAlgorithm::kGeneral;
  if (const cublasStatus_t status = lt::read_product(operation, a, b, c, d, p)) return status;
  if (const cublasStatus_t status = lt::read_algorithm(*algo, p, algorithm)) return status;
  if (!lt::serves(algorithm, p, {256, 256, 256, 256}))
    return lt::unsupported("the algorithm does not serve this product");
  result->workspaceSize = lt::workspace_of(algorithm, p);
  result->state = CUBLAS_STATUS_SUCCESS;
  result->wavesCount = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CUBLASWINAPI cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void* alpha,
                                           const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                                           cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                                           cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                                           const cublasLtMatmulAlgo_t* algo, void* workspace, size_t workspace_bytes,
                                           cudaStream_t stream) {
  STANDIN_FAULT(cublasLtMatmul);
  const lt::Object* context = lt::find(handle, lt::Kind::kHandle);
  if (!context) return lt::reject(CUBLAS_STATUS_NOT_INITIALIZED, "not a live handle");
  if (context->device != tern::standin::current_device()) return lt::invalid("the handle is another device's");
  lt::Product p;
  lt::Arguments t{a, b, c, d};
  if (const cublasStatus_t status = lt::read_product(operation, a_layout, b_layout, c_layout, d_layout, p))
    return status;
  if (!a || !b || !d || !alpha || !beta) return lt::invalid("A, B, D, alpha or beta is missing");
  if (!algo) return lt::invalid("without an algorithm the library would search for one at every call");
  if (const cublasStatus_t status = lt::read_algorithm(*algo, p, t.algorithm)) return status;
  if (c == d && std::memcmp(&p.c, &p.d, sizeof(p.c)) != 0) return lt::invalid("C is D, with another layout");
  if (!lt::serves(t.algorithm, p, {lt::alignment_of(a), lt::alignment_of(b), lt::alignment_of(c), lt::alignment_of(d)}))
    return lt::invalid("a pointer is not aligned as the algorithm needs it");
  const uint64_t needed = lt::workspace_of(t.algorithm, p);
  if (workspace_bytes < needed || (needed > 0 && lt::alignment_of(workspace) < 16))
    return lt::invalid("the workspace is too small or not aligned to 16 bytes");
  t.alpha_value = lt::scalar(p, alpha);
  t.beta_value = lt::scalar(p, beta);
  if (t.beta_value != 0 && !c) return lt::invalid("C is missing");
  t.call = ++lt::calls;
  lt::last_algorithm = static_cast<uint64_t>(t.algorithm);
  lt::last_epilogue = static_cast<int>(p.epilogue);
  lt::last_compute = p.compute;
  return lt::from_cuda(tern::standin::enqueue(stream, "cublasLtMatmul", [p, t, workspace, needed] {
    lt::require_memory(p, t, workspace, needed);
    // Previous content of the workspace must have no effect.
    if (needed > 0) std::memset(workspace, 0xff, needed);
    std::this_thread::sleep_for(std::chrono::milliseconds(lt::delays[static_cast<size_t>(t.algorithm)]));
    lt::compute(p, t);
  }));
}

}  // extern "C"
