#include "tern/kernels/cuda/gemm/matmul.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <vector>

#include "tern/kernels/cuda/gemm/settings.h"
#include "tern/kernels/cuda/support/check.h"
#include "tern/kernels/cuda/support/cublaslt.h"
#include "tern/kernels/cuda/support/timing.h"

namespace tern::kernels::cuda {
namespace {

using Numbers = std::array<int64_t, Matmul::kNumbers>;
constexpr int kCandidates = 16;     // number of algorithms requested from the heuristic
constexpr size_t kMaxPlans = 4096;  // eager training on ragged batches keeps creating new shapes

std::atomic<bool> tf32_on = false, autotune_on = false;

cudaDataType type_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return CUDA_R_64F;
    case DType::kBFloat16:
      return CUDA_R_16BF;
    case DType::kFloat16:
      return CUDA_R_16F;
    default:
      return CUDA_R_32F;
  }
}

// Owners of cuBLASLt's descriptors.
struct DestroyDescriptor {
  void operator()(cublasLtMatmulDescOpaque_t* p) const { cublaslt().MatmulDescDestroy(p); }
  void operator()(cublasLtMatrixLayoutOpaque_t* p) const { cublaslt().MatrixLayoutDestroy(p); }
  void operator()(cublasLtMatmulPreferenceOpaque_t* p) const { cublaslt().MatmulPreferenceDestroy(p); }
};
using Operation = std::unique_ptr<cublasLtMatmulDescOpaque_t, DestroyDescriptor>;
using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, DestroyDescriptor>;
using Preference = std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, DestroyDescriptor>;

template <class T>
void set(const Operation& operation, cublasLtMatmulDescAttributes_t attribute, T value) {
  TERN_CUBLAS_CHECK(cublaslt().MatmulDescSetAttribute(operation.get(), attribute, &value, sizeof(value)));
}
template <class T>
void set(const Layout& layout, cublasLtMatrixLayoutAttribute_t attribute, T value) {
  TERN_CUBLAS_CHECK(cublaslt().MatrixLayoutSetAttribute(layout.get(), attribute, &value, sizeof(value)));
}
template <class T>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute, T value) {
  TERN_CUBLAS_CHECK(cublaslt().MatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)));
}

Operation make_operation(const Matmul& p) {
  const bool wide = p.input == DType::kFloat64;
  const cublasComputeType_t compute = wide                                    ? CUBLAS_COMPUTE_64F
                                      : p.input == DType::kFloat32 && tf32_on ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                              : CUBLAS_COMPUTE_32F;
  cublasLtMatmulDesc_t made = nullptr;
  TERN_CUBLAS_CHECK(cublaslt().MatmulDescCreate(&made, compute, wide ? CUDA_R_64F : CUDA_R_32F));
  Operation operation(made);
  set(operation, CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(operation, CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (p.bias != MatmulBias::kNone) {
    set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE,
        p.bias == MatmulBias::kAdd ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_BGRADB);
    set(operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(type_of(p.output)));
  }
  return operation;
}

Layout make_layout(DType dtype, int64_t rows, int64_t cols, int64_t ld, int64_t batch, int64_t batch_stride) {
  TERN_CHECK(batch <= std::numeric_limits<int32_t>::max(), "matmul: cuBLASLt takes 2147483647 matrices at most, got ",
             batch);
  cublasLtMatrixLayout_t made = nullptr;
  TERN_CUBLAS_CHECK(cublaslt().MatrixLayoutCreate(&made, type_of(dtype), static_cast<uint64_t>(rows),
                                                  static_cast<uint64_t>(cols), ld));
  Layout layout(made);
  set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(batch));
  set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, batch_stride);
  return layout;
}

