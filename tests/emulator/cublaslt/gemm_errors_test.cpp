// Errors in matrix products on CUDA, and their settings: clear messages, the choice of algorithms, TF32.

#include <cublasLt.h>

#include <thread>

#include "tern/kernels/cuda/gemm/settings.h"
#include "tern/kernels/cuda/support/cublaslt.h"
#include "tern/kernels/gemm.h"
#include "tern/tests/emulator/cublaslt/cublaslt.h"
#include "tern/tests/emulator/runtime/standin_test.h"
#include "tern/tests/kernels/contracts/target.h"

namespace tern::kernels {
namespace {

using standin::MatmulAlgorithm;

class StandinGemmErrors : public OnTarget {};
INSTANTIATE_TEST_SUITE_P(, StandinGemmErrors, testing::ValuesIn(device_targets()), name_of_target);

constexpr int64_t kWorkspace = int64_t{34} << 20;  // more than any product needs

/// c = a b^T with small integers, for which every order of summation is exact.
struct Product {
  Array a, b, c;
  Call on{target()};
  ConstView on_a, on_b;
  View on_c;
  Product(DType dtype, int64_t m, int64_t n, int64_t k) : a(dtype, {m, k}), b(dtype, {n, k}), c(dtype, {m, n}) {
    for (const auto& [array, period] : {std::pair(&a, 5), {&b, 3}, {&c, 4}})
      for (int64_t i = 0; i < array->numel(); ++i) array->set(i, static_cast<double>(i % period) - 1);
    on_a = on(std::as_const(a));
    on_b = on(std::as_const(b));
    on_c = on(c);
  }
  void run(double beta, Stream stream, void* workspace) {
    cuda::gemm(stream, false, true, 1, on_a, on_b, beta, on_c, workspace);
  }
  void run(double beta = 0) { run(beta, on.stream(), on.workspace(kWorkspace)); }
  /// Expects the result a b^T + times * (initial c) + added[column].
  void expect(double times, const std::vector<double>& added = {}) {
    on.finish();
    const int64_t n = b.shape()[0], k = a.shape()[1];
    for (int64_t i = 0; i < c.numel(); ++i) {
      double sum = times * (static_cast<double>(i % 4) - 1) + (added.empty() ? 0 : added[i % n]);
      for (int64_t p = 0; p < k; ++p) sum += a.at(i / n * k + p) * b.at(i % n * k + p);
      ASSERT_EQ(c.at(i), sum) << i;
    }
  }
};

// ---- errors ------------------------------------------------------------------------------------------------------

// Must run first: the process's first product creates the handle.
TEST_P(StandinGemmErrors, EveryCallMayFail) {
  const std::pair<const char*, int> calls[] = {{"cublasLtCreate", 1},
                                               {"cublasLtMatmulDescCreate", 1},
                                               {"cublasLtMatmulDescSetAttribute", 1},
                                               {"cublasLtMatmulDescSetAttribute", 2},
                                               {"cublasLtMatrixLayoutCreate", 1},
                                               {"cublasLtMatrixLayoutCreate", 3},
                                               {"cublasLtMatrixLayoutSetAttribute", 1},
                                               {"cublasLtMatrixLayoutSetAttribute", 6},
                                               {"cublasLtMatmulPreferenceCreate", 1},
                                               {"cublasLtMatmulPreferenceSetAttribute", 1},
                                               {"cublasLtMatmulPreferenceSetAttribute", 6},
                                               {"cublasLtMatmulAlgoGetHeuristic", 1},
                                               {"cublasLtMatmul", 1}};
  Product p(float32, 4, 5, 6);
  for (const auto& [name, n] : calls) {
    SCOPED_TRACE(testing::Message() << name << " " << n);
    const size_t before = standin::live_cublaslt_objects();
    standin::fail_call(name, n, CUBLAS_STATUS_INTERNAL_ERROR);
    expect_error([&] { p.run(); }, {std::string(name).substr(8), "CUBLAS_STATUS_INTERNAL_ERROR"});
    standin::clear_faults();
    const bool made = std::string(name) == "cublasLtMatmul";  // the plan is then complete and is kept
    EXPECT_EQ(standin::live_cublaslt_objects() - before, made ? 4u : std::string(name) == "cublasLtMatmulDescCreate");
  }
  p.run();
  p.expect(0);
}

TEST_P(StandinGemmErrors, NoAlgorithm) {
  Product p(float32, 4, 7, 6);
  standin::fail_call("cublasLtMatmulAlgoGetHeuristic", 1, CUBLAS_STATUS_NOT_SUPPORTED);
  expect_error([&] { p.run(); }, {"has no algorithm for a product of float32 matrices to float32, m 7, n 4, k 6"});
}

TEST_P(StandinGemmErrors, WithoutTheEpilogueTheBiasIsThereBefore) {
  for (const DType dtype : {float32, bfloat16}) {
    Product p(dtype, 4, 9, 6);
    Array bias(float32, {9});
    for (int64_t i = 0; i < 9; ++i) bias.set(i, static_cast<double>(i));
    standin::fail_call("cublasLtMatmulAlgoGetHeuristic", 1, CUBLAS_STATUS_NOT_SUPPORTED);
    cuda::linear_forward(p.on.stream(), p.on_a, p.on_b, p.on(std::as_const(bias)), Activation::kNone, {}, p.on_c,
                         p.on.workspace(kWorkspace));
    EXPECT_EQ(standin::last_matmul_epilogue(), CUBLASLT_EPILOGUE_DEFAULT);
    p.expect(0, bias.values());
  }
}

TEST(InAnotherProcess, DISABLED_PrintsTheErrorOfAProduct) {  // without a device no target can be used
  const Stream stream{DeviceType::kCUDA, 0, nullptr};
  std::vector<float> memory(64);
  const View v = make_view(memory.data(), 4, 4);
  std::printf("library: %s\n", cuda::gemm_library(stream));
  std::printf("error: %s\n", error_of([&] { cuda::gemm(stream, false, false, 1, v, v, 0, v, nullptr); }).c_str());
}

/// Never destroyed: its memory cannot be freed.
Product& product_of_a_lost_device() {
  static Product& product = *new Product(float32, 4, 5, 6);
  return product;
}

TEST_P(StandinGemmErrors, DISABLED_MultipliesHostMemory) {
  Product& p = product_of_a_lost_device();
  p.on_a = p.a.cview();
  p.run();
  EXPECT_NE(cudaStreamSynchronize(static_cast<cudaStream_t>(p.on.stream().handle)), cudaSuccess);
  std::printf("error: %s\n", standin::device_error().c_str());
}

TEST_P(StandinGemmErrors, DISABLED_MultipliesOnALostDevice) {
  Product& p = product_of_a_lost_device();
  p.run();
  p.expect(0);
  standin::set_device_error(cudaErrorLaunchFailure, "lost");
  EXPECT_THROW(p.run(), DeviceError);
  std::printf("error: %s\n", error_of([&] { p.run(); }).c_str());
}

TEST_P(StandinGemmErrors, ALostDeviceIsSaidToBeLost) {
  expect_contains(
      output_of("", "StandinGemmErrors.DISABLED_MultipliesOnALostDevice/*"),
      {"[  PASSED  ] 1 test", "error: cublasLtMatmul: CUBLAS_STATUS_EXECUTION_FAILED for a product of float32",
       "cudaErrorLaunchFailure"});
}

TEST_P(StandinGemmErrors, HostMemoryIsFound) {  // a is the library's B
  EXPECT_TRUE(has(output_of("", "StandinGemmErrors.DISABLED_MultipliesHostMemory/*"),
                  "cublasLtMatmul: B: 96 bytes are not device memory"));
}

TEST_P(StandinGemmErrors, TheLibraryIsMissing) {
  const std::string test = "InAnotherProcess.DISABLED_PrintsTheErrorOfAProduct";
  expect_contains(output_of("TERN_CUBLASLT=/nowhere/libcublasLt.so.13", test),
                  {"library: cuBLASLt (not found)",
                   "error: cuBLASLt is needed for matrix products on CUDA and was not found "
                   "(/nowhere/libcublasLt.so.13: cannot open shared object file",
                   "or use --device cpu"});
  EXPECT_TRUE(has(output_of("TERN_CUBLASLT=libm.so.6", test), "undefined symbol: cublasLtGetVersion"));
}

TEST_P(StandinGemmErrors, NoDeviceAndNoDriver) {
  for (const char* environment : {"TERN_STANDIN_DEVICES=0", "TERN_STANDIN_STATE=no-driver"})
    EXPECT_TRUE(has(output_of(environment, "InAnotherProcess.DISABLED_PrintsTheErrorOfAProduct"),
                    "error: cublasLtCreate: CUBLAS_STATUS_NOT_INITIALIZED on CUDA device 0"));
}

TEST_P(StandinGemmErrors, NamesTheLibrary) {
  EXPECT_EQ(std::string(cuda::gemm_library(target().stream())), "cuBLASLt " + cuda::cublaslt_info().version);
  EXPECT_TRUE(cuda::cublaslt_info().found);
  EXPECT_TRUE(has(cuda::cublaslt_info().path, "libtern_standin"));
}

TEST(SharedLibrary, SaysWhatWasTried) {
  cuda::SharedLibrary missing({"cuNothing",
                               "nothing",
                               {"libcunothing.so.3", "libcunothing.so"},
                               "package cunothing",
                               "TERN_CUNOTHING",
                               "cuNothingGetVersion",
                               [](void*) { return std::string("?"); }});
  EXPECT_FALSE(missing.info().found);
  EXPECT_TRUE(has(missing.info().reason, "libcunothing.so.3: cannot open"));
  expect_error([&] { missing.function<void()>("cuNothing"); },
               {"cuNothing is needed for nothing", "package cunothing"});

  cuda::SharedLibrary math({"libm", "mathematics", {"libm.so.6"}, "libc6", "TERN_LIBM", "fdim", [](void*) {
                              return cuda::dotted_version(130102);
                            }});
  EXPECT_TRUE(math.info().found);
  EXPECT_EQ(math.info().version, "13.1.2");
  EXPECT_TRUE(has(math.info().path, "libm.so.6"));
  EXPECT_EQ(math.function<double(double)>("cos")(0), 1);
  expect_error([&] { math.function<void()>("cosinus"); }, {"libm 13.1.2", "has no function cosinus"});
}

// ---- settings ----------------------------------------------------------------------------------------------------

TEST_P(StandinGemmErrors, Tf32OnlyOnRequest) {
  Array a(float32, {8, 8}), b(float32, {8, 8}), c(float32, {8, 8});
  for (int64_t i = 0; i < 64; ++i) {
    a.set(i, 1 + 0x1p-20);
    b.set(i, i % 9 == 0 ? 1 : 0);
  }
  for (const bool tf32 : {false, true, false}) {
    cuda::set_tf32(tf32);
    EXPECT_EQ(cuda::tf32(), tf32);
    run_kernel(
        [&](Call& on) { cuda::gemm(on.stream(), false, false, 1, on(a), on(b), 0, on(c), on.workspace(kWorkspace)); });
    EXPECT_EQ(standin::last_matmul_compute_type(), tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F);
    EXPECT_EQ(c.at(0), tf32 ? 1 : 1 + 0x1p-20);
  }
}

TEST_P(StandinGemmErrors, AutotuneTakesTheFastestOnce) {
  standin::slow_down(MatmulAlgorithm::kAligned, 2);
  Product before(float32, 8, 24, 16);
  before.run();
  EXPECT_EQ(standin::last_matmul_algorithm(), MatmulAlgorithm::kAligned);
  EXPECT_EQ(cuda::gemm_choices(), "");
  cuda::set_autotune(true);
  before.run();  // an existing choice stays
  EXPECT_EQ(standin::last_matmul_algorithm(), MatmulAlgorithm::kAligned);
  for (const double beta : {0.0, 1.0}) {
    Product p(float32, 8, beta == 0 ? 32 : 40, 16);
    const size_t used = standin::used_memory();
    p.run(beta);
    EXPECT_EQ(standin::used_memory(), used);
    EXPECT_EQ(standin::last_matmul_algorithm(), MatmulAlgorithm::kGeneral);
    p.expect(beta);
    standin::reset_counters();
    p.run();
    EXPECT_EQ(standin::counters().kernels_by_name["cublasLtMatmul"], 1u);
    EXPECT_EQ(standin::last_matmul_algorithm(), MatmulAlgorithm::kGeneral);
  }
  const std::string choices = cuda::gemm_choices();
  EXPECT_EQ(std::count(choices.begin(), choices.end(), '\n'), 3) << choices;

  // Not inside a capture.
  const cudaStream_t stream = standin::new_stream();
  Product p(float32, 8, 48, 16);
  target().wait();
  const cudaGraphExec_t executable =
      standin::captured(stream, [&] { p.run(0, standin::on(stream), p.on.workspace(kWorkspace)); });
  EXPECT_EQ(standin::last_matmul_algorithm(), MatmulAlgorithm::kAligned);
  standin::ok(cudaGraphLaunch(executable, stream));
  standin::ok(cudaStreamSynchronize(stream));
  p.expect(0);
  EXPECT_EQ(cuda::gemm_choices(), choices);
  cuda::set_autotune(false);
  standin::slow_down(MatmulAlgorithm::kAligned, 0);
}

TEST_P(StandinGemmErrors, EveryStepOfTheTimingMayFail) {
  cuda::set_autotune(true);
  for (const char* name :
       {"cudaEventCreateWithFlags", "cudaEventRecord", "cudaEventSynchronize", "cudaEventElapsedTime"}) {
    SCOPED_TRACE(name);
    Product p(float32, 8, 56, 16);
    const size_t objects = standin::live_cublaslt_objects();
    standin::fail_call(name, 1, cudaErrorUnknown);
    expect_error([&] { p.run(); }, {name});
    EXPECT_EQ(standin::live_cublaslt_objects(), objects);
    standin::clear_faults();
  }
  Product no_memory(float32, 8, 56, 16);
  standin::fail_call("cudaMalloc", 1, cudaErrorMemoryAllocation);
  no_memory.run(1);
  no_memory.expect(1);
  standin::clear_faults();
  cuda::set_autotune(false);
}

/// The text with the number at `index` of its second line replaced.
std::string with_number(const std::string& text, int index, const std::string& number) {
  std::istringstream words(text.substr(text.find('\n') + 1));
  std::string result = text.substr(0, text.find('\n') + 1), word, line;
  std::getline(words, line);
  std::istringstream numbers(line);
  for (int i = 0; numbers >> word; ++i) result += (i > 0 ? " " : "") + (i == index ? number : word);
  return result + "\n";
}

TEST_P(StandinGemmErrors, ChoicesCanBeKept) {
  standin::slow_down(MatmulAlgorithm::kAligned, 2);
  cuda::set_autotune(true);
  Product(float32, 16, 64, 16).run();
  cuda::set_autotune(false);
  standin::slow_down(MatmulAlgorithm::kAligned, 0);
  const std::string choices = cuda::gemm_choices();
  constexpr int kM = 3 + 6, kN = 3 + 7;
  // A choice for another shape, as if from another process.
  std::string other = with_number(with_number(choices, kM, "72"), kN, "16");
  // The rows of its D have 72 elements; the key contains all leading dimensions.
  other = with_number(other, 3 + 12, "72");
  cuda::restore_gemm_choices(other);
  Product p(float32, 16, 72, 16);
  p.run();
  EXPECT_EQ(standin::last_matmul_algorithm(), MatmulAlgorithm::kGeneral);
  p.expect(0);
  EXPECT_TRUE(has(cuda::gemm_choices(), other.substr(other.find('\n') + 1)));
  cuda::restore_gemm_choices("");

  // An algorithm that the library no longer accepts is not used.
  std::string invalid = with_number(with_number(with_number(choices, kM, "80"), kN, "16"), 3 + 12, "80");
  invalid = with_number(invalid, 3 + 20, "12345");
  cuda::restore_gemm_choices(invalid);
  Product q(float32, 16, 80, 16);
  q.run();
  EXPECT_EQ(standin::last_matmul_algorithm(), MatmulAlgorithm::kAligned);
  q.expect(0);

  const std::string kept = cuda::gemm_choices();
  const std::string first = choices.substr(0, choices.find('\n') + 1);
  for (const std::string& text :
       {std::string("rubbish"), "gemm choices, cuBLASLt 9.9.9\n" + choices.substr(first.size()), first + "1 2 3\n",
        first + "x\n", with_number(choices, 4, "ten"), choices.substr(0, choices.size() - 1) + " 7\n"})
    expect_error([&] { cuda::restore_gemm_choices(text); }, {"the recorded choices of matrix algorithms"});
  EXPECT_EQ(cuda::gemm_choices(), kept);
}

TEST_P(StandinGemmErrors, SeveralThreads) {
  std::vector<std::thread> threads;
  std::vector<std::deque<Product>> products(4);
  for (size_t i = 0; i < products.size(); ++i)
    for (int64_t n = 1; n < 20; ++n) products[i].emplace_back(i % 2 == 0 ? float32 : float64, 3, n, 4);
  std::vector<void*> workspaces;
  for (std::deque<Product>& own : products)
    threads.emplace_back([&own, workspace = workspaces.emplace_back(target().allocate(kWorkspace))] {
      for (Product& p : own) p.run(0, p.on.stream(), workspace);
    });
  for (std::thread& thread : threads) thread.join();
  for (std::deque<Product>& own : products)
    for (Product& p : own) p.expect(0);
  for (void* workspace : workspaces) target().release(workspace);
}

// ---- the stand-in -------------------------------------------------------------------------------------------------

/// A product of [4, 6] and [6, 5] matrices in column-major order, using the stand-in's functions directly.
struct Raw {
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  char* const memory = static_cast<char*>(target().allocate(65536));