Preference make_preference(const Matmul& p) {
  cublasLtMatmulPreference_t made = nullptr;
  TERN_CUBLAS_CHECK(cublaslt().MatmulPreferenceCreate(&made));
  Preference preference(made);
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kMatmulWorkspace));
  // Partial sums of a split inner dimension are kept in the compute type and added in a fixed order; excluded are
  // reductions in place or in the output's type, which round the partial sums to that type.
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(p.align_a));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(p.align_b));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(p.align_d));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(p.align_d));
  return preference;
}

/// The descriptors of one kind of product and its algorithm; nullopt when cuBLASLt has none.
struct Plan {
  Operation operation;
  Layout a, b, d;
  std::optional<cublasLtMatmulAlgo_t> algorithm;

  explicit Plan(const Matmul& p)
      : operation(make_operation(p)),
        a(make_layout(p.input, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k, p.lda, p.batch, p.batch_a)),
        b(make_layout(p.input, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n, p.ldb, p.batch, p.batch_b)),
        d(make_layout(p.output, p.m, p.n, p.ldd, p.batch, p.batch_d)) {}

  cublasStatus_t run(cublasLtHandle_t handle, Stream stream, const MatmulOperands& o, const cublasLtMatmulAlgo_t& with,
                     bool wide, void* workspace) const {
    const float alpha = static_cast<float>(o.alpha), beta = static_cast<float>(o.beta);
    return cublaslt().Matmul(handle, operation.get(), wide ? static_cast<const void*>(&o.alpha) : &alpha, o.a, a.get(),
                             o.b, b.get(), wide ? static_cast<const void*>(&o.beta) : &beta, o.d, d.get(), o.d, d.get(),
                             &with, workspace, kMatmulWorkspace, static_cast<cudaStream_t>(stream.handle));
  }
};

// --- choices that were measured, or restored from text ---

struct Choices {
  std::mutex mutex;
  std::map<std::pair<DeviceKind, Numbers>, cublasLtMatmulAlgo_t> algorithms;
};
Choices& choices() {
  static Choices& instance = *new Choices;
  return instance;
}

std::optional<cublasLtMatmulAlgo_t> find_choice(const DeviceKind& kind, const Numbers& key) {
  const std::lock_guard lock(choices().mutex);
  const auto found = choices().algorithms.find({kind, key});
  if (found == choices().algorithms.end()) return std::nullopt;
  return found->second;
}

// --- timing ---

struct FreeMemory {
  void operator()(void* memory) const { cudaFree(memory); }
};

/// Runs each candidate and returns the fastest; nullopt when there is not enough memory.
std::optional<cublasLtMatmulAlgo_t> fastest(const Plan& plan, cublasLtHandle_t handle, Stream stream, const Matmul& p,
                                            MatmulOperands operands,
                                            const std::vector<cublasLtMatmulAlgo_t>& candidates, void* workspace) {
  std::unique_ptr<void, FreeMemory> scratch;
  if (operands.beta != 0) {  // D's content must be preserved
    void* memory = nullptr;
    const int64_t elements = (p.batch - 1) * p.batch_d + (p.n - 1) * p.ldd + p.m;
    if (cudaMalloc(&memory, static_cast<size_t>(elements * size_of(p.output))) != cudaSuccess) {
      cudaGetLastError();
      return std::nullopt;
    }
    scratch.reset(memory);
    operands.d = memory;
  }
  size_t best = 0;
  float best_time = INFINITY;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const float time = time_of(stream, [&] {
      return plan.run(handle, stream, operands, candidates[i], p.input == DType::kFloat64, workspace) ==
             CUBLAS_STATUS_SUCCESS;
    });
    if (time < best_time) {
      best = i;
      best_time = time;
    }
  }
  return candidates[best];
}

/// Throws DeviceError when the device is lost, otherwise Error.
[[noreturn]] void fail_matmul(cublasStatus_t status, const Matmul& p) {
  const std::string what =
      tern::detail::concatenate("cublasLtMatmul: ", cublaslt().GetStatusName(status), " for ", p.describe());
  if (const cudaError_t error = cudaPeekAtLastError(); detail::is_sticky(error)) detail::fail_cuda(error, what);
  fail(what);
}

// --- one device ---

class Device {
 public:
  explicit Device(int index) {
    const cublasStatus_t status = cublaslt().Create(&handle_);
    TERN_CHECK(status == CUBLAS_STATUS_SUCCESS, "cublasLtCreate: ", cublaslt().GetStatusName(status),
               " on CUDA device ", index,
               status == CUBLAS_STATUS_NOT_INITIALIZED ? ": is there a GPU, and a driver new enough?" : "");
    kind_ = device_kind(index);
  }

  bool run(Stream stream, const Matmul& p, const MatmulOperands& operands, void* workspace) {
    const std::lock_guard lock(mutex_);  // the plan's bias pointer differs between calls
    const Numbers key = p.key();
    auto found = plans_.find(key);
    if (found == plans_.end()) {
      if (plans_.size() >= kMaxPlans) plans_.clear();
      found = plans_.emplace(key, make_plan(stream, p, operands, workspace)).first;
    }
    const Plan& plan = found->second;
    if (!plan.algorithm) return false;
    if (p.bias != MatmulBias::kNone) set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
    const cublasStatus_t status =
        plan.run(handle_, stream, operands, *plan.algorithm, p.input == DType::kFloat64, workspace);
    if (status != CUBLAS_STATUS_SUCCESS) fail_matmul(status, p);
    return true;
  }

 private:
  Plan make_plan(Stream stream, const Matmul& p, const MatmulOperands& operands, void* workspace) {
    Plan plan(p);
    // The heuristic uses the pointer's alignment.
    if (p.bias != MatmulBias::kNone) set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
    const Numbers key = p.key();
    if (const auto chosen = find_choice(kind_, key); chosen && still_valid(plan, *chosen)) {
      plan.algorithm = chosen;
      return plan;
    }
    const std::vector<cublasLtMatmulAlgo_t> candidates = find_candidates(plan, p);
    if (candidates.empty()) return plan;
    plan.algorithm = candidates.front();
    if (autotune_on && !is_capturing(stream)) {
      if (const auto chosen = fastest(plan, handle_, stream, p, operands, candidates, workspace)) {
        plan.algorithm = chosen;
        const std::lock_guard lock(choices().mutex);
        choices().algorithms[{kind_, key}] = *chosen;
      }
    }
    return plan;
  }

  /// In the heuristic's order, which begins with the algorithm that it expects to be fastest.
  std::vector<cublasLtMatmulAlgo_t> find_candidates(const Plan& plan, const Matmul& p) {
    const Preference preference = make_preference(p);
    cublasLtMatmulHeuristicResult_t results[kCandidates] = {};
    int count = 0;
    const cublasStatus_t status =
        cublaslt().MatmulAlgoGetHeuristic(handle_, plan.operation.get(), plan.a.get(), plan.b.get(), plan.d.get(),
                                          plan.d.get(), preference.get(), kCandidates, results, &count);
    std::vector<cublasLtMatmulAlgo_t> candidates;
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return candidates;
    TERN_CHECK(status == CUBLAS_STATUS_SUCCESS, "cublasLtMatmulAlgoGetHeuristic: ", cublaslt().GetStatusName(status),
               " for ", p.describe());
    for (int i = 0; i < count; ++i)
      if (results[i].state == CUBLAS_STATUS_SUCCESS && results[i].workspaceSize <= kMatmulWorkspace)
        candidates.push_back(results[i].algo);
    return candidates;
  }

  bool still_valid(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm) {
    cublasLtMatmulHeuristicResult_t result = {};
    return cublaslt().MatmulAlgoCheck(handle_, plan.operation.get(), plan.a.get(), plan.b.get(), plan.d.get(),
                                      plan.d.get(), &algorithm, &result) == CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= kMatmulWorkspace;
  }

  std::mutex mutex_;
  cublasLtHandle_t handle_ = nullptr;
  DeviceKind kind_;
  std::map<Numbers, Plan> plans_;
};