  Raw() {
    cublasLtCreate(&handle);
    cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatrixLayoutCreate(&a, CUDA_R_32F, 4, 6, 4);
    cublasLtMatrixLayoutCreate(&b, CUDA_R_32F, 6, 5, 6);
    cublasLtMatrixLayoutCreate(&d, CUDA_R_32F, 4, 5, 4);
    cublasLtMatmulPreferenceCreate(&preference);
  }
  ~Raw() {
    target().release(memory);
    EXPECT_EQ(cublasLtMatmulPreferenceDestroy(preference), CUBLAS_STATUS_SUCCESS);
    for (cublasLtMatrixLayout_t layout : {a, b, d})
      EXPECT_EQ(cublasLtMatrixLayoutDestroy(layout), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtMatmulDescDestroy(operation), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtDestroy(handle), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtDestroy(handle), CUBLAS_STATUS_INVALID_VALUE);
  }
  template <class T>
  cublasStatus_t set(cublasLtMatmulDescAttributes_t attribute, T value) {
    return cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof(value));
  }
  template <class T>
  cublasStatus_t set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, T value) {
    return cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof(value));
  }
  cublasStatus_t heuristic(cublasLtMatmulHeuristicResult_t& result) {
    int count = 0;
    return cublasLtMatmulAlgoGetHeuristic(handle, operation, a, b, d, d, preference, 1, &result, &count);
  }
  cublasStatus_t heuristic() {
    cublasLtMatmulHeuristicResult_t result;
    return heuristic(result);
  }
  cublasStatus_t run(const cublasLtMatmulAlgo_t* algo, int shift = 0, size_t workspace_bytes = 0) {
    const float one = 1, zero = 0;
    return cublasLtMatmul(handle, operation, &one, memory + shift, a, memory + 512, b, &zero, memory + 1024, d,
                          memory + 1024, d, algo, memory + 32768, workspace_bytes, nullptr);
  }
};

TEST_P(StandinGemmErrors, RejectsWhatTheLibraryRejects) {
  Raw raw;
  cublasLtMatmulHeuristicResult_t result;
  EXPECT_EQ(raw.heuristic(result), CUBLAS_STATUS_SUCCESS) << standin::cublaslt_message();
  EXPECT_EQ(raw.run(&result.algo), CUBLAS_STATUS_SUCCESS) << standin::cublaslt_message();
  EXPECT_EQ(raw.run(nullptr), CUBLAS_STATUS_INVALID_VALUE);
  // An attribute of the wrong size, and one that does not exist.
  EXPECT_EQ(raw.set(CUBLASLT_MATMUL_DESC_EPILOGUE, int64_t{1}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(raw.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, int32_t{0}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(raw.set(static_cast<cublasLtMatmulDescAttributes_t>(9), int64_t{0}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(raw.set(raw.a, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, int64_t{1}), CUBLAS_STATUS_INVALID_VALUE);
  // The leading dimension of op(A) instead of A's.
  raw.set(raw.b, CUBLASLT_MATRIX_LAYOUT_LD, int64_t{5});
  EXPECT_EQ(raw.heuristic(), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_TRUE(has(standin::cublaslt_message(), "the leading dimension of B is 5, expected at least 6"));
  raw.set(raw.b, CUBLASLT_MATRIX_LAYOUT_LD, int64_t{6});
  // A transposition that does not fit the shapes, a different batch count, an epilogue without its pointer.
  raw.set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  EXPECT_EQ(raw.run(&result.algo), CUBLAS_STATUS_INVALID_VALUE);
  raw.set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_N);
  raw.set(raw.d, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, int32_t{2});
  EXPECT_EQ(raw.heuristic(), CUBLAS_STATUS_INVALID_VALUE);
  raw.set(raw.d, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, int32_t{1});
  raw.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  EXPECT_EQ(raw.heuristic(), CUBLAS_STATUS_INVALID_VALUE);
  raw.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, raw.memory + 2048);
  EXPECT_EQ(raw.heuristic(), CUBLAS_STATUS_SUCCESS);
  raw.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(CUDA_R_16BF));
  EXPECT_EQ(raw.heuristic(), CUBLAS_STATUS_INVALID_VALUE);
  raw.set(CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t{12345});
  EXPECT_EQ(raw.heuristic(), CUBLAS_STATUS_INVALID_VALUE);
  raw.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT);
  // Types.
  raw.set(raw.a, CUBLASLT_MATRIX_LAYOUT_TYPE, static_cast<uint32_t>(CUDA_R_16F));
  EXPECT_EQ(raw.heuristic(), CUBLAS_STATUS_NOT_SUPPORTED);
  raw.set(raw.b, CUBLASLT_MATRIX_LAYOUT_TYPE, static_cast<uint32_t>(CUDA_R_16F));
  EXPECT_EQ(raw.heuristic(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(raw.run(&result.algo), CUBLAS_STATUS_INVALID_VALUE);  // the algorithm was for fp32
  raw.set(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, static_cast<int32_t>(CUBLAS_COMPUTE_64F));
  EXPECT_EQ(raw.heuristic(), CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST_P(StandinGemmErrors, AlgorithmsNeedTheirWorkspace) {
  Raw raw;
  cublasLtMatmulHeuristicResult_t result;
  raw.set(raw.a, CUBLASLT_MATRIX_LAYOUT_COLS, uint64_t{512});
  raw.set(raw.b, CUBLASLT_MATRIX_LAYOUT_ROWS, uint64_t{512});
  raw.set(raw.b, CUBLASLT_MATRIX_LAYOUT_LD, int64_t{512});
  const uint64_t limit = 32768;
  cublasLtMatmulPreferenceSetAttribute(raw.preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit, sizeof(limit));
  ASSERT_EQ(raw.heuristic(result), CUBLAS_STATUS_SUCCESS) << standin::cublaslt_message();
  ASSERT_GT(result.workspaceSize, 0u);
  EXPECT_EQ(raw.run(&result.algo, 0, 0), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(raw.run(&result.algo, 0, result.workspaceSize - 1), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(raw.run(&result.algo, 0, result.workspaceSize), CUBLAS_STATUS_SUCCESS) << standin::cublaslt_message();
}

TEST_P(StandinGemmErrors, AlgorithmsNeedTheirAlignment) {
  Raw raw;
  cublasLtMatmulHeuristicResult_t result;
  raw.set(raw.b, CUBLASLT_MATRIX_LAYOUT_LD, int64_t{8});
  ASSERT_EQ(raw.heuristic(result), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(raw.run(&result.algo), CUBLAS_STATUS_SUCCESS) << standin::cublaslt_message();
  EXPECT_EQ(standin::last_matmul_algorithm(), MatmulAlgorithm::kAligned);
  EXPECT_EQ(raw.run(&result.algo, 4), CUBLAS_STATUS_INVALID_VALUE);
  const uint32_t four = 4;
  cublasLtMatmulPreferenceSetAttribute(raw.preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &four, sizeof(four));
  ASSERT_EQ(raw.heuristic(result), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(raw.run(&result.algo, 4), CUBLAS_STATUS_SUCCESS) << standin::cublaslt_message();
  EXPECT_EQ(standin::last_matmul_algorithm(), MatmulAlgorithm::kGeneral);
}

}  // namespace
}  // namespace tern::kernels