/// Created at the first product on the device, which must be current; never destroyed, since the CUDA runtime may end
/// before static objects do.
Device& device(int index) {
  static std::mutex mutex;
  static auto& devices = *new std::map<int, Device>;
  const std::lock_guard lock(mutex);
  return devices.try_emplace(index, index).first->second;
}

}  // namespace

Numbers Matmul::key() const {
  const bool fast = input == DType::kFloat32 && tf32_on;
  return {static_cast<int64_t>(input),
          static_cast<int64_t>(output),
          transpose_a,
          transpose_b,
          static_cast<int64_t>(bias),
          fast,
          m,
          n,
          k,
          batch,
          lda,
          ldb,
          ldd,
          batch_a,
          batch_b,
          batch_d,
          align_a,
          align_b,
          align_d,
          align_bias};
}

std::string Matmul::describe() const {
  return tern::detail::concatenate("a product of ", name_of(input), " matrices to ", name_of(output), ", m ", m, ", n ",
                                   n, ", k ", k, ", batch ", batch, ", leading dimensions ", lda, ", ", ldb, ", ", ldd,
                                   ", transposed ", transpose_a, ", ", transpose_b,
                                   bias == MatmulBias::kNone  ? ""
                                   : bias == MatmulBias::kAdd ? ", with bias"
                                                              : ", with the bias gradient");
}

int64_t alignment_of(const void* pointer) {
  const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(pointer));
  if (address % kMatmulAlignment == 0) return kMatmulAlignment;
  return std::min<int64_t>(address & -address, 16);
}

bool try_matmul(Stream stream, const Matmul& matmul, const MatmulOperands& operands, void* workspace) {
  return device(stream.index).run(stream, matmul, operands, workspace);
}

// --- settings ---

void set_tf32(bool on) { tf32_on = on; }
bool tf32() { return tf32_on; }
void set_autotune(bool on) { autotune_on = on; }
bool autotune() { return autotune_on; }

// One line per choice: the kind of device, the product's numbers, the algorithm's words.
std::string gemm_choices() {
  std::ostringstream out;
  const std::lock_guard lock(choices().mutex);
  if (!choices().algorithms.empty()) out << "gemm choices, cuBLASLt " << cublaslt_info().version << "\n";
  for (const auto& [key, algorithm] : choices().algorithms) {
    out << key.first.major << ' ' << key.first.minor << ' ' << key.first.multiprocessors;
    for (const int64_t number : key.second) out << ' ' << number;
    for (const uint64_t word : algorithm.data) out << ' ' << word;
    out << "\n";
  }
  return out.str();
}

void restore_gemm_choices(const std::string& text) {
  if (text.empty()) return;
  cublaslt();  // throws when the library is missing
  std::istringstream in(text);
  std::string line;
  std::getline(in, line);
  const std::string expected = "gemm choices, cuBLASLt " + cublaslt_info().version;
  TERN_CHECK(line == expected, "the recorded choices of matrix algorithms begin with \"", line, "\", expected \"",
             expected, "\": they serve the version of cuBLASLt that they were made with; run with --autotune again");
  decltype(Choices::algorithms) read;
  while (std::getline(in, line)) {
    std::istringstream words(line);
    DeviceKind kind;
    Numbers key = {};
    cublasLtMatmulAlgo_t algorithm = {};
    words >> kind.major >> kind.minor >> kind.multiprocessors;
    for (int64_t& number : key) words >> number;
    for (uint64_t& word : algorithm.data) words >> word;
    TERN_CHECK(words && (words >> std::ws).eof(), "the recorded choices of matrix algorithms hold the line \"", line,
               "\", expected ", 3 + key.size() + std::size(algorithm.data), " numbers");
    read[{kind, key}] = algorithm;
  }
  const std::lock_guard lock(choices().mutex);
  read.merge(choices().algorithms);
  choices().algorithms.swap(read);
}

}  // namespace tern::kernels::cuda
